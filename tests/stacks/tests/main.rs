//! The agent beside real servers and clients, on real probes and sockets.
//!
//! Tests need root and BPF, and each the software it is about: without, it is skipped with the reason. They run one
//! after the other, since they share the kernel and the cores. Each leaves its files in `target/stacks/<name>`.

mod arrival;
mod calls;
mod capture;
mod catalogue;
mod clients;
mod closes;
mod driver;
mod events;
mod http;
mod http2;
mod identity;
mod leaving;
mod lives;
mod load;
mod nested;
mod older;
mod roles;
mod servers;
mod streams;
mod tiers;
mod tls;
mod unix;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use stacks::compare::Report;
use stacks::gaps;
use stacks::machine::Need;
use stacks::peer::Peer;
use stacks::watch::Watch;
use system::rig::ClientView;

/// A test, given a folder of its own.
type Test = fn(&Path) -> Result<()>;

const GROUPS: &[&[(&str, Need, Test)]] = &[
    servers::TESTS,
    nested::TESTS,
    unix::TESTS,
    clients::TESTS,
    http::TESTS,
    events::TESTS,
    calls::TESTS,
    leaving::TESTS,
    http2::TESTS,
    streams::TESTS,
    roles::TESTS,
    arrival::TESTS,
    capture::TESTS,
    tiers::TESTS,
    identity::TESTS,
    older::TESTS,
    closes::TESTS,
    lives::TESTS,
    catalogue::TESTS,
    driver::TESTS,
    tls::TESTS,
    load::TESTS,
    // Last: it looks at what the others have left.
    &[("peers_know_their_times", Need::Nothing, peers_know_their_times)],
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let obstacle = system::host::obstacle();
    let mut missing = HashMap::new();
    let trials = GROUPS.iter().copied().flatten().map(|&(name, need, test)| {
        // Looking for the software of all the others takes longer than most tests.
        let is_wanted = arguments.filter.as_ref().is_none_or(|filter| name.contains(filter));
        let lack = || missing.entry(format!("{need:?}")).or_insert_with(|| need.missing()).clone();
        let reason = obstacle.clone().or_else(|| is_wanted.then(lack).flatten());
        if let Some(reason) = &reason {
            // Nobody reads: nobody misses it.
            let _ = writeln!(io::stdout().lock(), "skip: {name}: {reason}");
        }
        Trial::test(name, move || run(name, test)).with_ignored_flag(reason.is_some())
    });
    let trials = trials.collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn run(name: &str, test: Test) -> Result<(), Failed> {
    let dir = fresh_dir(name).map_err(|error| Failed::from(format!("{error:#}")))?;
    test(&dir).map_err(|error| Failed::from(format!("{error:#}\nfiles: {}", dir.display())))
}

/// A comparison with times that are known to within milliseconds alone would find nothing.
fn peers_know_their_times(dir: &Path) -> Result<()> {
    let root = dir.parent().context("a test's folder is in that of all")?;
    stacks::compare::blunt(root)?.map_or(Ok(()), |blunt| bail!(blunt))
}

/// Ends everything and compares the records of a peer with its truth, which must hold `count` requests.
fn expect_all(
    mut watch: Watch,
    peer: &mut Peer,
    clients: &[ClientView],
    count: usize,
    dir: &Path,
) -> Result<()> {
    watch.records(peer.port, count)?;
    let recording = watch.agent.recording().to_owned();
    let records = watch.finish(peer.port)?;
    peer.stop()?;
    let truths = peer.truth()?;
    let mut report = Report::new(&truths, clients, &records);
    report.every_gap(&truths, &gaps::measured(&recording, peer.port)?);
    judge(&report, count, dir)
}

/// Prints the figures and says what does not hold.
fn judge(report: &Report, count: usize, dir: &Path) -> Result<()> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    writeln!(io::stdout().lock(), "{name}: {report}")?;
    report.leave_stamps(dir)?;
    fs::write(dir.join("report.txt"), format!("{report}\n{}\n", report.faults.join("\n")))?;
    let violations = report.violations();
    ensure!(
        violations.is_empty(),
        "{report}\n{} violations:\n{}",
        violations.len(),
        violations[..violations.len().min(20)].join("\n")
    );
    ensure!(report.requests == count, "the peer knows of {} requests, {count} were sent", report.requests);
    Ok(())
}

fn fresh_dir(name: &str) -> Result<PathBuf> {
    let dir = system::host::root().join("target/stacks").join(name);
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}
