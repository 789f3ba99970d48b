//! Text of prompts and credentials goes nowhere.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::rig::{Load, ServerOptions, Shape};
use system::run::Stage;

const LIMIT: Duration = Duration::from_mins(1);
const SECRET: &str = "xyzzy-7f3a-plugh";

/// A secret in prompts, headers and a query string is in no recording, log, answer of the API, or metric.
pub(crate) fn secret_stays(dir: &Path) -> Result<()> {
    let config = dir.join("stagelens.toml");
    // A ring buffer so small that records come to lie where others were.
    fs::write(&config, "[log]\nlevel = \"trace\"\n[ring]\nsize_bytes = 131072\n")?;
    let config = config.to_str().context("the path is UTF-8")?;
    let stage = Stage::set(&ServerOptions::new(Shape::Split), dir, &["--config", config])?;
    let answer = send_by_hand(stage.server.port)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "the server did not take the request: {answer}");
    let api = |stage: &Stage| -> Result<String> {
        Ok(stage.agent.get("/api/v1/requests")? + &stage.agent.get("/api/v1/status")?)
    };
    let early = api(&stage)?;
    let log = dir.join("stagelens.log");
    let load = Load::requests(2, 20).with("secret", SECRET);
    let finished = stage.play("split", &load, dir, LIMIT)?;
    ensure!(finished.report.missed == 0 && finished.report.requests_true > 10, "{:#?}", finished.report);
    let places = [
        ("the recording", fs::read(dir.join("run.slrec"))?),
        ("the log", fs::read(log)?),
        ("the records", finished.lines.join("\n").into_bytes()),
        ("the metrics", finished.metrics.into_bytes()),
        ("the API", early.into_bytes()),
    ];
    for (place, bytes) in places {
        ensure!(!contains(&bytes, SECRET.as_bytes()), "the secret is in {place}");
    }
    Ok(())
}

/// A request with the secret wherever a client may put one.
fn send_by_hand(port: u16) -> Result<String> {
    let body = format!(
        r#"{{"model":"m","max_tokens":4,"user":"{SECRET}","messages":[{{"role":"user","content":"hello {SECRET} bye"}}]}}"#
    );
    let request = format!(
        "POST /v1/chat/completions?api_key={SECRET} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {SECRET}\r\n\
         Cookie: session={SECRET}\r\nX-Api-Key: {SECRET}\r\nX-Request-Id: by-hand\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}
