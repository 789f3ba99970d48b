//! Whose connection it is: descriptors that are copied, passed on, reused and inherited. Named after the rows of the
//! catalogue of known bugs (`rN_…`) where there is one.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use stacks::compare::Report;
use stacks::machine::Need;
use stacks::peer::Peer;
use stacks::raw::{Raw, chat, plain, post};
use stacks::watch::Watch;
use system::agent::Record;
use system::{host, wait};

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
    ("r4_r46_r54_many_connections", Need::Nothing, r4_r46_r54_many_connections),
    ("two_namespaces_with_one_address", Need::Python, two_namespaces_with_one_address),
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

/// One-shot connections: each is answered, none gets a status that nobody sent, and nothing stays of them, neither in
/// the kernel's table nor in the agent's memory.
fn r4_r46_r54_many_connections(dir: &Path) -> Result<()> {
    const COUNT: usize = 10_000;
    const FIRST: usize = 2000;
    let mut peer = crate::servers::hyper(dir)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    let agent = watch.agent.process.pid();
    let some = |range: std::ops::Range<usize>| {
        range.into_iter().try_for_each(|number| {
            let mut raw = Raw::connect(peer.port)?;
            raw.send(chat(&format!("m{number}"), false))?;
            raw.until("}}").map(drop)
        })
    };
    some(0..FIRST)?;
    watch.records(peer.port, FIRST)?;
    let memory = crate::http::rss(agent)?;
    some(FIRST..COUNT)?;
    watch.records(peer.port, COUNT)?;
    let grown = crate::http::rss(agent)?.saturating_sub(memory);
    // Finished requests are kept for `requests`: 2096 more of them, a kilobyte or two each.
    ensure!(grown < 8 << 20, "{COUNT} connections made the agent grow by {grown} bytes");
    wait::until("the kernel to forget closed connections", Duration::from_secs(10), || {
        Ok((sockets_known(agent)? < 100).then_some(()))
    })?;
    expect_all(watch, &mut peer, &[], COUNT, dir)
}

/// Entries of the agent's table of sockets in the kernel.
fn sockets_known(agent: u32) -> Result<usize> {
    Ok(map_entries(agent, "SOCKS")?.len())
}

/// Entries of a table that the agent has in the kernel.
pub(crate) fn map_entries(agent: u32, name: &str) -> Result<Vec<serde_json::Value>> {
    let bpftool = |arguments: &[&str]| -> Result<serde_json::Value> {
        let output = std::process::Command::new(host::tool("bpftool")?).arg("-j").args(arguments).output()?;
        serde_json::from_slice(&output.stdout).context("bpftool speaks no JSON")
    };
    for fd in std::fs::read_dir(format!("/proc/{agent}/fdinfo"))?.flatten() {
        let info = std::fs::read_to_string(fd.path()).unwrap_or_default();
        let Some(id) = info.lines().find_map(|line| line.strip_prefix("map_id:")) else { continue };
        if bpftool(&["map", "show", "id", id.trim()])?["name"] == name {
            return Ok(bpftool(&["map", "dump", "id", id.trim()])?.as_array().cloned().unwrap_or_default());
        }
    }
    anyhow::bail!("the agent has no table {name}")
}

/// Two pods: the same address, the same port, and clients from the same port at the same time.
fn two_namespaces_with_one_address(dir: &Path) -> Result<()> {
    const PORT: u16 = 8000;
    let unshare = host::tool("unshare")?;
    let start = |name: &str| {
        let python = stacks::peer::python("odd.py", &["threads"])?;
        let mut command = std::process::Command::new(&unshare);
        command.args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
        command.arg(python.get_program()).args(python.get_args());
        command.env("PORT", PORT.to_string()).env("PYTHONDONTWRITEBYTECODE", "1");
        Peer::start(name, command, dir)
    };
    let mut pods = [start("one")?, start("other")?];
    let pids = pods.each_ref().map(|pod| pod.process.pid());
    let arguments: Vec<String> = pids.iter().flat_map(|pid| ["--pid".to_owned(), pid.to_string()]).collect();
    let mut watch = Watch::launch(&arguments, dir)?;
    pids.iter().try_for_each(|pid| watch.wait_pid(*pid))?;
    let mut clients = Vec::new();
    for (pod, pid) in pids.iter().enumerate() {
        clients.push((pod, inside(*pid, || Raw::connect_from(40_000, PORT))?));
    }
    for number in 0..20 {
        for (pod, raw) in &mut clients {
            raw.send(chat(&format!("pod-{pod}-{number}"), number % 2 == 0))?;
        }
        for (_, raw) in &mut clients {
            raw.until(if number % 2 == 0 { STREAM_END } else { "}}" })?;
        }
    }
    watch.records(PORT, 40)?;
    let records = watch.finish(PORT)?;
    for (pod, peer) in pods.iter_mut().enumerate() {
        peer.stop()?;
        let own: Vec<Record> = records.iter().filter(|r| r.pid == pids[pod]).cloned().collect();
        let foreign = format!("pod-{}", 1 - pod);
        let strays = own.iter().filter(|r| r.request_id.as_deref().unwrap_or_default().starts_with(&foreign));
        ensure!(strays.count() == 0, "requests of one are the other one's: {own:#?}");
        crate::judge(&Report::new(&peer.truth()?, &[], &own), 20, dir)?;
    }
    Ok(())
}

/// Does something in the network namespace of a process.
fn inside<T: Send>(pid: u32, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let namespace = std::fs::File::open(format!("/proc/{pid}/ns/net"))?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            act()
        });
        thread.join().map_err(|_| anyhow::anyhow!("it panicked"))?
    })
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
    let mut streaming = Raw::connect(peer.port)?;
    streaming.send(post("/endless/v1/chat/completions", "e", "", &stacks::raw::body(true, 8)))?;
    streaming.until("lorem")?;
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
    streaming.until("lorem")?;
    drop(streaming);
    // The requests of the running answers were read before: what they were is not known, how they ended is.
    let expected = [
        "- - - 200 ok [\"mid_stream\"]",
        "- - - - client_disconnect [\"mid_stream\"]",
        "c POST /v1/chat/completions 200 ok [\"mid_stream\"]",
        "d POST /v1/chat/completions 200 ok",
    ];
    expect_facts(watch, &mut peer, &expected).map(drop)
}
