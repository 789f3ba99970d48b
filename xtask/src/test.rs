//! `cargo xtask test`: format, lints and tidy, then every test there is, and at the end how many of each kind ran and what was skipped and why.

mod binaries;
mod live;
mod tally;

use anyhow::{Result, bail};

use crate::command::{cargo, run};
use crate::test::binaries::Selection;
use crate::test::live::Deadline;
use crate::test::tally::{Kind, Tally};
use crate::{build, out, setup, style};

/// Arguments of the task.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Run only tests whose name contains this
    filter: Option<String>,
    /// Run only tests of these kinds
    #[arg(long, value_enum)]
    only: Vec<Kind>,
    /// Begin no system test later than so many minutes after the start; those left out are listed
    #[arg(long)]
    minutes: Option<u64>,
}

impl Args {
    fn is_all(&self) -> bool {
        self.only.is_empty() && self.filter.is_none()
    }

    fn wants(&self, kind: Kind) -> bool {
        self.only.is_empty() || self.only.contains(&kind)
    }
}

/// Runs them; the last line of the output is always `N passed, N failed`.
pub(crate) fn command(args: &Args) -> Result<()> {
    let deadline = Deadline::after(args.minutes);
    let ready = setup::ensure();
    if args.is_all() {
        style::check()?;
    }
    let mut tally = Tally::default();
    run_rootless(args, &mut tally)?;
    if args.wants(Kind::System) {
        build::release(&ready)?;
        if let Err(reason) = &ready.live {
            out::progress("test", format_args!("system tests will be skipped: {reason}"));
        }
        out::progress("test", "system tests");
        binaries::run(
            Selection::System,
            args.filter.as_deref(),
            |kind| args.wants(kind),
            deadline,
            &mut tally,
        )?;
    }
    tally.print();
    if tally.failed() > 0 {
        bail!("{} tests failed", tally.failed());
    }
    Ok(())
}

fn run_rootless(args: &Args, tally: &mut Tally) -> Result<()> {
    if [Kind::Unit, Kind::Integration, Kind::Golden].into_iter().any(|kind| args.wants(kind)) {
        out::progress("test", "tests that need no root");
        // The model server's own tests load it, and `cargo test` alone leaves no library where they look for it.
        run(cargo().args(["build", "--locked", "--package", "fakecuda"]))?;
        let never = Deadline::after(None);
        binaries::run(Selection::Default, args.filter.as_deref(), |kind| args.wants(kind), never, tally)?;
    }
    if args.wants(Kind::Doc) && args.filter.is_none() {
        out::progress("test", "examples in the documentation");
        binaries::run_doc_tests(tally)?;
    }
    Ok(())
}
