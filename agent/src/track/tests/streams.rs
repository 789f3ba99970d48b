//! Streamed answers.

use expect_test::expect;
use wire::socket::{DIR_SEND, tcp};

use super::{
    framing::post,
    rig::{PID, Rig},
};
use crate::{
    request::record::Outcome,
    track::{MAX_CONTENT, Tracked},
};

pub(super) const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
pub(super) const END: &str = "0\r\n\r\n";

pub(super) fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

pub(super) fn token(text: &str) -> String {
    format!(
        "data: {{\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
    )
}

pub(super) fn finish() -> String {
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n".into()
}

const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

pub(super) fn request(rig: &mut Rig) {
    rig.accept(1);
    rig.recv(1, post("/v1/chat/completions", r#"{"model":"m","stream":true,"messages":[]}"#));
}

#[test]
fn the_first_token_is_the_first_content() {
    let mut rig = Rig::new();
    request(&mut rig);
    rig.send(1, HEAD);
    rig.send(1, chunk(&token("")));
    rig.send(1, chunk(": ping\n\n"));
    rig.send(1, chunk(&token("a")));
    rig.send(1, chunk(&(token("b") + &token("c"))));
    rig.send(1, chunk(&finish()));
    rig.send(1, chunk(USAGE));
    rig.send(1, chunk(DONE));
    rig.send(1, END);
    expect![[r"
        read 0 service 0 at 3 by 11
        content 0 at 7 by 11
        content 0 at 8 by 11
        content 0 at 8 by 11
        done 0 POST /v1/chat/completions openai.chat status 200 Ok in 3..3 (158 B) out 4..12 (576 B) model m streaming true first_token 7 content 3 finish stop tokens Some(9)/Some(3) request_id r1
    "]].assert_eq(&rig.print());
    rig.assert_replays();
}

#[test]
fn splits_of_a_stream_do_not_matter() {
    let stream = [
        HEAD.into(),
        chunk(&token("one")),
        chunk(&(token("two") + ": c\r\n")),
        chunk(&finish()),
        chunk(DONE),
        END.into(),
    ]
    .concat();
    for at in 1..stream.len() {
        let mut rig = Rig::new();
        request(&mut rig);
        rig.send(1, &stream[..at]);
        rig.send(1, &stream[at..]);
        let done = rig.finished()[0];
        assert_eq!((done.outcome, done.content_total), (Some(Outcome::Ok), 2), "split at {at}");
        assert_eq!(done.bytes_out, stream.len() as u64);
        rig.assert_replays();
    }
    let mut rig = Rig::new();
    request(&mut rig);
    stream.bytes().for_each(|b| rig.send(1, [b]));
    assert_eq!((rig.outcomes(), rig.finished()[0].content_total), (vec![Outcome::Ok], 2));
    rig.assert_replays();
}

#[test]
fn how_streams_end() {
    type Ending = fn(&mut Rig);
    let close: Ending = |r| r.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID);
    let reset: Ending = |r| r.fail(1, DIR_SEND, -32);
    let end: Ending = |r| r.send(1, END);
    let error = "data: {\"error\":{\"message\":\"boom\"}}\n\n".to_owned();
    let [filtered, failed] = ["content_filter", "error"].map(|reason| finish().replace("stop", reason));
    for (name, events, ending, expected) in [
        ("done", vec![token("a"), DONE.into()], end, Outcome::Ok),
        ("finish without done", vec![token("a"), finish()], end, Outcome::Ok),
        ("neither", vec![token("a")], end, Outcome::Truncated),
        ("server closes", vec![token("a")], close, Outcome::Truncated),
        ("server closes after done", vec![token("a"), DONE.into()], close, Outcome::Ok),
        ("client gone", vec![token("a")], reset, Outcome::ClientDisconnect),
        ("client gone after done", vec![token("a"), DONE.into()], reset, Outcome::Ok),
        ("error event", vec![token("a"), error.clone(), DONE.into()], end, Outcome::InBandError),
        ("error event, server closes", vec![token("a"), error.clone()], close, Outcome::InBandError),
        ("error event, client leaves", vec![token("a"), error.clone()], reset, Outcome::InBandError),
        ("error event and no end", vec![token("a"), error], end, Outcome::InBandError),
        ("error as a reason, server closes", vec![token("a"), failed], close, Outcome::InBandError),
        ("no content", vec![token(""), finish(), DONE.into()], end, Outcome::EmptyOutput),
        ("filter", vec![token("a"), filtered, DONE.into()], end, Outcome::ContentFilter),
    ] {
        let mut rig = Rig::new();
        request(&mut rig);
        rig.send(1, HEAD);
        for event in &events {
            rig.send(1, chunk(event));
        }
        ending(&mut rig);
        assert_eq!(rig.outcomes(), [expected], "{name}");
        rig.assert_replays();
    }
}

/// The same in other APIs' words.
#[test]
fn an_error_is_the_end_whoever_closes_first() {
    const CLIENT: u32 = 0;
    let lines = HEAD.replace("text/event-stream; charset=utf-8", "application/x-ndjson");
    for (path, head, events) in [
        (
            "/v1/messages",
            HEAD,
            [
                "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n",
                "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
            ],
        ),
        (
            "/v1/responses",
            HEAD,
            [
                "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n",
                "data: {\"type\":\"error\",\"code\":\"server_error\"}\n\n",
            ],
        ),
        (
            "/api/chat",
            &lines,
            ["{\"message\":{\"content\":\"a\"},\"done\":false}\n", "{\"error\":\"broke\"}\n"],
        ),
    ] {
        for who in [PID, CLIENT] {
            let mut rig = Rig::new();
            rig.accept(1);
            rig.recv(1, post(path, r#"{"model":"m","stream":true}"#));
            rig.send(1, head);
            for event in events {
                rig.send(1, chunk(event));
            }
            if who == CLIENT {
                rig.fail(1, DIR_SEND, -104);
            } else {
                rig.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID);
            }
            assert_eq!(rig.outcomes(), [Outcome::InBandError], "{path} {who}");
            rig.assert_replays();
        }
    }
}

#[test]
fn a_stream_that_ends_with_the_connection() {
    let mut rig = Rig::new();
    request(&mut rig);
    rig.send(1, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
    rig.send(1, token("a"));
    rig.send(1, DONE);
    assert!(rig.finished().is_empty());
    rig.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID);
    assert_eq!(rig.outcomes(), [Outcome::Ok]);
    rig.assert_replays();
}

#[test]
fn compressed_streams_are_opaque() {
    let mut rig = Rig::new();
    request(&mut rig);
    rig.send(1, HEAD.replace("\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\n"));
    rig.send(1, chunk("\u{1f}secret"));
    rig.send(1, END);
    let done = rig.finished()[0];
    assert_eq!((done.outcome, done.content_total, done.first_token_ns), (Some(Outcome::Ok), 0, None));
    rig.assert_replays();
}

#[test]
fn kept_content_events_are_bounded() {
    let mut rig = Rig::new();
    request(&mut rig);
    rig.send(1, HEAD);
    for _ in 0..MAX_CONTENT + 10 {
        rig.send(1, chunk(&token("a")));
    }
    rig.send(1, chunk(DONE) + END);
    let done = rig.finished()[0];
    assert_eq!((done.content.len(), done.content_total), (MAX_CONTENT, MAX_CONTENT as u64 + 10));
    let news = rig.out.iter().filter(|t| matches!(t, Tracked::Content { .. })).count();
    assert_eq!(news, MAX_CONTENT + 10);
}
