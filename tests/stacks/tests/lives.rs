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
    ("r6_r47_losses_are_counted", Need::Nothing, r6_r47_losses_are_counted),
    ("r13_r14_r26_r39_process_churn", Need::Python, r13_r14_r26_r39_process_churn),
    ("r15_reader_that_does_not_read", Need::Python, r15_reader_that_does_not_read),
    ("r20_many_paths", Need::Python, r20_many_paths),
    ("r22_r23_without_the_right_to_raise_limits", Need::Python, r22_r23_limits),
    ("r34_agent_probes_itself", Need::Python, r34_agent_probes_itself),
    ("r50_clocks", Need::Python, r50_clocks),
    ("r51_io_uring_whole", Need::IoUring, r51_io_uring_whole),
    ("r51_io_uring_body", Need::IoUring, r51_io_uring_body),
    ("r55_32_bit_calls", Need::Ia32, r55_32_bit_calls),
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
    // Counters of what happens now and then appear with it.
    ensure!(after <= before + 30, "300 paths made {before} lines of metrics {after}");
    ensure!(!watch.agent.metrics_text()?.contains("/unique/"), "a path is in the metrics");
    expect_all(watch, &mut peer, &[], 300, dir)
}

/// No locked memory and no right to ask for more: newer kernels do not need it, so the agent must not either.
fn r22_r23_limits(dir: &Path) -> Result<()> {
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

pub(crate) fn io_uring(way: &str, dir: &Path) -> Result<Peer> {
    let [include, library] = machine::liburing_arguments()?;
    let mut command = Command::new(machine::compile("iouring.c", dir, &[&include, &library])?);
    command.arg(way);
    Peer::start("iouring", command, dir)
}

/// Everything goes by `io_uring`: no byte can be read from outside. Nothing is made up, and it is said; what is told
/// of times and sizes is the server's own.
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
    let truth = std::fs::read_to_string(dir.join("iouring.truth"))?;
    ensure!(truth.lines().count() == 10, "the server knows of other requests: {truth}");
    let foreign = records.iter().find(|record| !truth.lines().any(|line| is_of(record, line)));
    ensure!(foreign.is_none(), "not what the server says:\n{truth}{foreign:#?}");
    Ok(())
}

/// What a record says of times and sizes is what a line of the ring's server says.
fn is_of(record: &system::agent::Record, line: &str) -> bool {
    const SLACK_NS: u64 = 200_000;
    let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
    let [read_before, read_after, sent_before, sent_after, got, sent] = numbers[..] else { return false };
    let within = |at: Option<u64>, from: u64, to: u64| {
        at.is_none_or(|at| (from.saturating_sub(SLACK_NS)..=to + SLACK_NS).contains(&at))
    };
    within(record.t_first_byte_in_ns, read_before, read_after)
        && within(record.t_last_byte_out_ns, sent_before, sent_after)
        && [0, got].contains(&record.bytes_in)
        && [0, sent].contains(&record.bytes_out)
}

/// Requests and heads go by ordinary calls, bodies by `io_uring`: their sizes are exact and the gap is marked.
fn r51_io_uring_body(dir: &Path) -> Result<()> {
    let peer = io_uring("body", dir)?;
    let watch = Watch::ports(&[peer.port], dir)?;
    unreadable_bodies(peer, watch)
}

/// Bodies go by 32-bit system calls, whose arguments are elsewhere: seen, sized, and marked as a gap.
fn r55_32_bit_calls(dir: &Path) -> Result<()> {
    let peer = int80(dir)?;
    let watch = Watch::ports(&[peer.port], dir)?;
    unreadable_bodies(peer, watch)
}

pub(crate) fn int80(dir: &Path) -> Result<Peer> {
    let command = Command::new(machine::compile("int80.c", dir, &[])?);
    Peer::start("int80", command, dir)
}

/// Of each answer the head is known, and how many bytes there were.
pub(crate) fn unreadable_bodies(mut peer: Peer, mut watch: Watch) -> Result<()> {
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
    // The request names a model. What the answer says of it, of tokens and of its end, nobody saw.
    let said = |r: &system::agent::Record| (r.model.clone(), r.output_tokens, r.finish_reason.clone());
    let wrong = records.iter().find(|record| said(record) != (Some("raw-model".into()), None, None));
    ensure!(wrong.is_none(), "the request's model and nothing of the answer was seen: {wrong:#?}");
    let expected: Vec<String> =
        (0..10).map(|n| format!("o{n} POST /v1/chat/completions 200 ok [\"gap\"]")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    expect_facts(watch, &mut peer, &expected).map(drop)
}

/// BPF programs and attachments that a process holds.
fn bpf_objects(pid: u32) -> Result<usize> {
    let fds = std::fs::read_dir(format!("/proc/{pid}/fdinfo"))?;
    // A descriptor may be closed by now.
    let infos = fds.flatten().map(|fd| std::fs::read_to_string(fd.path()).unwrap_or_default());
    Ok(infos.filter(|info| info.contains("prog_id:") || info.contains("link_id:")).count())
}

/// Processes of the service come and go: neither attachments nor memory grow with them.
fn r13_r14_r26_r39_process_churn(dir: &Path) -> Result<()> {
    let (mut peer, mut watch) = odd("fork_each", dir)?;
    let agent = watch.agent.process.pid();
    let some = |range: std::ops::Range<usize>| {
        range.into_iter().try_for_each(|number| ask(peer.port, &format!("p{number}")))
    };
    some(0..200)?;
    watch.records(peer.port, 200)?;
    let (objects, memory) = (bpf_objects(agent)?, crate::http::rss(agent)?);
    ensure!(objects > 0, "the agent holds no BPF program: the check below would be empty");
    some(200..1200)?;
    watch.records(peer.port, 1200)?;
    let grown = crate::http::rss(agent)?.saturating_sub(memory);
    // Finished records are kept for `requests`, a kilobyte or two each.
    ensure!(grown < 6 << 20, "1000 processes made the agent grow by {grown} bytes");
    ensure!(bpf_objects(agent)? <= objects, "{objects} BPF objects became {}", bpf_objects(agent)?);
    let forgotten = |status: &system::agent::Status| status.services.iter().all(|s| s.pids.len() < 20);
    watch.wait_status("the agent to forget processes that ended", forgotten)?;
    expect_all(watch, &mut peer, &[], 1200, dir)
}

/// Somebody who follows the records and does not read them costs nothing but his own records.
fn r15_reader_that_does_not_read(dir: &Path) -> Result<()> {
    let (mut peer, mut watch) = odd("threads", dir)?;
    let agent = watch.agent.process.pid();
    let mut lazy: Vec<Raw> = Vec::new();
    for _ in 0..8 {
        let mut raw = Raw::connect(watch.agent.address().port())?;
        raw.send("GET /api/v1/requests?follow=1 HTTP/1.1\r\nhost: agent\r\n\r\n")?;
        lazy.push(raw);
    }
    let mut raw = Raw::connect(peer.port)?;
    let mut some = |range: std::ops::Range<u32>| {
        range.into_iter().try_for_each(|number| {
            raw.send(chat(&format!("q{number}"), false))?;
            raw.until("}}").map(drop)
        })
    };
    some(0..500)?;
    watch.records(peer.port, 500)?;
    let before = crate::http::rss(agent)?;
    some(500..5000)?;
    watch.records(peer.port, 5000)?;
    let grown = crate::http::rss(agent)?.saturating_sub(before);
    ensure!(grown < 8 << 20, "readers that do not read made the agent grow by {grown} bytes");
    drop(lazy);
    expect_all(watch, &mut peer, &[], 5000, dir)
}

/// The agent's own connections are nobody's requests, even when its port is asked for.
fn r34_agent_probes_itself(dir: &Path) -> Result<()> {
    let mut peer = Peer::python("odd.py", &["threads"], dir)?;
    let mut watch = Watch::launch(&["--pid".into(), peer.process.pid().to_string()], dir)?;
    watch.wait_ports(&[peer.port])?;
    for _ in 0..20 {
        watch.agent.metrics_text()?;
    }
    ask(peer.port, "x")?;
    watch.records(peer.port, 1)?;
    let own = watch.agent.address().port();
    let records = watch.follower.records(own)?;
    ensure!(records.is_empty(), "the agent's own answers are in its records: {records:#?}");
    expect_all(watch, &mut peer, &[], 1, dir)
}

/// A ring too small for what happens: what is lost is counted, where everybody looks for it.
fn r6_r47_losses_are_counted(dir: &Path) -> Result<()> {
    let mut peer = crate::servers::hyper(dir)?;
    let config = dir.join("agent.toml");
    std::fs::write(&config, "[ring]\nsize_bytes = 65536\n")?;
    let config = config.to_str().context("a path that is not UTF-8")?;
    let arguments = ["--config", config, "--port", &peer.port.to_string()].map(str::to_owned);
    let mut watch = Watch::launch(&arguments, dir)?;
    watch.wait_ports(&[peer.port])?;
    // The agent stands still while the server goes on.
    watch.agent.process.signal(rustix::process::Signal::STOP)?;
    let mut raw = Raw::connect(peer.port)?;
    for number in 0..200 {
        raw.send(chat(&format!("k{number}"), true))?;
        raw.until(STREAM_END)?;
    }
    watch.agent.process.signal(rustix::process::Signal::CONT)?;
    let counted = |status: &system::agent::Status| {
        status.health.kernel.get("drop_socket_ring_full").copied().unwrap_or_default() > 0
    };
    watch.wait_status("the losses to be counted", counted)?;
    let metrics = watch.agent.metrics_text()?;
    let line = metrics.lines().find(|line| line.contains("drop") && line.contains("socket"));
    ensure!(line.is_some_and(|line| !line.ends_with(" 0")), "the metrics do not say it: {line:?}");
    // Afterwards it sees again.
    ask(peer.port, "after")?;
    let seen = |records: &[system::agent::Record]| {
        records.iter().any(|r| r.request_id.as_deref() == Some("after") && r.outcome.as_deref() == Some("ok"))
    };
    watch.follower.wait("the request after the loss", peer.port, Duration::from_secs(10), seen)?;
    drop(watch);
    peer.stop()
}
