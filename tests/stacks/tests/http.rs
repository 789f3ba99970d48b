//! HTTP/1.1 as few clients and servers write it, over bare sockets. Named after the rows of the catalogue of known
//! bugs (`rN_…`) where there is one.

use std::path::Path;

use anyhow::{Result, ensure};
use stacks::machine::Need;
use stacks::peer::Peer;
use stacks::raw::{self, Raw, chat, long_chat, plain, post};
use stacks::watch::Watch;
use system::agent::Record;

use crate::{Test, expect_all};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("bodyless_answers", Need::Python, bodyless_answers),
    ("chunk_extensions_and_trailers", Need::Python, chunk_extensions_and_trailers),
    ("close_delimited", Need::Python, close_delimited),
    ("answer_before_the_body", Need::Python, answer_before_the_body),
    ("http_1_0", Need::Python, http_1_0),
    ("upgrade", Need::Python, upgrade),
    ("compressed_bodies", Need::Python, compressed_bodies),
    ("r27_hostile_lengths", Need::Python, r27_hostile_lengths),
    ("r32_large_answer", Need::Python, r32_large_answer),
    ("model_in_the_middle_of_a_read", Need::Python, model_in_the_middle_of_a_read),
    ("r37_pipelining", Need::Python, r37_pipelining),
    ("r59_streams_and_whole_answers", Need::Python, r59_streams_and_whole_answers),
    ("r60_events_split_across_writes", Need::Python, r60_events_split_across_writes),
];

/// A server on bare sockets, watched.
pub(crate) fn odd(way: &str, dir: &Path) -> Result<(Peer, Watch)> {
    let peer = Peer::python("odd.py", &[way], dir)?;
    let watch = Watch::ports(&[peer.port], dir)?;
    Ok((peer, watch))
}

/// One line that says what a record says.
pub(crate) fn facts(record: &Record) -> String {
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".into());
    let status = record.status.map_or_else(|| "-".into(), |status| status.to_string());
    let flags = if record.flags.is_empty() { String::new() } else { format!(" {:?}", record.flags) };
    format!(
        "{} {} {} {status} {}{flags}",
        word(&record.request_id),
        word(&record.method),
        word(&record.path),
        word(&record.outcome)
    )
}

/// Ends everything and compares what the records say, in order of the requests' ids.
pub(crate) fn expect_facts(mut watch: Watch, peer: &mut Peer, expected: &[&str]) -> Result<Vec<Record>> {
    watch.records(peer.port, expected.len())?;
    let mut records = watch.finish(peer.port)?;
    peer.stop()?;
    records.sort_by(|a, b| a.request_id.cmp(&b.request_id));
    let facts: Vec<String> = records.iter().map(facts).collect();
    ensure!(facts == expected, "the agent says\n{}\ninstead of\n{}", facts.join("\n"), expected.join("\n"));
    Ok(records)
}

/// Sends requests one after the other on one connection, each when `end` of the one before has come.
pub(crate) fn talk(port: u16, requests: &[(String, &str)]) -> Result<()> {
    let mut raw = Raw::connect(port)?;
    for (request, end) in requests {
        raw.send(request)?;
        raw.until(end)?;
    }
    Ok(())
}

/// The end of an answer's head, and of a stream.
const HEAD_END: &str = "\r\n\r\n";
pub(crate) const STREAM_END: &str = "0\r\n\r\n";

fn bodyless_answers(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    talk(
        peer.port,
        &[
            (plain("HEAD", "/v1/chat/completions", "a"), HEAD_END),
            (post("/none", "b", "", "{}"), HEAD_END),
            (plain("GET", "/same?x=1", "c"), HEAD_END),
            (plain("HEAD", "/other", "d"), HEAD_END),
            (chat("e", true), STREAM_END),
        ],
    )?;
    let expected = [
        "a HEAD /v1/chat/completions 200 ok",
        "b POST /none 204 ok",
        "c GET /same 304 ok",
        "d HEAD /other 200 ok",
        "e POST /v1/chat/completions 200 ok",
    ];
    expect_facts(watch, &mut peer, &expected).map(drop)
}

fn chunk_extensions_and_trailers(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let body = raw::body(true, 12);
    let chunks: Vec<String> = body
        .as_bytes()
        .chunks(11)
        .map(|part| format!("{:x};a=\"b;c\"\r\n{}\r\n", part.len(), String::from_utf8_lossy(part)))
        .collect();
    let chunked = chunks.concat();
    let request = |id: &str| {
        format!(
            "POST /extensions/v1/chat/completions HTTP/1.1\r\nhost: p\r\nx-request-id: {id}\r\n\
             transfer-encoding: chunked\r\ntrailer: x-t\r\n\r\n{chunked}0;end\r\nx-t: 1\r\n\r\n"
        )
    };
    let mut raw = Raw::connect(peer.port)?;
    for number in 0..20 {
        raw.send(request(&format!("x-{number}")))?;
        raw.until("x-more: 2\r\n\r\n")?;
    }
    expect_all(watch, &mut peer, &[], 20, dir)
}

fn close_delimited(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    for number in 0..10 {
        let mut raw = Raw::connect(peer.port)?;
        let body = raw::body(true, 8);
        raw.send(post("/until_close/v1/chat/completions", &format!("c{number}"), "", &body))?;
        let answer = raw.rest();
        ensure!(answer.ends_with("data: [DONE]\n\n"), "the answer broke off: {answer:?}");
    }
    let expected: Vec<String> =
        (0..10).map(|n| format!("c{n} POST /until_close/v1/chat/completions 200 ok")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let records = expect_facts(watch, &mut peer, &expected)?;
    let incomplete = records.iter().find(|r| r.chunks != Some(8) || r.t_last_byte_out_ns.is_none());
    ensure!(incomplete.is_none(), "{incomplete:#?}");
    Ok(())
}

/// A refusal that does not wait for the body: after `Expect`, and in the middle of it.
fn answer_before_the_body(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let head = |id: &str, more: &str| {
        format!("POST /too_large HTTP/1.1\r\nx-request-id: {id}\r\ncontent-length: 9000000\r\n{more}\r\n")
    };
    for (id, more, body) in [("a", "expect: 100-continue\r\n", 0), ("b", "", 1000), ("c", "", 100)] {
        let mut raw = Raw::connect(peer.port)?;
        raw.send(head(id, more) + &"x".repeat(body))?;
        let answer = raw.rest();
        ensure!(answer.starts_with("HTTP/1.1 413"), "{answer:?}");
    }
    let expected = ["a", "b", "c"].map(|id| format!("{id} POST /too_large 413 client_4xx"));
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    expect_facts(watch, &mut peer, &expected).map(drop)
}

/// Clients that close after each answer, or wait for the server to.
fn http_1_0(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    for number in 0..20 {
        let mut raw = Raw::connect(peer.port)?;
        raw.send(chat(&format!("o{number}"), false).replace("HTTP/1.1", "HTTP/1.0"))?;
        raw.rest();
    }
    expect_all(watch, &mut peer, &[], 20, dir)
}

/// A WebSocket: its handshake is a request, its frames are none. The record comes with its end and has all its bytes.
fn upgrade(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let mut raw = Raw::connect(peer.port)?;
    let handshake =
        "GET /upgrade HTTP/1.1\r\nx-request-id: u\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let (frame, message) = (b"\x81\x85\0\0\0\0GET /", chat("not-a-request", false));
    raw.send(handshake)?;
    let mut answer = raw.until("hello")?;
    raw.send(frame)?;
    raw.send(&message)?;
    raw.end()?;
    answer.push_str(&raw.rest());
    talk(peer.port, &[(chat("v", true), STREAM_END)])?;
    let expected = ["u GET /upgrade 101 ok", "v POST /v1/chat/completions 200 ok"];
    let records = expect_facts(watch, &mut peer, &expected)?;
    let protocols: Vec<&str> = records.iter().map(|record| record.protocol.as_str()).collect();
    ensure!(protocols == ["WebSocket", "HTTP/1.1"], "{protocols:?}");
    let session = &records[0];
    let bytes = (session.bytes_in, session.bytes_out);
    // The two bytes of the frame's head are no text, and come as one mark each.
    let sent = (handshake.len() + frame.len() + message.len()) as u64;
    ensure!(bytes.0 == sent, "{bytes:?} bytes went through, {sent} came in: {session:#?}");
    ensure!(bytes.1 >= answer.chars().count() as u64, "{bytes:?} bytes went through: {answer:?}");
    ensure!(
        session.t_close_ns > session.t_last_byte_out_ns,
        "its end is not that of the handshake: {session:#?}"
    );
    Ok(())
}

/// Bodies that nobody below can read are timed, and said to be unreadable.
fn compressed_bodies(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let request = |id, streaming| {
        post("/gzip/v1/chat/completions", id, "accept-encoding: gzip\r\n", &raw::body(streaming, 16))
    };
    let mut raw = Raw::connect(peer.port)?;
    raw.send(request("a", true))?;
    raw.until(STREAM_END)?;
    raw.send(request("b", false))?;
    raw.until(STREAM_END)?;
    let expected = [
        "a POST /gzip/v1/chat/completions 200 ok [\"opaque\"]",
        "b POST /gzip/v1/chat/completions 200 ok [\"opaque\"]",
    ];
    let records = expect_facts(watch, &mut peer, &expected)?;
    let invented =
        records.iter().find(|r| r.output_tokens.is_some() || r.ttft_s.is_some() || r.chunks.is_some());
    ensure!(invented.is_none(), "what a compressed body says is not known: {invented:#?}");
    Ok(())
}

/// Lengths that no sane client sends: nothing is allocated for them, and other connections go on.
fn r27_hostile_lengths(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let mut steady = Raw::connect(peer.port)?;
    let head = |length: &str| format!("POST /x HTTP/1.1\r\nhost: p\r\n{length}\r\n\r\n{{}}");
    let hostile = [
        head("content-length: 18446744073709551615"),
        head("content-length: -1"),
        head("content-length: 99999999999999999999999999"),
        head("transfer-encoding: chunked").replace("{}", "ffffffffffffffff\r\n"),
        head("transfer-encoding: chunked").replace("{}", &"0".repeat(10_000)),
        format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20)),
        "\0".repeat(5000),
        format!("POST / HTTP/1.1\r\n{}", "x: y\r\n".repeat(10_000)),
    ];
    let before = rss(watch.agent.process.pid())?;
    for (number, bytes) in hostile.iter().enumerate() {
        let mut raw = Raw::connect(peer.port)?;
        // The peer may have had enough already.
        let _ = raw.send(bytes);
        let _ = raw.end();
        raw.rest();
        steady.send(chat(&format!("s{number}"), true))?;
        steady.until(STREAM_END)?;
    }
    let grown = rss(watch.agent.process.pid())?.saturating_sub(before);
    ensure!(grown < 16 << 20, "the agent grew by {grown} bytes");
    let mut watch = watch;
    watch.records(peer.port, hostile.len())?;
    let records = watch.finish(peer.port)?;
    peer.stop()?;
    let steady: Vec<_> = records.iter().filter(|record| record.request_id.is_some()).collect();
    let ok = |record: &&&Record| record.outcome.as_deref() == Some("ok") && record.flags.is_empty();
    ensure!(
        steady.len() == hostile.len() && steady.iter().filter(ok).count() == steady.len(),
        "the other connection was disturbed: {steady:#?}"
    );
    Ok(())
}

/// Resident bytes of a process.
pub(crate) fn rss(pid: u32) -> Result<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages: u64 = statm.split_whitespace().nth(1).unwrap_or_default().parse()?;
    Ok(pages * 4096)
}

/// Three megabytes in one answer: the record is there, and right.
fn r32_large_answer(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let path = "/big/v1/chat/completions";
    let requests: Vec<_> = (0..3)
        .map(|n| (post(path, &format!("g{n}"), "", &raw::body(false, 8)), "total_tokens\": 17}}"))
        .collect();
    talk(peer.port, &requests)?;
    let mut watch = watch;
    let records = watch.records(peer.port, 3)?;
    let bad = records.iter().find(|r| r.output_tokens != Some(8) || r.model.as_deref() != Some("raw-model"));
    ensure!(bad.is_none(), "what stands at the end of a large answer was not found: {bad:#?}");
    expect_all(watch, &mut peer, &[], 3, dir)
}

/// Long members on both sides of the model's name, and an answer that can't be read: the second request of a connection
/// is captured whole, since the first one showed that it has to be.
fn model_in_the_middle_of_a_read(dir: &Path) -> Result<()> {
    let (mut peer, mut watch) = odd("threads", dir)?;
    let long = "lorem ".repeat(1000);
    let body = format!(r#"{{"messages":[{{"content":"{long}"}}],"model":"raw-model","tools":["{long}"]}}"#);
    let mut raw = Raw::connect(peer.port)?;
    for number in 0..3 {
        raw.send(post("/gzip/v1/chat/completions", &format!("m{number}"), "", &body))?;
        // What the agent made of it, before the next one comes.
        raw.until("\r\n\r\n")?;
        watch.records(peer.port, number + 1)?;
    }
    let mut records = watch.finish(peer.port)?;
    peer.stop()?;
    records.sort_by(|a, b| a.request_id.cmp(&b.request_id));
    let models: Vec<_> = records.iter().map(|record| record.model.as_deref()).collect();
    ensure!(models == [None, Some("raw-model"), Some("raw-model")], "{records:#?}");
    Ok(())
}

/// Requests in one write; answers in their order; a long-lived connection.
///
/// A batch is much longer than what is captured of a call by itself: the kernel side sees in its first request that
/// another one follows.
fn r37_pipelining(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let mut raw = Raw::connect(peer.port)?;
    for batch in 0..50_usize {
        let request = |n| long_chat(&format!("p{batch}-{n}"), (batch + n) % 3 == 0, 2000 + 100 * n);
        raw.send((0..10).map(request).collect::<String>())?;
        let mut answers = String::new();
        while answers.matches("HTTP/1.1 200").count() < 10 || !ended(&answers) {
            answers.push_str(&raw.some()?);
        }
    }
    expect_all(watch, &mut peer, &[], 500, dir)
}

/// Whether the last answer is whole.
fn ended(answers: &str) -> bool {
    answers.ends_with(STREAM_END) || answers.ends_with("}}")
}

/// A stream has a time to first token, a whole answer has none: no average mixes them.
fn r59_streams_and_whole_answers(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    talk(
        peer.port,
        &[(chat("a", true), STREAM_END), (chat("b", false), "}}"), (chat("c", true), STREAM_END)],
    )?;
    let facts = ["a", "b", "c"].map(|id| format!("{id} POST /v1/chat/completions 200 ok"));
    let expected: Vec<&str> = facts.iter().map(String::as_str).collect();
    let records = expect_facts(watch, &mut peer, &expected)?;
    let has_ttft: Vec<bool> = records.iter().map(|record| record.ttft_s.is_some()).collect();
    ensure!(has_ttft == [true, false, true], "TTFT of streams and whole answers: {has_ttft:?}");
    let within = records.iter().all(|r| r.ttft_s.unwrap_or_default() <= r.e2e_s.unwrap_or_default());
    ensure!(within, "a first token after the end: {records:#?}");
    Ok(())
}

fn r60_events_split_across_writes(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let path = "/split/v1/chat/completions";
    let requests: Vec<_> =
        (0..20).map(|n| (post(path, &format!("s{n}"), "", &raw::body(true, 16)), STREAM_END)).collect();
    talk(peer.port, &requests)?;
    expect_all(watch, &mut peer, &[], 20, dir)
}
