//! Real clients against a real server: what they put where, and what they do that simple ones do not.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stacks::machine::Need;
use stacks::peer::{self, Peer};
use stacks::watch::Watch;
use system::host;
use system::process::Process;

use crate::Test;

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("client_openai", Need::Python, client_openai),
    ("client_openai_responses", Need::Python, client_openai_responses),
    ("client_anthropic", Need::Python, client_anthropic),
    ("client_ollama", Need::Python, client_ollama),
    ("client_httpx", Need::Python, client_httpx),
    ("client_requests_chunked", Need::Python, client_requests_chunked),
    ("client_httpx_deadline", Need::Python, client_httpx_deadline),
    ("every_api", Need::Python, every_api),
    ("curl_expect_100_continue", Need::Curl, curl_expect_100_continue),
];

const COUNT: usize = 60;
const LIMIT: Duration = Duration::from_mins(1);

fn client_openai(dir: &Path) -> Result<()> {
    serve("openai", dir)
}

fn client_openai_responses(dir: &Path) -> Result<()> {
    serve("responses", dir)
}

/// Text, thinking and a tool's input by turns, with pings between.
fn client_anthropic(dir: &Path) -> Result<()> {
    serve("anthropic", dir)
}

/// It asks for a stream by saying nothing.
fn client_ollama(dir: &Path) -> Result<()> {
    serve("ollama", dir)
}

fn client_httpx(dir: &Path) -> Result<()> {
    serve("httpx", dir)
}

/// It sends its body in chunks.
fn client_requests_chunked(dir: &Path) -> Result<()> {
    serve("requests", dir)
}

/// A client library's own limit of time. What it is shows after some requests, and is not overestimated by what the
/// library needs to act on it.
fn client_httpx_deadline(dir: &Path) -> Result<()> {
    const LIMIT_S: f64 = 0.4;
    const REQUESTS: usize = 8;
    let (mut server, mut watch) = crate::http::odd("threads", dir)?;
    let arguments = ["deadline", &server.port.to_string(), &REQUESTS.to_string()];
    let mut client = Process::start("client", peer::python("client.py", &arguments)?, dir)?;
    let status = client.wait(LIMIT)?;
    ensure!(status.success(), "the client ended with {status}: {}", client.log());
    let records = watch.records(server.port, REQUESTS)?;
    let outcomes: Vec<&str> = records.iter().filter_map(|record| record.outcome.as_deref()).collect();
    let known = outcomes.iter().all(|outcome| matches!(*outcome, "client_disconnect" | "timeout"));
    ensure!(records.len() == REQUESTS && known, "{records:#?}");
    let last = records.last().context("a record")?;
    let deadline = last.client_deadline_s.context("no deadline, though all gave up alike")?;
    // The library gives up late, never early, and later on a busy machine.
    ensure!(last.outcome.as_deref() == Some("timeout"), "{outcomes:?}");
    ensure!((LIMIT_S - 0.001..2.0 * LIMIT_S).contains(&deadline), "{deadline} s: {last:#?}");
    watch.finish(server.port)?;
    server.stop()
}

/// Every API that is understood, streams and whole answers, with every way to end that it has; and servers that nobody
/// knows.
fn every_api(dir: &Path) -> Result<()> {
    const WAYS: usize = 20;
    const APIS: usize = 18;
    serve_with("every", WAYS, WAYS * APIS, dir)
}

fn uvicorn(dir: &Path) -> Result<Peer> {
    Peer::python("asgi.py", &["raw", "uvloop", "httptools"], dir)
}

fn serve(client: &str, dir: &Path) -> Result<()> {
    serve_with(client, COUNT, COUNT, dir)
}

/// The client is told `count`, and sends so many `requests`.
fn serve_with(client: &str, count: usize, requests: usize, dir: &Path) -> Result<()> {
    let mut server = uvicorn(dir)?;
    let watch = Watch::ports(&[server.port], dir)?;
    let arguments = [client, &server.port.to_string(), &count.to_string()];
    let mut client = Process::start("client", peer::python("client.py", &arguments)?, dir)?;
    let status = client.wait(LIMIT)?;
    ensure!(status.success(), "the client ended with {status}: {}", client.log());
    crate::expect_all(watch, &mut server, &[], requests, dir)
}

/// A body of a megabyte that is only sent after `100 Continue`.
fn curl_expect_100_continue(dir: &Path) -> Result<()> {
    let mut server = uvicorn(dir)?;
    let watch = Watch::ports(&[server.port], dir)?;
    let body = dir.join("body.json");
    let prompt = "hello ".repeat(200_000);
    fs::write(
        &body,
        format!(
            r#"{{"messages":[{{"role":"user","content":"{prompt}"}}],"model":"curl-model","max_tokens":8,"stream":true}}"#
        ),
    )?;
    for number in 0..4 {
        let mut curl = Command::new(host::tool("curl")?);
        curl.args(["--silent", "--show-error", "--fail", "--max-time", "20", "--http1.1"])
            .args(["-H", "Expect: 100-continue", "-H", "Content-Type: application/json"])
            .args(["-H", &format!("x-request-id: curl-{number}"), "--data-binary"])
            .arg(format!("@{}", body.display()))
            .arg("--trace-ascii")
            .arg(dir.join("curl.trace"))
            .arg(format!("http://127.0.0.1:{}/v1/chat/completions", server.port))
            .stdout(std::process::Stdio::null());
        let mut curl = Process::start("curl", curl, dir)?;
        let status = curl.wait(LIMIT)?;
        ensure!(status.success(), "curl ended with {status}: {}", curl.log());
    }
    let trace = fs::read_to_string(dir.join("curl.trace"))?;
    ensure!(trace.contains("100 Continue"), "the server did not ask to continue: the test would be empty");
    crate::expect_all(watch, &mut server, &[], 4, dir)
}
