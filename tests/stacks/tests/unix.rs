//! Unix sockets between client and server.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use stacks::machine::Need;
use stacks::peer::{self, Peer};
use stacks::raw::{self, Raw, chat, post};
use stacks::watch::Watch;

use crate::nested::{end, finish, judge, nginx, nginx_with};
use crate::servers::load;
use crate::{Test, expect_all};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("unix_uvicorn", Need::Python, unix_uvicorn),
    ("unix_client_leaves", Need::Python, unix_client_leaves),
    ("unix_behind_nginx", Need::Nginx, unix_behind_nginx),
    ("unix_behind_nginx_of_http_1_0", Need::Nginx, unix_behind_nginx_of_http_1_0),
];

const STREAM_END: &str = "0\r\n\r\n";

/// uvicorn on a unix socket, and the socket.
fn uvicorn(dir: &Path) -> Result<(Peer, PathBuf)> {
    // Their names are short.
    let path = std::env::temp_dir().join(format!("stacks-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mut command = peer::python("asgi.py", &["raw", "uvloop", "httptools"])?;
    command.env("UDS", &path);
    Ok((Peer::start("asgi", command, dir)?, path))
}

fn watch(pid: u32, more: &[String], dir: &Path) -> Result<Watch> {
    let mut watch = Watch::launch(&[&["--pid".to_owned(), pid.to_string()], more].concat(), dir)?;
    watch.wait_pid(pid)?;
    Ok(watch)
}

/// Streams and whole answers, connections that are kept, that are not, and one that is older than the agent.
fn unix_uvicorn(dir: &Path) -> Result<()> {
    let (mut peer, path) = uvicorn(dir)?;
    let mut kept = Raw::connect_unix(&path)?;
    let mut watch = watch(peer.process.pid(), &[], dir)?;
    for number in 0..40 {
        let is_stream = number % 2 == 0;
        let mut fresh = Raw::connect_unix(&path)?;
        for (raw, name) in [(&mut kept, "kept"), (&mut fresh, "fresh")] {
            raw.send(chat(&format!("{name}-{number}"), is_stream))?;
            raw.until(if is_stream { STREAM_END } else { "}}" })?;
        }
    }
    let records = watch.records(peer.port, 80)?;
    let wrong = records.iter().find(|r| r.arrival.as_deref() != Some("read") || r.local_port.is_some());
    ensure!(wrong.is_none(), "it arrived when it was read, and on no port: {wrong:#?}");
    expect_all(watch, &mut peer, &[], 80, dir)
}

/// In the middle of a stream; the connection's place in the kernel is another one's afterwards.
fn unix_client_leaves(dir: &Path) -> Result<()> {
    let (mut peer, path) = uvicorn(dir)?;
    let mut watch = watch(peer.process.pid(), &[], dir)?;
    for number in 0..5 {
        let mut raw = Raw::connect_unix(&path)?;
        raw.send(post("/v1/chat/completions", &format!("l{number}"), "", &raw::body(true, 2000)))?;
        raw.until("lorem")?;
        drop(raw);
        let mut raw = Raw::connect_unix(&path)?;
        raw.send(chat(&format!("s{number}"), true))?;
        raw.until(STREAM_END)?;
    }
    let records = watch.records(peer.port, 10)?;
    let outcome = |id: String| {
        let record = records.iter().find(|r| r.request_id.as_deref() == Some(&id)).context("no record")?;
        record.outcome.clone().context("no outcome")
    };
    for number in 0..5 {
        let said = (outcome(format!("l{number}"))?, outcome(format!("s{number}"))?);
        ensure!(said == ("client_disconnect".into(), "ok".into()), "{number}: {said:?}");
    }
    drop(watch);
    peer.stop()
}

/// Clients talk to nginx by TCP, nginx to uvicorn by a unix socket: one request each.
fn unix_behind_nginx(dir: &Path) -> Result<()> {
    let (behind, path) = uvicorn(dir)?;
    let front = nginx("nginx", &format!("unix:{}", path.display()), dir)?;
    behind_nginx(front, behind, dir)
}

/// As nginx talks when it is not told otherwise: the end of the connection is that of a stream.
fn unix_behind_nginx_of_http_1_0(dir: &Path) -> Result<()> {
    const OLD: &str =
        "location /v1/ { proxy_pass http://behind; proxy_http_version 1.0; proxy_buffering off; }";
    let (behind, path) = uvicorn(dir)?;
    let front = nginx_with("nginx", &format!("unix:{}", path.display()), ["", OLD], 1, dir)?;
    behind_nginx(front, behind, dir)
}

fn behind_nginx(mut front: Peer, mut behind: Peer, dir: &Path) -> Result<()> {
    let mut watch = watch(behind.process.pid(), &["--port".into(), front.port.to_string()], dir)?;
    watch.wait_ports(&[front.port])?;
    let clients = load(front.port, dir)?;
    let records = finish(watch, front.port, clients.len())?;
    end(&mut front)?;
    behind.stop()?;
    judge(&records, &behind.truth()?, &clients, 1, dir)
}
