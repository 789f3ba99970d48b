//! What happens when a part dies, comes late, or talks nonsense.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::accuracy::join;
use system::agent::{Agent, Record};
use system::rig::{Load, Running, Server, ServerOptions, Shape};
use system::run::{SETTLE_LIMIT, Stage};
use system::truth::with_arrivals;
use system::{host, wait};

const LIMIT: Duration = Duration::from_mins(1);

/// `kill -9` on the agent: the server does not notice, and the kernel forgets our programs.
pub(crate) fn agent_killed(dir: &Path) -> Result<()> {
    let mut stage = Stage::set(&ServerOptions::new(Shape::Single), dir, &[])?;
    let mut load = Load::requests(4, 40).start(stage.server.port, dir)?;
    stage.follower.wait("a first record", stage.server.port, LIMIT, |records| !records.is_empty())?;
    let programs = programs_of(stage.agent.process.pid())?;
    ensure!(
        !programs.is_empty(),
        "the agent holds no BPF program while it runs: the check below would be empty"
    );
    let before_kill = load.seen()?.len();
    // The kernel lets go of its probes one after the other.
    stage.agent.process.kill(3 * LIMIT)?;
    let clients = load.finish(LIMIT)?;
    ensure!(
        clients.len() == 40 && before_kill < 40,
        "{} answers, {before_kill} before the kill",
        clients.len()
    );
    let bad: Vec<_> = clients.iter().filter(|client| client.outcome != "ok").collect();
    ensure!(bad.is_empty(), "the kill disturbed requests: {bad:?}");
    stage.server.stop().context("the server did not end as usual")?;
    for program in programs {
        wait::until(&format!("the kernel to free program {program}"), LIMIT, || {
            Ok((!program_exists(program)?).then_some(()))
        })?;
    }
    let events = fs::read_to_string("/sys/kernel/tracing/uprobe_events").context("tracefs is not mounted")?;
    ensure!(!events.contains("libcuda"), "uprobes are left: {events}");
    Ok(())
}

/// Ids of the BPF programs that a process holds.
fn programs_of(pid: u32) -> Result<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // The descriptor may be closed by now.
        let info = fs::read_to_string(entry?.path()).unwrap_or_default();
        let id = info.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse::<u32>().ok());
        ids.extend(id);
    }
    Ok(ids)
}

fn program_exists(id: u32) -> Result<bool> {
    let output =
        Command::new(host::tool("bpftool")?).args(["prog", "show", "id", &id.to_string()]).output()?;
    Ok(output.status.success())
}

/// The agent comes while connections are open: it says so, and whatever it says about time is true.
pub(crate) fn agent_late(dir: &Path) -> Result<()> {
    let mut server = Server::start(&ServerOptions::new(Shape::Single), dir)?;
    let mut load = Load::requests(4, 60).with("keep-alive", true).start(server.port, dir)?;
    wait::until("clients to be served", LIMIT, || Ok((load.seen()?.len() >= 8).then_some(())))?;
    let mut agent = Agent::start(dir, &[])?;
    agent.wait_attached(&server)?;
    let mut follower = agent.follow(dir)?;
    let early = load.seen()?.len();
    let clients = load.finish(LIMIT)?;
    let is_last = |records: &[Record]| records.len() >= 60 - early - 4;
    let records = follower.wait("records", server.port, SETTLE_LIMIT, is_last)?;
    server.stop()?;
    agent.stop()?;
    ensure!(
        records.iter().any(|record| has_flag(record, "mid_stream")),
        "no record says mid_stream: {records:#?}"
    );
    let joined = join(&with_arrivals(server.truth()?, &clients), &records);
    ensure!(!joined.pairs.is_empty(), "no record could be joined with the truth");
    ensure!(joined.duplicated.is_empty(), "reported twice: {:?}", joined.duplicated);
    for pair in &joined.pairs {
        let e2e = pair.e2e().zip(pair.record.e2e_s).map(|(truth, seen)| truth.distance(seen));
        let ttft = pair.ttft().zip(pair.record.ttft_s).map(|(truth, seen)| truth.distance(seen));
        let invented = [e2e, ttft].into_iter().flatten().any(|error| error > 1e-3);
        ensure!(!invented, "an invented duration: {pair:#?}");
    }
    Ok(())
}

fn has_flag(record: &Record, flag: &str) -> bool {
    record.flags.iter().any(|have| have == flag)
}

pub(crate) fn server_killed_single(dir: &Path) -> Result<()> {
    server_killed(Shape::Single, dir)
}

pub(crate) fn server_killed_split(dir: &Path) -> Result<()> {
    server_killed(Shape::Split, dir)
}

/// The server dies in mid-answer: its request becomes an outcome, not a hang.
fn server_killed(shape: Shape, dir: &Path) -> Result<()> {
    let slow = ServerOptions::new(shape).with("decode-us", 20_000);
    let mut stage = Stage::set(&slow, dir, &[])?;
    let load = Load::requests(1, 1).with("output-tokens", 10_000).start(stage.server.port, dir)?;
    wait_in_flight(&mut stage, &load)?;
    stage.server.process.kill(LIMIT)?;
    let records =
        stage.follower.wait("an outcome", stage.server.port, SETTLE_LIMIT, |records| !records.is_empty())?;
    let outcome = records[0].outcome.as_deref();
    ensure!(outcome == Some("truncated"), "outcome {outcome:?} in {:#?}", records[0]);
    stage.agent.process.check_alive()
}

/// Until steps of the request were seen: it is in mid-answer.
fn wait_in_flight(stage: &mut Stage, load: &Running) -> Result<()> {
    let launches = |stage: &Stage| Ok::<_, anyhow::Error>(stage.agent.status()?.health.decoded);
    let before = launches(stage)?;
    wait::until("the request to be in mid-answer", LIMIT, || {
        ensure!(load.seen()?.is_empty(), "the request was over before the server could be killed");
        Ok((launches(stage)? > before + 20).then_some(()))
    })
}

/// Bytes that are no HTTP: counted, and nobody else's numbers change.
pub(crate) fn garbage(dir: &Path) -> Result<()> {
    let stage = Stage::set(&ServerOptions::new(Shape::Single), dir, &[])?;
    let ignored_before: u64 = stage.agent.status()?.health.ignored.values().sum();
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03garbage"[..],
        b"\0\0\0\0\xff\xff",
        b"GET nonsense\r\n\r\n",
    ] {
        talk(stage.server.port, bytes)?;
    }
    let finished = stage.play("single", &Load::requests(4, 20), dir, LIMIT)?;
    let status = &finished.status;
    let ignored: u64 = status.health.ignored.values().sum();
    ensure!(ignored > ignored_before, "garbage was not counted: {:#?}", status.health);
    let violations = finished.report.violations();
    // Whether an answered 400 is a request is the agent's choice; the others must be as if it had not been.
    let others: Vec<_> = violations.iter().filter(|text| !text.contains("never were")).collect();
    ensure!(others.is_empty(), "{others:?}");
    Ok(())
}

/// Sends `bytes` and waits for the server to end the connection.
fn talk(port: u16, bytes: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(bytes)?;
    stream.shutdown(Shutdown::Write)?;
    // A reset is as good an end as any.
    let _ = stream.read_to_end(&mut Vec::new());
    Ok(())
}

/// Clients that hang up in mid-answer: an outcome each, and none of them `ok`.
pub(crate) fn clients_that_leave(dir: &Path) -> Result<()> {
    let stage = Stage::set(&ServerOptions::new(Shape::Split), dir, &[])?;
    let load = Load::requests(4, 40).with("abort-ratio", 0.5);
    let finished = stage.play("split", &load, dir, LIMIT)?;
    let left = |pair: &&system::accuracy::Pair| pair.truth.outcome != "ok";
    let aborted: Vec<_> = finished.joined.pairs.iter().filter(left).collect();
    ensure!(!aborted.is_empty(), "no client left: the test would be empty");
    let wrong: Vec<_> = aborted
        .iter()
        .filter(|pair| pair.record.outcome.as_deref() != Some("client_disconnect"))
        .map(|pair| (&pair.truth.outcome, &pair.record.outcome))
        .collect();
    ensure!(wrong.is_empty(), "true and reported outcome: {wrong:?}");
    let report = &finished.report;
    ensure!(report.missed == 0 && report.duplicated == 0, "{report:#?}");
    Ok(())
}
