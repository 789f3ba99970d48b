//! Connections that are older than the agent, or than its look at their service. Named after the row of the catalogue of
//! known bugs (`rN_…`).

use std::net::TcpStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};
use rustix::process::Signal;
use stacks::machine::Need;
use stacks::peer::Peer;
use stacks::raw::{Raw, body, chat, post};
use stacks::watch::Watch;
use system::agent::Status;

use crate::Test;
use crate::http::expect_facts;

pub(crate) const TESTS: &[(&str, Need, Test)] =
    &[("r16_connections_older_than_the_agent", Need::Python, r16_older)];

const STREAM_END: &str = "0\r\n\r\n";

/// Four connections before the agent: one idle after an answer, one on which nothing was ever sent, one that stopped
/// within a request, one that waits for its answer. All are known before another byte moves; method and path are known
/// from the first request that is read whole; before that the record says what it is. Then a service that comes later.
fn r16_older(dir: &Path) -> Result<()> {
    let mut peer = Peer::python("odd.py", &["threads"], dir)?;
    let (mut idle, mut silent) = (Raw::connect(peer.port)?, Raw::connect(peer.port)?);
    let (mut stalled, mut unanswered) = (Raw::connect(peer.port)?, Raw::connect(peer.port)?);
    idle.send(chat("before", true))?;
    idle.until(STREAM_END)?;
    let request = chat("stalled", true);
    let (begin, rest) = request.split_at(request.len() - 20);
    stalled.send(begin)?;
    let gate = dir.join("gate");
    unanswered.send(post("/gated", "gated", &format!("x-gate: {}\r\n", gate.display()), &body(true, 8)))?;
    wait_read(peer.port)?;
    let (later, port) = later()?;
    let mut watch =
        Watch::launch(&[peer.port, port].map(|port| ["--port".to_owned(), port.to_string()]).concat(), dir)?;
    watch.wait_ports(&[peer.port])?;
    watch.wait_status("the older connections", |status| before(status) == 4)?;
    let moved = watch.agent.status()?.health.ignored;
    ensure!(moved.is_empty(), "something moved before they were known: {moved:?}");
    for raw in [&mut idle, &mut silent] {
        for id in ["b", "c"] {
            raw.send(chat(id, true))?;
            raw.until(STREAM_END)?;
        }
    }
    stalled.send(rest)?;
    stalled.until(STREAM_END)?;
    std::fs::write(&gate, "")?;
    unanswered.until(STREAM_END)?;
    watch.records(peer.port, 6)?;
    comes_later(&mut watch, &later, port)?;
    ensure!(before(&watch.agent.status()?) == 5, "connections count twice");
    let metrics = watch.agent.metrics_text()?;
    ensure!(metrics.lines().any(|line| line.starts_with("stagelens_older_connections{")), "{metrics}");
    let whole = "c POST /v1/chat/completions 200 ok";
    let first = "b POST /v1/chat/completions 200 ok [\"mid_stream\"]";
    let unread = "- - - 200 ok [\"mid_stream\"]";
    expect_facts(watch, &mut peer, &[unread, unread, first, first, whole, whole]).map(drop)
}

/// Older connections of all services: this process and the peer that it has started are one.
fn before(status: &Status) -> u64 {
    status.services.iter().map(|service| service.connections_before).sum()
}

/// A socket with a port, on which this process may listen later.
fn later() -> Result<(std::os::fd::OwnedFd, u16)> {
    // Not for programs that this one starts: they would be its servers too.
    let later = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&later, &std::net::SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let port = std::net::SocketAddr::try_from(getsockname(&later)?)?.port();
    Ok((later, port))
}

/// While the agent stands still, this process becomes a server and is connected to: it finds both at once.
fn comes_later(watch: &mut Watch, later: &std::os::fd::OwnedFd, port: u16) -> Result<()> {
    watch.agent.process.signal(Signal::STOP)?;
    listen(later, 8)?;
    let client = TcpStream::connect(("127.0.0.1", port)).context("nobody listens")?;
    let served = rustix::net::accept(later)?;
    watch.agent.process.signal(Signal::CONT)?;
    watch.wait_ports(&[port])?;
    watch.wait_status("the connection of the service that came", |status| before(status) == 5)?;
    drop((client, served));
    Ok(())
}

/// Waits until the server has read everything that was sent to it: no byte waits in a socket of its port.
fn wait_read(port: u16) -> Result<()> {
    system::wait::until("the server to read", std::time::Duration::from_secs(10), || {
        let table = std::fs::read_to_string("/proc/net/tcp")?;
        Ok((!table.lines().any(|line| has_unread(line, port))).then_some(()))
    })
}

/// A line of `/proc/net/tcp`: an open connection of this local port with unread bytes.
fn has_unread(line: &str, port: u16) -> bool {
    const ESTABLISHED: &str = "01";
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, local, _, state, queues, ..] = words[..] else { return false };
    let unread = queues.split(':').nth(1).is_some_and(|unread| unread.bytes().any(|b| b != b'0'));
    local.ends_with(&format!(":{port:04X}")) && state == ESTABLISHED && unread
}
