//! Calls that come in several records: the same as one, but for what was lost on the way.

use wire::socket::{DIR_RECV, DIR_SEND};

use super::{
    framing::{answer, post},
    http2::{PREFACE, field, frame},
    rig::Rig,
};
use crate::{request::record::Flag, track::Exchange};

const BATCH: usize = 10;

/// Ten requests of two to three kilobytes, one after the other.
fn batch() -> Vec<u8> {
    let body = |n: usize| {
        let prompt = "p".repeat(2000 + 100 * n);
        format!(r#"{{"messages":[{{"role":"user","content":"{prompt}"}}],"model":"m-{n}"}}"#)
    };
    (0..BATCH).map(|n| post("/v1/chat/completions", &body(n))).collect::<String>().into_bytes()
}

fn answers() -> Vec<u8> {
    let body = |n: usize| {
        format!(r#"{{"model":"m-{n}","choices":[{{"message":{{"content":"{}"}}}}]}}"#, "a".repeat(900))
    };
    (0..BATCH).map(|n| answer(&body(n))).collect::<String>().into_bytes()
}

/// A request with a body of that many bytes. The headers of all but the first are numbers of a table that the first one
/// fills.
fn request(stream: u32, body: usize) -> Vec<u8> {
    let [path, kind] = [field(":path", "/v1/chat/completions"), field("content-type", "application/json")];
    let headers = match stream {
        1 => [&[0x83, 0x40][..], &path[1..], &[0x40], &kind[1..]].concat(),
        _ => vec![0x83, 0xbf, 0xbe],
    };
    let body = format!(r#"{{"model":"m","messages":[{{"content":"{}"}}]}}"#, "p".repeat(body));
    [frame(1, 4, stream, &headers), frame(0, 1, stream, body.as_bytes())].concat()
}

/// A whole answer.
fn response(stream: u32, body: usize) -> Vec<u8> {
    let body = format!(r#"{{"model":"m","choices":[{{"message":{{"content":"{}"}}}}]}}"#, "a".repeat(body));
    let headers = [&[0x88][..], &field("content-type", "application/json")].concat();
    [frame(1, 4, stream, &headers), frame(0, 1, stream, body.as_bytes())].concat()
}

/// Sixteen of them at once.
fn at_once(message: fn(u32, usize) -> Vec<u8>, body: usize) -> Vec<u8> {
    (0..16).flat_map(|n| message(1 + 2 * n, body)).collect()
}

fn models(rig: &Rig) -> Vec<&str> {
    rig.finished().iter().map(|e| e.model.as_deref().unwrap_or("-")).collect()
}

#[test]
fn pipelined_requests_in_one_long_call_are_all_seen() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.whole(1, DIR_RECV, &batch(), None);
    rig.whole(1, DIR_SEND, &answers(), None);
    assert_eq!(models(&rig), ["m-0", "m-1", "m-2", "m-3", "m-4", "m-5", "m-6", "m-7", "m-8", "m-9"]);
    assert!(rig.finished().iter().all(|e| e.flags.is_empty() && e.bytes_in > 2000), "{}", rig.print());
    let times: Vec<_> = rig.finished().iter().map(|e| (e.last_byte_in_ns, e.last_byte_out_ns)).collect();
    assert!(times.iter().all(|time| *time == times[0]), "the pieces of a call have one time: {times:?}");
    assert_eq!(rig.wanted(), [0; 0], "what is captured whole need not be asked for");
    rig.assert_replays();
}

/// What follows a piece that is lost is no beginning of a call, whatever it looks like.
#[test]
fn a_lost_piece_is_a_gap_and_the_next_call_begins_anew() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.whole(1, DIR_RECV, &batch(), Some(4));
    rig.recv(1, post("/v1/chat/completions", r#"{"model":"after"}"#));
    for n in 0..2 {
        rig.send(1, answer(&format!(r#"{{"model":"m-{n}","choices":[]}}"#)));
    }
    rig.send(1, answer(r#"{"model":"after","choices":[]}"#));
    assert_eq!(rig.health.ignored.get("socket_bytes_missing"), Some(&1));
    let finished = rig.finished();
    assert_eq!((finished[0].model.as_deref(), finished[0].flags.as_slice()), (Some("m-0"), &[][..]));
    assert!(finished.len() >= 3, "{}", rig.print());
    rig.assert_replays();
}

#[test]
fn a_boundary_that_was_left_out_is_asked_for_once() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, batch());
    rig.recv(1, batch());
    assert_eq!(rig.wanted(), [1]);

    let mut rig = Rig::new();
    rig.accept(1);
    let body = format!(r#"{{"messages":[{{"content":"{}"}}],"model":"m"}}"#, "p".repeat(5000));
    rig.recv(1, post("/v1/chat/completions", &body));
    rig.send(1, answer(&body));
    assert_eq!(rig.wanted(), [0; 0], "a long body is no reason: {}", rig.print());
}

#[test]
fn a_connection_that_speaks_http2_in_mid_stream_is_asked_for() {
    let mut rig = Rig::new();
    rig.open(1, wire::socket::ROLE_ACCEPTED, wire::socket::FLAG_MID_STREAM);
    rig.recv(1, request(1, 10));
    assert_eq!(rig.wanted(), [1]);

    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, [PREFACE, &request(1, 10)].concat());
    assert_eq!(rig.wanted(), [0; 0], "the kernel side has seen the preface");
}

/// Sixteen requests in one read, with headers that only the table explains.
#[test]
fn http2_requests_in_one_long_call_are_all_seen() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, PREFACE);
    rig.whole(1, DIR_RECV, &at_once(request, 3600), None);
    rig.whole(1, DIR_SEND, &at_once(response, 1000), None);
    let finished = rig.finished();
    assert_eq!(finished.len(), 16, "{}", rig.print());
    let known = |e: &&&Exchange| e.path.as_deref() == Some("/v1/chat/completions") && e.flags.is_empty();
    assert_eq!(finished.iter().filter(|e| known(e)).count(), 16, "{}", rig.print());
    rig.assert_replays();
}

#[test]
fn a_lost_piece_of_http2_is_flagged() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, PREFACE);
    rig.whole(1, DIR_RECV, &at_once(request, 3600), Some(7));
    rig.whole(1, DIR_SEND, &at_once(response, 1000), None);
    assert!(rig.finished().iter().any(|e| e.flags.contains(&Flag::Gap)), "{}", rig.print());
    rig.assert_replays();
}
