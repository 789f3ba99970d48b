//! Which side is the server, where nothing but the bytes tells.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use stacks::machine::Need;
use stacks::peer::{self, Peer};
use stacks::raw::{Raw, chat};
use stacks::watch::Watch;
use system::wait;

use crate::Test;
use crate::http::expect_facts;

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("role_proven_by_bytes", Need::Python, role_proven_by_bytes),
    ("client_is_no_server", Need::Python, client_is_no_server),
];

const STREAM_END: &str = "0\r\n\r\n";

/// Connections that are older than the agent, of a process that listens no more: the first whole request says who
/// serves, and the records say that it was inferred.
fn role_proven_by_bytes(dir: &Path) -> Result<()> {
    let mut peer = Peer::python("odd.py", &["no_listener"], dir)?;
    let mut connections = [Raw::connect(peer.port)?, Raw::connect(peer.port)?];
    wait::until("the listener to be closed", Duration::from_secs(30), || {
        Ok(dir.join("odd.truth.closed").exists().then_some(()))
    })?;
    let pid = peer.process.pid();
    let mut watch = Watch::launch(&["--pid".into(), pid.to_string()], dir)?;
    watch.wait_pid(pid)?;
    let ports = watch.agent.status()?.services.iter().flat_map(|service| service.ports.clone()).count();
    ensure!(ports == 0, "a listener is known: the test would be empty");
    for (number, raw) in connections.iter_mut().enumerate() {
        for turn in 0..3 {
            raw.send(chat(&format!("r{number}{turn}"), true))?;
            raw.until(STREAM_END)?;
        }
    }
    let expected = ["r00", "r01", "r02", "r10", "r11", "r12"].map(|id| {
        let first = if id.ends_with('0') { "\"mid_stream\", " } else { "" };
        format!("{id} POST /v1/chat/completions 200 ok [{first}\"role_guessed\"]")
    });
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    expect_facts(watch, &mut peer, &expected).map(drop)
}

/// The watched process asks somebody else, on a connection older than the agent: its questions are no requests to it.
fn client_is_no_server(dir: &Path) -> Result<()> {
    let mut other = crate::servers::hyper(dir)?;
    let mut command = peer::python("odd.py", &["only_client"])?;
    command.env("OTHER", other.port.to_string());
    let mut peer = Peer::start("client", command, dir)?;
    let knock = || Ok::<_, anyhow::Error>(Raw::connect(peer.port)?.rest());
    knock()?;
    let pid = peer.process.pid();
    let mut watch = Watch::launch(&["--pid".into(), pid.to_string()], dir)?;
    watch.wait_ports(&[peer.port])?;
    for _ in 0..5 {
        knock()?;
    }
    other.stop()?;
    let asked = other.truth()?.len();
    ensure!(asked == 6, "{asked} of 6 questions were asked: the test would be empty");
    watch.agent.stop()?;
    watch.follower.wait_end(Duration::from_secs(30))?;
    let lines = watch.follower.lines();
    ensure!(lines.is_empty(), "records of what the process asked: {lines:#?}");
    peer.stop()
}
