//! Real servers under the same load: streams and whole answers, connections that are kept and that are not, one
//! client and eight.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use stacks::machine::{self, Need};
use stacks::peer::Peer;
use stacks::raw::{Raw, long_chat};
use stacks::watch::Watch;
use system::rig::{ClientView, Load};

use crate::{Test, expect_all};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("uvicorn_uvloop", Need::Python, uvicorn_uvloop),
    ("uvicorn_asyncio", Need::Python, uvicorn_asyncio),
    ("fastapi_threads", Need::Python, fastapi_threads),
    ("aiohttp", Need::Python, aiohttp),
    ("node_http", Need::Node, node_http),
    ("hyper_writev", Need::Nothing, hyper_writev),
    ("pipelining_uvicorn", Need::Python, pipelining_uvicorn),
    ("pipelining_hyper", Need::Nothing, pipelining_hyper),
];

/// Requests of one part of the load.
const PART: u32 = 50;
/// Some lengths ask for errors and other outcomes: see `answer.py`.
const LENGTHS: &str = "3-16";
/// Requests in one write.
const PIPELINED: usize = 10;
const LIMIT: Duration = Duration::from_mins(1);

fn uvicorn_uvloop(dir: &Path) -> Result<()> {
    exercise(Peer::python("asgi.py", &["raw", "uvloop", "httptools"], dir)?, dir)
}

fn uvicorn_asyncio(dir: &Path) -> Result<()> {
    exercise(Peer::python("asgi.py", &["raw", "asyncio", "h11"], dir)?, dir)
}

fn fastapi_threads(dir: &Path) -> Result<()> {
    exercise(Peer::python("asgi.py", &["fastapi", "uvloop", "httptools"], dir)?, dir)
}

fn aiohttp(dir: &Path) -> Result<()> {
    exercise(Peer::python("aio.py", &[], dir)?, dir)
}

fn node_http(dir: &Path) -> Result<()> {
    let mut command = Command::new(machine::node()?);
    command.arg(machine::peers().join("node.js"));
    exercise(Peer::start("node", command, dir)?, dir)
}

pub(crate) fn hyper(dir: &Path) -> Result<Peer> {
    Peer::start("hyper", Command::new(env!("CARGO_BIN_EXE_stacks-hyper")), dir)
}

fn hyper_writev(dir: &Path) -> Result<()> {
    exercise(hyper(dir)?, dir)
}

fn exercise(mut peer: Peer, dir: &Path) -> Result<()> {
    let watch = Watch::ports(&[peer.port], dir)?;
    let clients = load(peer.port, dir)?;
    expect_all(watch, &mut peer, &clients, clients.len(), dir)
}

/// The same load for every server. What the clients saw.
pub(crate) fn load(port: u16, dir: &Path) -> Result<Vec<ClientView>> {
    let mut clients = Vec::new();
    for (seed, concurrency) in [1, 8, 1, 8].into_iter().enumerate() {
        let api = if seed % 2 == 0 { "chat" } else { "completions" };
        let load = Load::requests(concurrency, PART)
            .with("stream-ratio", 0.6)
            .with("output-tokens", LENGTHS)
            .with("keep-alive", seed < 2)
            .with("model", format!("model-{seed}"))
            .with("api", api)
            .with("seed", seed + 1);
        clients.extend(load.start(port, dir)?.finish(LIMIT)?);
    }
    Ok(clients)
}

/// Real servers parse ahead and answer in order.
fn pipelining_uvicorn(dir: &Path) -> Result<()> {
    pipelining(Peer::python("asgi.py", &["raw", "uvloop", "httptools"], dir)?, dir)
}

fn pipelining_hyper(dir: &Path) -> Result<()> {
    pipelining(hyper(dir)?, dir)
}

fn pipelining(mut peer: Peer, dir: &Path) -> Result<()> {
    let watch = Watch::ports(&[peer.port], dir)?;
    let mut raw = Raw::connect(peer.port)?;
    for batch in 0..10 {
        // Twenty-five kilobytes in one write, and as many as the server likes in one read.
        let request = |n| long_chat(&format!("p{batch}-{n}"), n != PIPELINED - 1, 2000 + 100 * n);
        raw.send((0..PIPELINED).map(request).collect::<String>())?;
        let mut answers = String::new();
        // The last of them is a whole answer.
        while answers.matches("HTTP/1.1 200").count() < PIPELINED || !answers.ends_with('}') {
            answers.push_str(&raw.some()?);
        }
    }
    expect_all(watch, &mut peer, &[], 10 * PIPELINED, dir)
}
