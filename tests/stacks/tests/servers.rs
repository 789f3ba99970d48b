//! Real servers under the same load: streams and whole answers, connections that are kept and that are not, one
//! client and eight.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use stacks::compare::Report;
use stacks::machine::{self, Need};
use stacks::peer::Peer;
use stacks::raw::{Raw, long_chat};
use stacks::watch::Watch;
use system::host;
use system::rig::{ClientView, Load};

use crate::{Test, expect_all, judge};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("uvicorn_uvloop", Need::Python, uvicorn_uvloop),
    ("uvicorn_asyncio", Need::Python, uvicorn_asyncio),
    ("fastapi_threads", Need::Python, fastapi_threads),
    ("aiohttp", Need::Python, aiohttp),
    ("node_http", Need::Node, node_http),
    ("hyper_writev", Need::Nothing, hyper_writev),
    ("nginx_in_front", Need::Nginx, nginx_in_front),
    ("pipelining_uvicorn", Need::Python, pipelining_uvicorn),
    ("pipelining_hyper", Need::Nothing, pipelining_hyper),
    ("streams_200", Need::Nothing, streams_200),
];

/// Requests of one part of the load.
const PART: u32 = 50;
/// Some lengths ask for errors and other outcomes: see `answer.py`.
const LENGTHS: &str = "3-16";
/// Requests in one write.
const PIPELINED: usize = 10;
const LIMIT: Duration = Duration::from_mins(1);
/// How much earlier a proxy may seem to write than the server behind it: a scheduling slice.
const OVERTAKEN_NS: u64 = 5_000_000;

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
    let mut command = Command::new(host::tool("node")?);
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

/// nginx hands requests on to hyper. Two services watched, so each request is seen at both, and each sight is right.
///
/// The two are two requests to the agent until it joins nested exchanges; then this test expects one, with nginx's
/// times.
fn nginx_in_front(dir: &Path) -> Result<()> {
    let mut behind = hyper(dir)?;
    let mut front = nginx(behind.port, dir)?;
    let mut watch = Watch::ports(&[front.port, behind.port], dir)?;
    let clients = load(front.port, dir)?;
    let inner = watch.records(behind.port, clients.len())?;
    watch.records(front.port, clients.len())?;
    let outer = watch.finish(front.port)?;
    front.process.signal(rustix::process::Signal::TERM)?;
    front.process.wait(LIMIT)?;
    behind.stop()?;
    let truths = behind.truth()?;
    judge(&Report::new(&truths, &[], &inner), clients.len(), dir)?;
    let mut faults = Vec::new();
    for record in &outer {
        let same = inner.iter().find(|inner| inner.request_id == record.request_id);
        let Some(inner) = same else {
            faults.push(format!("no inner record of {record:?}"));
            continue;
        };
        let facts = |r: &system::agent::Record| {
            (r.method.clone(), r.path.clone(), r.model.clone(), r.status, r.outcome.clone(), r.chunks)
        };
        if facts(record) != facts(inner) || record.pid == inner.pid {
            faults.push(format!("outer {record:?}\ninner {inner:?}"));
        }
        // A write is stamped at its end. The proxy, on another core, can have passed the bytes on before that.
        let later = |outer: Option<u64>, inner: Option<u64>| {
            outer.is_some() == inner.is_some() && outer.map(|t| t + OVERTAKEN_NS) >= inner
        };
        if !later(record.t_first_token_ns, inner.t_first_token_ns)
            || !later(record.t_last_byte_out_ns, inner.t_last_byte_out_ns)
        {
            faults.push(format!("the proxy wrote before the server: {record:?}\n{inner:?}"));
        }
    }
    ensure!(outer.len() == clients.len(), "{} outer records of {}", outer.len(), clients.len());
    ensure!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults[..faults.len().min(5)].join("\n"));
    Ok(())
}

/// nginx with one worker in front of a port; its own port is chosen here, as it can't choose one itself.
fn nginx(upstream: u16, dir: &Path) -> Result<Peer> {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let at = dir.display();
    let config = format!(
        "daemon off; master_process on; worker_processes 1; pid {at}/nginx.pid; error_log {at}/nginx.err; user root;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; \
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         upstream behind {{ server 127.0.0.1:{upstream}; keepalive 16; }}\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://behind; proxy_http_version 1.1; \
         proxy_set_header Connection ''; proxy_buffering off; }} }} }}\n"
    );
    let config_file = dir.join("nginx.conf");
    fs::write(&config_file, config)?;
    let mut command = Command::new(host::tool("nginx")?);
    command.arg("-e").arg(dir.join("nginx.err")).arg("-p").arg(dir).arg("-c").arg(&config_file);
    let process = system::process::Process::start("nginx", command, dir)?;
    Peer::listening("nginx", process, port, dir)
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

/// Two hundred streams at fifty events a second each: nothing is lost, and the agent stays small.
///
/// Its CPU time is printed and not judged: it depends on the machine, and on what others start on it.
fn streams_200(dir: &Path) -> Result<()> {
    const STREAMS: u32 = 200;
    const GROWTH: u64 = 8 << 20;
    let mut command = Command::new(env!("CARGO_BIN_EXE_stacks-hyper"));
    command.env("TOKEN_INTERVAL_MS", "20");
    let mut peer = Peer::start("hyper", command, dir)?;
    let watch = Watch::ports(&[peer.port], dir)?;
    let load = Load::requests(STREAMS, 2 * STREAMS).with("output-tokens", 300);
    let agent = &watch.agent.process;
    let (cpu, memory, start) = (agent.cpu_seconds()?, crate::http::rss(agent.pid())?, Instant::now());
    let clients = load.start(peer.port, dir)?.finish(LIMIT)?;
    let share = (agent.cpu_seconds()? - cpu) / start.elapsed().as_secs_f64();
    let grown = crate::http::rss(agent.pid())?.saturating_sub(memory);
    let dropped = watch.agent.status()?.health.dropped();
    writeln!(
        io::stdout().lock(),
        "streams_200: {:.1} % of a core, grown by {} KiB",
        100.0 * share,
        grown / 1024
    )?;
    expect_all(watch, &mut peer, &clients, clients.len(), dir)?;
    ensure!(dropped == 0, "{dropped} records were lost");
    ensure!(grown < GROWTH, "the agent grew by {grown} bytes");
    Ok(())
}
