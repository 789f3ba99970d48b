//! What the agent itself needs and leaves alone, and ways around ordinary system calls. Named after the rows of the
//! catalogue of known bugs (`rN_…`).

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use stacks::machine::{self, Need};
use stacks::peer::Peer;
use stacks::raw::{self, Raw, chat, post};
use stacks::watch::Watch;
use system::host;

use crate::http::{expect_facts, facts, odd};
use crate::{Test, expect_all};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("r20_many_paths", Need::Python, r20_many_paths),
    ("r23_without_the_right_to_raise_limits", Need::Python, r23_limits),
    ("r50_clocks", Need::Python, r50_clocks),
    ("r51_io_uring_whole", Need::IoUring, r51_io_uring_whole),
    ("r51_io_uring_body", Need::IoUring, r51_io_uring_body),
];

const STREAM_END: &str = "0\r\n\r\n";

fn ask(port: u16, id: &str) -> Result<()> {
    let mut raw = Raw::connect(port)?;
    raw.send(chat(id, true))?;
    raw.until(STREAM_END).map(drop)
}

/// A path never becomes a series.
fn r20_many_paths(dir: &Path) -> Result<()> {
    let (mut peer, mut watch) = odd("threads", dir)?;
    let series = |watch: &Watch| Ok::<_, anyhow::Error>(watch.agent.metrics_text()?.lines().count());
    let mut raw = Raw::connect(peer.port)?;
    let mut some = |range: std::ops::Range<u32>| {
        range.into_iter().try_for_each(|number| {
            let path = format!("/unique/{number}/v1/chat/completions");
            raw.send(post(&path, &format!("u{number}"), "", &raw::body(true, 8)))?;
            raw.until(STREAM_END).map(drop)
        })
    };
    some(0..5)?;
    watch.records(peer.port, 5)?;
    let before = series(&watch)?;
    some(5..300)?;
    watch.records(peer.port, 300)?;
    let after = series(&watch)?;
    ensure!(after <= before + 5, "300 paths made {before} lines of metrics {after}");
    ensure!(!watch.agent.metrics_text()?.contains("/unique/"), "a path is in the metrics");
    expect_all(watch, &mut peer, &[], 300, dir)
}

/// No locked memory and no right to ask for more: newer kernels do not need it, so the agent must not either.
fn r23_limits(dir: &Path) -> Result<()> {
    let (setpriv, prlimit) = (host::tool("setpriv")?, host::tool("prlimit")?);
    let setpriv = setpriv.to_str().context("a path that is not UTF-8")?;
    let prlimit = prlimit.to_str().context("a path that is not UTF-8")?;
    let under = [
        setpriv,
        "--inh-caps=-sys_resource",
        "--bounding-set=-sys_resource",
        prlimit,
        "--memlock=65536:65536",
    ];
    let mut peer = Peer::python("odd.py", &["threads"], dir)?;
    let watch = Watch::under(&under, &[peer.port], dir)?;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", watch.agent.process.pid()))?;
    let locked = limits.lines().find(|line| line.starts_with("Max locked memory")).unwrap_or_default();
    ensure!(locked.split_whitespace().any(|word| word == "65536"), "the limit is not in force: {locked}");
    ask(peer.port, "l")?;
    expect_all(watch, &mut peer, &[], 1, dir)
}

/// Wall-clock stamps are the wall clock's, and durations are not: a step of it would show in neither.
fn r50_clocks(dir: &Path) -> Result<()> {
    let (mut peer, mut watch) = odd("threads", dir)?;
    let before = SystemTime::now();
    ask(peer.port, "c")?;
    let after = SystemTime::now();
    watch.records(peer.port, 1)?;
    let line = watch.follower.lines().pop().context("a record")?;
    let record: serde_json::Value = serde_json::from_str(&line)?;
    let ts = record["ts"].as_str().context("a record has a time")?;
    let at = wall(ts).with_context(|| format!("not a time: {ts}"))?;
    let slack = Duration::from_millis(20);
    ensure!(before - slack <= at && at <= after + slack, "{ts} is not between {before:?} and {after:?}");
    for name in ["e2e_s", "ttft_s"] {
        let seconds = record[name].as_f64().unwrap_or(-1.0);
        ensure!((0.0..10.0).contains(&seconds), "{name} is {seconds}");
    }
    expect_all(watch, &mut peer, &[], 1, dir)
}

/// `YYYY-MM-DDThh:mm:ss.nnnnnnnnnZ` by the system's own `date`.
fn wall(text: &str) -> Result<SystemTime> {
    let output = Command::new(host::tool("date")?).args(["-u", "+%s.%N", "-d", text]).output()?;
    let seconds: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds))
}

fn io_uring(way: &str, dir: &Path) -> Result<Peer> {
    let liburing = machine::liburing()?;
    let include = format!("-I{}", liburing.join("include").display());
    let library = liburing.join("lib/x86_64-linux-gnu/liburing.a");
    let library = library.to_str().context("a path that is not UTF-8")?;
    let mut command = Command::new(machine::compile("iouring.c", dir, &[&include, library])?);
    command.arg(way);
    Peer::start("iouring", command, dir)
}

/// Everything goes by `io_uring`: no byte can be read from outside. Nothing is made up, and it is said.
fn r51_io_uring_whole(dir: &Path) -> Result<()> {
    let mut peer = io_uring("whole", dir)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    for number in 0..10 {
        let mut raw = Raw::connect(peer.port)?;
        raw.send(chat(&format!("o{number}"), true))?;
        raw.until("[DONE]")?;
    }
    let blind = |status: &system::agent::Status| {
        status.health.kernel.get("payload_none").copied().unwrap_or_default() >= 20
    };
    watch.wait_status("what could not be read to be counted", blind)?;
    let records = watch.finish(peer.port)?;
    peer.stop()?;
    let invented: Vec<String> = records
        .iter()
        .filter(|record| record.path.is_some() || !record.flags.iter().any(|flag| flag == "gap"))
        .map(facts)
        .collect();
    ensure!(invented.is_empty(), "records of what nobody saw: {invented:#?}");
    Ok(())
}

/// Requests and heads go by ordinary calls, bodies by `io_uring`: their sizes are exact and the gap is marked.
fn r51_io_uring_body(dir: &Path) -> Result<()> {
    let mut peer = io_uring("body", dir)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    let mut sizes = Vec::new();
    for number in 0..10 {
        let mut raw = Raw::connect(peer.port)?;
        raw.send(chat(&format!("o{number}"), false))?;
        sizes.push(raw.rest().len() as u64);
    }
    let mut records = watch.records(peer.port, 10)?;
    records.sort_by(|a, b| a.request_id.cmp(&b.request_id));
    let counted: Vec<u64> = records.iter().map(|record| record.bytes_out).collect();
    ensure!(counted == sizes, "bytes out: {counted:?}, the clients got {sizes:?}");
    let expected: Vec<String> =
        (0..10).map(|n| format!("o{n} POST /v1/chat/completions 200 ok [\"gap\"]")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    expect_facts(watch, &mut peer, &expected).map(drop)
}
