//! Live tests one by one, each in a process of its own: the time each took is known, and none begins that could not end
//! before its time is up.
//!
//! The machine is shared with whatever else runs on it, and some tests need both ends' clocks within milliseconds: a few
//! that failed run once more at the end, and those that pass then are named as unsteady.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::command::show;
use crate::out;
use crate::test::binaries::{Binary, run_one};
use crate::test::tally::Tally;

/// Failures that run once more. More of them are no matter of luck.
const AGAIN: usize = 3;

/// When the last test may begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// So many minutes after now; without a number, never.
    pub(crate) fn after(minutes: Option<u64>) -> Self {
        Self(minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes)))
    }

    fn has_passed(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// Runs the binary's tests whose name contains the filter.
pub(super) fn run(
    binary: &Binary,
    filter: Option<&str>,
    deadline: Deadline,
    tally: &mut Tally,
) -> Result<()> {
    let mut failed = Vec::new();
    for name in names(binary, filter)? {
        if deadline.has_passed() {
            tally.left_out(binary.kind, &name);
            continue;
        }
        let begin = Instant::now();
        let result = once(binary, &name)?;
        out::line(format_args!("{name}: {:.1} s", begin.elapsed().as_secs_f64()));
        if result.failed() > 0 { failed.push((name, result)) } else { tally.add(result) }
    }
    let again = failed.len() <= AGAIN && !deadline.has_passed();
    for (name, first) in failed {
        tally.add(if again { second(binary, &name)? } else { first });
    }
    Ok(())
}

fn second(binary: &Binary, name: &str) -> Result<Tally> {
    out::line(format_args!("{name}: once more"));
    let mut result = once(binary, name)?;
    if result.failed() == 0 {
        result.unsteady(name);
    }
    Ok(result)
}

fn once(binary: &Binary, name: &str) -> Result<Tally> {
    let mut tally = Tally::of_test(name);
    run_one(binary.command().args(["--exact", name]), binary.kind, &mut tally)?;
    Ok(tally)
}

fn names(binary: &Binary, filter: Option<&str>) -> Result<Vec<String>> {
    let mut command = binary.command();
    command.args(["--list", "--format", "terse"]).args(filter);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", show(&command)))?;
    ensure!(output.status.success(), "{} failed ({})", show(&command), output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
