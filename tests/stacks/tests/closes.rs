//! Who ends a connection, and how: resets, sockets whose last holder is another process, processes without their first
//! thread, and connections that carry a request before they are there.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use stacks::machine::Need;
use stacks::peer::{self, Peer};
use stacks::raw::{self, Raw, chat, post};
use stacks::watch::Watch;
use system::process::Process;
use system::{host, wait};

use crate::http::{expect_facts, odd};
use crate::{Test, expect_all};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("server_resets", Need::Python, server_resets),
    ("request_read_after_a_reset", Need::Python, request_read_after_a_reset),
    ("unix_server_closes", Need::Python, unix_server_closes),
    ("fork_and_leave", Need::Python, fork_and_leave),
    ("first_thread_ends", Need::Python, first_thread_ends),
    ("fast_open", Need::Python, fast_open),
];

/// How long something may take that needs a processor.
const LIMIT: Duration = Duration::from_mins(1);
const STREAM_END: &str = "0\r\n\r\n";

/// The server closes while more of the request has come than it read, or does not linger: the kernel sends a reset.
fn server_resets(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    for (id, path) in [("a", "/gives_up"), ("b", "/refuses"), ("c", "/lingers_not")] {
        let mut raw = Raw::connect(peer.port)?;
        let head = post(path, id, "", "").replace("content-length: 0", "content-length: 9000000");
        // More than the server reads at once. It may be gone before all is sent.
        let _ = raw.send(head + &"x".repeat(100_000));
        raw.rest();
    }
    let expected = [
        "a POST /gives_up 200 truncated",
        "b POST /refuses 413 client_4xx",
        "c POST /lingers_not 200 truncated",
    ];
    expect_facts(watch, &mut peer, &expected).map(drop)
}

/// The server is busy while a client sends its next request and is gone: it reads it all the same. Whether it then
/// answers in vain or only closes, the request is one that the client left.
fn request_read_after_a_reset(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    for (id, next) in [("a", chat("a-next", false)), ("b", post("/reluctant", "b-next", "", "{}"))] {
        let gate = dir.join(id);
        let header = format!("x-gate: {}\r\n", gate.display());
        let mut raw = Raw::connect(peer.port)?;
        raw.send(post("/pauses", id, &header, &raw::body(false, 8)))?;
        raw.until("}}")?;
        raw.send(next)?;
        raw.reset()?;
        std::fs::write(&gate, "")?;
    }
    let expected = [
        "a POST /pauses 200 ok",
        "a-next POST /v1/chat/completions - client_disconnect",
        "b POST /pauses 200 ok",
        "b-next POST /reluctant - client_disconnect",
    ];
    expect_facts(watch, &mut peer, &expected).map(drop)
}

/// Nothing tells of the close of a unix socket but the client, which nobody watches, reading the end. It is told at once.
fn unix_server_closes(dir: &Path) -> Result<()> {
    // Their names are short.
    let path = std::env::temp_dir().join(format!("stacks-odd-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mut command = peer::python("odd.py", &["threads"])?;
    command.env("UDS", &path);
    let mut peer = Peer::start("odd", command, dir)?;
    let pid = peer.process.pid();
    let mut watch = Watch::launch(&["--pid".to_owned(), pid.to_string()], dir)?;
    watch.wait_pid(pid)?;
    let requests = [
        ("a", "/until_close", "200 ok"),
        ("b", "/halfway", "200 truncated"),
        ("c", "/reluctant", "- truncated"),
        ("d", "/refuses", "413 client_4xx"),
        ("e", "/until_close", "200 ok"),
    ];
    let mut expected = Vec::new();
    for (id, path_of, outcome) in requests {
        let mut raw = Raw::connect_unix(&path)?;
        raw.send(post(path_of, id, "", "{}"))?;
        raw.rest();
        expected.push(format!("{id} POST {path_of} {outcome}"));
        let records = watch.records(peer.port, expected.len())?;
        ensure!(records.len() == expected.len(), "the end of {id} was not seen: {records:#?}");
    }
    let _ = std::fs::remove_file(&path);
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    expect_facts(watch, &mut peer, &expected).map(drop)
}

/// A process reads a request, and ends; the child that it left has the connection, answers, and reads the next one.
fn fork_and_leave(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("fork_leave", dir)?;
    for connection in 0..10 {
        let mut raw = Raw::connect(peer.port)?;
        for number in 0..3 {
            let is_stream = number % 2 == 0;
            raw.send(chat(&format!("l{connection}-{number}"), is_stream))?;
            raw.until(if is_stream { STREAM_END } else { "}}" })?;
        }
    }
    expect_all(watch, &mut peer, &[], 30, dir)
}

/// The first thread of a process stands for it in the kernel, and need not live as long: it may have ended before the
/// agent comes, or while it watches.
fn first_thread_ends(dir: &Path) -> Result<()> {
    let ask = |peer: &Peer, id: &str| -> Result<()> {
        let mut raw = Raw::connect(peer.port)?;
        raw.send(chat(id, true))?;
        raw.until(STREAM_END).map(drop)
    };
    for is_before in [true, false] {
        let mut peer = Peer::python("odd.py", &["first_thread_ends"], dir)?;
        if is_before {
            end_first_thread(&peer)?;
        }
        let watch = Watch::ports(&[peer.port], dir)?;
        ask(&peer, "a")?;
        if !is_before {
            end_first_thread(&peer)?;
        }
        (0..10).try_for_each(|number| ask(&peer, &format!("b{number}")))?;
        expect_all(watch, &mut peer, &[], 11, dir)?;
    }
    Ok(())
}

fn end_first_thread(peer: &Peer) -> Result<()> {
    peer.process.signal(Signal::USR1)?;
    let stat = format!("/proc/{}/stat", peer.process.pid());
    wait::until("the first thread to end", LIMIT, || {
        Ok(std::fs::read_to_string(&stat)?.contains(") Z ").then_some(()))
    })
}

/// TCP Fast Open: a request comes with the first segment, and is read and answered before the handshake is complete.
fn fast_open(dir: &Path) -> Result<()> {
    const PORT: u16 = 8000;
    // On both sides, and without the cookie that would be asked for first.
    const SETTING: &str = "/proc/sys/net/ipv4/tcp_fastopen";
    let python = peer::python("odd.py", &["threads"])?;
    let mut command = Command::new(host::tool("unshare")?);
    let script = format!("echo 1543 > {SETTING} && ip link set lo up && exec \"$@\"");
    command.args(["--net", "sh", "-c", &script, "sh"]);
    command.arg(python.get_program()).args(python.get_args());
    command.env("PORT", PORT.to_string()).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut peer = Peer::start("odd", command, dir)?;
    let pid = peer.process.pid();
    let mut watch = Watch::launch(&["--pid".to_owned(), pid.to_string()], dir)?;
    watch.wait_pid(pid)?;
    for number in 0..3 {
        let gate = dir.join(format!("gate-{number}"));
        let (early, next) = (format!("e{number}"), format!("n{number}"));
        let client = peer::python("early.py", &[&PORT.to_string(), &early, &next])?;
        let mut command = Command::new(host::tool("nsenter")?);
        command.arg(format!("--net=/proc/{pid}/ns/net")).arg(client.get_program());
        command.args(client.get_args()).arg(&gate);
        let mut client = Process::start(&format!("early-{number}"), command, dir)?;
        wait::until("the early answer", LIMIT, || {
            let truths = peer.truth()?;
            Ok(truths.iter().any(|truth| truth.request_id.as_ref() == Some(&early)).then_some(()))
        })?;
        std::fs::write(&gate, "")?;
        let status = client.wait(LIMIT).context("the client does not end")?;
        ensure!(status.success(), "the client failed: {status}");
    }
    expect_all(watch, &mut peer, &[], 6, dir)
}
