//! HTTP/1.1 by the calls on sockets that few servers make.

use std::path::Path;

use anyhow::{Result, ensure};
use stacks::machine::Need;
use stacks::raw::{self, Raw, chat, post};

use crate::http::{STREAM_END, expect_facts, odd};
use crate::{Test, expect_all};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("one_byte_a_call", Need::Python, one_byte_a_call),
    ("reads_of_all_kinds", Need::Python, reads_of_all_kinds),
    ("vectored_writes", Need::Python, vectored_writes),
    ("short_and_refused_writes", Need::Python, short_and_refused_writes),
    ("r7_sendfile_and_splice", Need::Python, r7_sendfile_and_splice),
];

/// The request comes byte by byte, and the answer is written so.
fn one_byte_a_call(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let mut raw = Raw::connect(peer.port)?;
    for number in 0..3 {
        let body = raw::body(true, 8);
        let request = post("/one_byte/v1/chat/completions", &format!("b{number}"), "", &body);
        for byte in request.as_bytes() {
            raw.send([*byte])?;
        }
        raw.until(STREAM_END)?;
    }
    expect_all(watch, &mut peer, &[], 3, dir)
}

/// `recv`, `readv` and `recvmsg` in turn, each after a `MSG_PEEK`, which takes nothing.
fn reads_of_all_kinds(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("reads", dir)?;
    let mut raw = Raw::connect(peer.port)?;
    for number in 0..30 {
        // A long prompt before the model's name, so that one request takes several calls.
        let body = raw::body(true, 8).replace("hello", &"hello ".repeat(number * 100));
        raw.send(post("/v1/chat/completions", &format!("r{number}"), "", &body))?;
        raw.until(STREAM_END)?;
    }
    expect_all(watch, &mut peer, &[], 30, dir)
}

/// Calls of 20 segments are read like one buffer; of 60, what is behind the 32nd is a gap of known size.
fn vectored_writes(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let path = "/segments/v1/chat/completions";
    let mut raw = Raw::connect(peer.port)?;
    let mut sizes = Vec::new();
    for (id, streaming) in [("a", true), ("b", false), ("c", true)] {
        raw.send(post(path, id, "", &raw::body(streaming, 16)))?;
        sizes.push(raw.until(if streaming { STREAM_END } else { "}}" })?.len() as u64);
    }
    let expected = [
        "a POST /segments/v1/chat/completions 200 ok",
        "b POST /segments/v1/chat/completions 200 ok",
        "c POST /segments/v1/chat/completions 200 ok",
    ];
    let records = expect_facts(watch, &mut peer, &expected)?;
    let counted: Vec<u64> = records.iter().map(|record| record.bytes_out).collect();
    ensure!(counted == sizes, "bytes out: {counted:?}, the client got {sizes:?}");
    ensure!(records[0].chunks == Some(16) && records[2].chunks == Some(16), "{records:#?}");
    Ok(())
}

/// A client that reads late, and a server that does not wait in its calls.
fn short_and_refused_writes(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    for number in 0..3 {
        let mut raw = Raw::connect(peer.port)?;
        let path = "/short_writes/v1/chat/completions";
        raw.send(post(path, &format!("w{number}"), "", &raw::body(false, 8)))?;
        std::thread::sleep(std::time::Duration::from_millis(100));
        raw.until("total_tokens\": 17}}")?;
    }
    expect_all(watch, &mut peer, &[], 3, dir)
}

/// Bytes that never were in the server's memory: their number is exact, what they say is a gap, and no outcome is
/// made up.
fn r7_sendfile_and_splice(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let mut sizes = Vec::new();
    let mut raw = Raw::connect(peer.port)?;
    for (id, path) in [("a", "/sendfile"), ("b", "/splice"), ("c", "/sendfile")] {
        let path = format!("{path}/v1/chat/completions");
        raw.send(post(&path, id, "", &raw::body(false, 30)))?;
        sizes.push(raw.until("}}")?.len() as u64);
    }
    raw.send(chat("d", true))?;
    raw.until(STREAM_END)?;
    let expected = [
        "a POST /sendfile/v1/chat/completions 200 ok [\"gap\"]",
        "b POST /splice/v1/chat/completions 200 ok [\"gap\"]",
        "c POST /sendfile/v1/chat/completions 200 ok [\"gap\"]",
        "d POST /v1/chat/completions 200 ok",
    ];
    let mut watch = watch;
    watch.records(peer.port, 4)?;
    let counted: Vec<u64> = watch.follower.records(peer.port)?.iter().map(|r| r.bytes_out).collect();
    ensure!(counted[..3] == sizes[..], "bytes out: {counted:?}, the client got {sizes:?}");
    expect_facts(watch, &mut peer, &expected).map(drop)
}
