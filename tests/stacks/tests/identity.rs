//! Whose connection it is: descriptors that are copied, passed on, reused and inherited. Named after the rows of the
//! catalogue of known bugs (`rN_…`) where there is one.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;
use stacks::machine::Need;
use stacks::peer::Peer;
use stacks::raw::{Raw, chat, plain, post};
use stacks::watch::Watch;
use system::wait;

use crate::http::{expect_facts, odd};
use crate::{Test, expect_all};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("dup", Need::Python, dup),
    ("fork", Need::Python, fork),
    ("r18_short_lived_processes", Need::Python, r18_short_lived_processes),
    ("r19_prefork_workers", Need::Python, r19_prefork_workers),
    ("r44_inherited_listener_and_exec", Need::Python, r44_inherited_listener_and_exec),
    ("r56_descriptor_passed_on", Need::Python, r56_descriptor_passed_on),
    ("fd_reuse", Need::Python, fd_reuse),
    ("r46_r54_many_connections", Need::Nothing, r46_r54_many_connections),
    ("r16_connection_older_than_the_agent", Need::Python, r16_connection_older_than_the_agent),
    ("r5_agent_restart_with_open_connections", Need::Python, r5_agent_restart),
];

const STREAM_END: &str = "0\r\n\r\n";

/// One request, its answer read to the end. A new connection each.
fn ask(port: u16, id: &str, streaming: bool) -> Result<()> {
    let mut raw = Raw::connect(port)?;
    raw.send(chat(id, streaming))?;
    raw.until(if streaming { STREAM_END } else { "}}" }).map(drop)
}

/// The answer goes through a copy of the descriptor that the request came by.
fn dup(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("dup", dir)?;
    let mut raw = Raw::connect(peer.port)?;
    for number in 0..20 {
        raw.send(chat(&format!("d{number}"), true))?;
        raw.until(STREAM_END)?;
    }
    expect_all(watch, &mut peer, &[], 20, dir)
}

/// A process reads the request, its child writes the answer.
fn fork(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("fork_answer", dir)?;
    for number in 0..20 {
        ask(peer.port, &format!("f{number}"), number % 2 == 0)?;
    }
    expect_all(watch, &mut peer, &[], 20, dir)
}

/// Each connection has a process of its own that is gone long before anyone looks at `/proc`.
fn r18_short_lived_processes(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("fork_each", dir)?;
    for number in 0..200 {
        ask(peer.port, &format!("s{number}"), number % 2 == 0)?;
    }
    expect_all(watch, &mut peer, &[], 200, dir)
}

/// Workers share a listener, and a new one comes while the agent looks.
fn r19_prefork_workers(dir: &Path) -> Result<()> {
    let (mut peer, mut watch) = odd("prefork", dir)?;
    for number in 0..40 {
        ask(peer.port, &format!("w{number}"), number % 2 == 0)?;
    }
    let records = watch.records(peer.port, 40)?;
    let old = children(peer.process.pid())?;
    let foreign = records.iter().find(|record| !old.contains(&record.pid));
    ensure!(foreign.is_none(), "not a worker's ({old:?}): {foreign:#?}");
    for pid in &old {
        let pid = i32::try_from(*pid).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("a pid is positive"), Signal::KILL)?;
    }
    wait::until("new workers", Duration::from_secs(10), || {
        let now = children(peer.process.pid())?;
        Ok((now.len() == 4 && now.is_disjoint(&old)).then_some(()))
    })?;
    for number in 40..80 {
        ask(peer.port, &format!("w{number}"), number % 2 == 0)?;
    }
    expect_all(watch, &mut peer, &[], 80, dir)
}

fn children(pid: u32) -> Result<std::collections::BTreeSet<u32>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    text.split_whitespace().map(|child| child.parse().map_err(Into::into)).collect()
}

/// A listener that came through `exec`, and then goes through another one while it is watched.
fn r44_inherited_listener_and_exec(dir: &Path) -> Result<()> {
    let mut peer = Peer::python("odd.py", &["inherited"], dir)?;
    let watch = Watch::ports(&[peer.port], dir)?;
    for number in 0..10 {
        ask(peer.port, &format!("i{number}"), true)?;
    }
    expect_all(watch, &mut peer, &[], 10, dir)?;
    let (mut peer, watch) = odd("exec_on_signal", dir)?;
    let ask_some = |from: u32| (from..from + 10).try_for_each(|n| ask(peer.port, &format!("e{n}"), true));
    ask_some(0)?;
    let image = std::fs::read(format!("/proc/{}/cmdline", peer.process.pid()))?;
    peer.process.signal(Signal::USR1)?;
    wait::until("the new image", Duration::from_secs(10), || {
        Ok((std::fs::read(format!("/proc/{}/cmdline", peer.process.pid()))? != image).then_some(()))
    })?;
    ask_some(10)?;
    expect_all(watch, &mut peer, &[], 20, dir)
}

/// The process that accepted is gone; what the one it passed the connection to does is that one's.
fn r56_descriptor_passed_on(dir: &Path) -> Result<()> {
    let (mut peer, mut watch) = odd("rights", dir)?;
    for number in 0..20 {
        ask(peer.port, &format!("r{number}"), number % 2 == 0)?;
    }
    let records = watch.records(peer.port, 20)?;
    let pids: std::collections::BTreeSet<u32> = records.iter().map(|record| record.pid).collect();
    ensure!(pids.len() == 1, "one process answered all, the records name {pids:?}");
    expect_all(watch, &mut peer, &[], 20, dir)
}

/// The same descriptor number, another connection, at once; some of them are left without an answer.
fn fd_reuse(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("one_by_one", dir)?;
    let mut expected = Vec::new();
    for number in 100..160 {
        let id = format!("f{number}");
        match number % 3 {
            0 => {
                let mut raw = Raw::connect(peer.port)?;
                raw.send(post("/reluctant", &id, "", "{}"))?;
                raw.rest();
                expected.push(format!("{id} POST /reluctant - truncated"));
            }
            1 => {
                let mut raw = Raw::connect(peer.port)?;
                raw.send(plain("GET", "/none", &id))?;
                raw.until("\r\n\r\n")?;
                expected.push(format!("{id} GET /none 204 ok"));
            }
            _ => {
                ask(peer.port, &id, true)?;
                expected.push(format!("{id} POST /v1/chat/completions 200 ok"));
            }
        }
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    expect_facts(watch, &mut peer, &expected).map(drop)
}

/// More connections than any table of the agent has entries, one after the other and all of them closed: the last is
/// seen as the first was.
fn r46_r54_many_connections(dir: &Path) -> Result<()> {
    const COUNT: usize = 9000;
    let mut peer = crate::servers::hyper(dir)?;
    let watch = Watch::ports(&[peer.port], dir)?;
    for number in 0..COUNT {
        let mut raw = Raw::connect(peer.port)?;
        raw.send(chat(&format!("m{number}"), false))?;
        raw.until("}}")?;
    }
    expect_all(watch, &mut peer, &[], COUNT, dir)
}

/// Method and path are known from the first request that is read whole; before that the record says what it is.
fn r16_connection_older_than_the_agent(dir: &Path) -> Result<()> {
    let mut peer = Peer::python("odd.py", &["threads"], dir)?;
    let mut raw = Raw::connect(peer.port)?;
    raw.send(chat("before", true))?;
    raw.until(STREAM_END)?;
    let watch = Watch::ports(&[peer.port], dir)?;
    for id in ["b", "c"] {
        raw.send(chat(id, true))?;
        raw.until(STREAM_END)?;
    }
    let expected =
        ["b POST /v1/chat/completions 200 ok [\"mid_stream\"]", "c POST /v1/chat/completions 200 ok"];
    expect_facts(watch, &mut peer, &expected).map(drop)
}

/// Connections outlive the agent; the next agent sees them too, and takes no answer that runs for a whole one.
fn r5_agent_restart(dir: &Path) -> Result<()> {
    let (mut peer, mut watch) = odd("threads", dir)?;
    let mut kept = Raw::connect(peer.port)?;
    kept.send(chat("a", true))?;
    kept.until(STREAM_END)?;
    let mut running = Raw::connect(peer.port)?;
    let gate = dir.join("gate");
    let header = format!("x-gate: {}\r\n", gate.display());
    running.send(post("/gated", "b", &header, &stacks::raw::body(true, 8)))?;
    watch.records(peer.port, 1)?;
    watch.agent.process.kill(Duration::from_secs(10))?;
    drop(watch);
    let watch = Watch::ports(&[peer.port], dir)?;
    std::fs::write(&gate, "")?;
    running.until(STREAM_END)?;
    for (raw, id) in [(&mut kept, "c"), (&mut running, "d")] {
        raw.send(chat(id, true))?;
        raw.until(STREAM_END)?;
    }
    // The request of the running answer was read before: what it was is not known, that it was answered is.
    let expected = [
        "- - - 200 ok [\"mid_stream\"]",
        "c POST /v1/chat/completions 200 ok [\"mid_stream\"]",
        "d POST /v1/chat/completions 200 ok",
    ];
    expect_facts(watch, &mut peer, &expected).map(drop)
}
