//! HTTP/2 connections: what a real client and server say to each other.

mod calls;
mod hostile;
mod network;

use expect_test::expect;
use wire::socket::{DIR_RECV, FLAG_MID_STREAM, ROLE_ACCEPTED, ROLE_UNKNOWN, tcp};

use super::{
    peers::{Call, Conversation, SECRET, assert_no_secret},
    rig::{PID, Rig},
};
use crate::{
    request::record::{Flag, Outcome},
    track::{Exchange, Tracked},
};

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A literal field without indexing.
pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
    let len = |text: &str| u8::try_from(text.len()).unwrap();
    [&[0, len(name)][..], name.as_bytes(), &[len(value)], value.as_bytes()].concat()
}

pub(super) fn post(path: &str) -> Vec<u8> {
    [&[0x83][..], &field(":path", path), &field("content-type", "application/json")].concat()
}

fn message(body: &[u8]) -> Vec<u8> {
    [&[0][..], &u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat()
}

fn accepted() -> Rig {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, PREFACE);
    rig.send(1, SETTINGS);
    rig
}

/// What an exchange told, without times and sizes.
fn told(e: &Exchange) -> String {
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {} {:?} {:?}",
        e.method,
        e.path,
        e.model,
        e.status,
        e.outcome,
        e.streaming,
        e.request_id,
        e.content_total,
        e.output_tokens,
        e.flags
    )
}

#[test]
fn three_calls_one_after_the_other() {
    let mut rig = Rig::new();
    Conversation::of(&[Call::Json, Call::Events(3), Call::Json]).feed(&mut rig, 1);
    for exchange in rig.finished() {
        assert_eq!(exchange.protocol, "HTTP/2");
        assert!(exchange.first_byte_in_ns <= exchange.last_byte_in_ns && exchange.bytes_in > 50);
        assert!(exchange.first_byte_out_ns <= exchange.last_byte_out_ns && exchange.bytes_out > 50);
    }
    let told: Vec<String> = rig.finished().into_iter().map(told).collect();
    expect![[r#"
        Some("POST") Some("/v1/chat/completions") Some("m-2") Some(200) Some(Ok) Some(false) Some("r-7") 0 Some(9) []
        Some("POST") Some("/v1/chat/completions") Some("m-2") Some(200) Some(Ok) Some(true) Some("r-7") 3 None []
        Some("POST") Some("/v1/chat/completions") Some("m-2") Some(200) Some(Ok) Some(false) Some("r-7") 0 Some(9) []"#]].assert_eq(&told.join("\n"));
    let accepted: Vec<bool> = rig.finished().iter().map(|e| e.accept_ns.is_some()).collect();
    assert_eq!(accepted, [true, false, false]);
    assert_no_secret(&rig);
    rig.assert_replays();
}

#[test]
fn grpc_calls() {
    let mut rig = Rig::new();
    let calls = [
        Call::Infer(0),
        Call::Infer(5),
        Call::Infer(4),
        Call::Infer(13),
        Call::TrailersOnly(12),
        Call::Stream(3),
        Call::Messages(1),
        Call::Messages(4),
    ];
    Conversation::of(&calls).feed(&mut rig, 1);
    let told: Vec<String> = rig.finished().into_iter().map(told).collect();
    expect![[r#"
        Some("POST") Some("/inference.GRPCInferenceService/ModelInfer") Some("m-2") Some(200) Some(Ok) Some(false) Some("r-7") 0 None []
        Some("POST") Some("/inference.GRPCInferenceService/ModelInfer") Some("m-1") Some(200) Some(Client4xx) Some(false) Some("r-7") 0 None []
        Some("POST") Some("/inference.GRPCInferenceService/ModelInfer") Some("m-1") Some(200) Some(Timeout) Some(false) Some("r-7") 0 None []
        Some("POST") Some("/inference.GRPCInferenceService/ModelInfer") Some("m-1") Some(200) Some(Server5xx) Some(false) Some("r-7") 0 None []
        Some("POST") Some("/inference.GRPCInferenceService/ModelInfer") Some("m-1") Some(200) Some(Server5xx) Some(false) Some("r-7") 0 None []
        Some("POST") Some("/inference.GRPCInferenceService/ModelStreamInfer") Some("m-2") Some(200) Some(Ok) Some(true) Some("r-7") 3 None []
        Some("POST") Some("/my.Service/Chat") None Some(200) Some(Ok) Some(false) Some("r-7") 0 None []
        Some("POST") Some("/my.Service/Chat") None Some(200) Some(Ok) Some(true) Some("r-7") 4 None []"#]].assert_eq(&told.join("\n"));
    assert_no_secret(&rig);
    rig.assert_replays();
}

#[test]
fn two_hundred_streams_at_once() {
    let mut rig = Rig::new();
    let calls: Vec<Call> =
        (0..200).map(|n| if n % 2 == 0 { Call::Events(5) } else { Call::Stream(5) }).collect();
    Conversation::at_once(&calls).feed(&mut rig, 1);
    let finished = rig.finished();
    assert_eq!(finished.len(), 200);
    for exchange in &finished {
        assert_eq!((exchange.outcome, exchange.content_total), (Some(Outcome::Ok), 5), "{exchange:?}");
        assert!(exchange.flags.is_empty() && exchange.first_token_ns.is_some() && exchange.model.is_some());
    }
    assert_eq!(rig.health.ignored.values().sum::<u64>(), 0, "{:?}", rig.health.ignored);
    rig.assert_replays();
}

#[test]
fn pieces_of_any_size_tell_the_same() {
    let conversation = Conversation::of(&[Call::Events(2), Call::Infer(0), Call::Stream(2)]);
    let mut whole = Rig::new();
    conversation.feed(&mut whole, 1);
    let expected: Vec<String> = whole.finished().into_iter().map(told).collect();
    let longest = conversation.calls.iter().map(|(_, bytes)| bytes.len()).max().unwrap();
    for piece in (1..40).chain([longest - 1]) {
        let mut rig = Rig::new();
        rig.accept(1);
        for (dir, bytes) in &conversation.calls {
            for bytes in bytes.chunks(piece) {
                if *dir == DIR_RECV { rig.recv(1, bytes) } else { rig.send(1, bytes) }
            }
        }
        let told: Vec<String> = rig.finished().into_iter().map(told).collect();
        assert_eq!(told, expected, "pieces of {piece}");
        assert_no_secret(&rig);
        rig.assert_replays();
    }
}

#[test]
fn the_agent_comes_in_the_middle() {
    let conversation = Conversation::of(&[
        Call::Events(3),
        Call::Infer(0),
        Call::Events(3),
        Call::Stream(3),
        Call::Events(3),
    ]);
    for skipped in 0..conversation.calls.len() - 1 {
        for role in [ROLE_ACCEPTED, ROLE_UNKNOWN] {
            let mut rig = Rig::new();
            rig.open(1, role, FLAG_MID_STREAM);
            for (dir, bytes) in &conversation.calls[skipped..] {
                if *dir == DIR_RECV { rig.recv(1, bytes) } else { rig.send(1, bytes) }
            }
            for exchange in rig.finished() {
                // Whatever is said is right.
                let path = exchange.path.as_deref().unwrap_or("/v1/chat/completions");
                assert!(path == "/v1/chat/completions" || path.starts_with("/inference."), "{path}");
                assert!(exchange.status.is_none_or(|status| status == 200));
                let outcome = exchange.outcome.unwrap();
                assert!(matches!(outcome, Outcome::Ok | Outcome::Unknown), "{outcome:?} after {skipped}");
            }
            let seen = conversation.calls[skipped..].iter().filter(|(_, bytes)| ends_answer(bytes)).count();
            assert!(rig.finished().len() >= seen, "{} of {seen} after {skipped}", rig.finished().len());
            assert_no_secret(&rig);
            rig.assert_replays();
        }
    }
}

/// A server's call with a frame that ends a stream.
fn ends_answer(bytes: &[u8]) -> bool {
    let mut at = 0;
    while let Some([a, b, c, kind, flags, ..]) = bytes.get(at..at + 9) {
        if *kind <= 1 && flags & 1 == 1 && bytes.get(at + 9) != Some(&0x83) {
            return bytes.first() != Some(&b'P')
                && !bytes.windows(2).any(|w| w == [0x83, 0x86] || w == [0x83, 0x87]);
        }
        at += 9 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
    }
    false
}

#[test]
fn a_lost_record_poisons_no_later_value() {
    let conversation = Conversation::of(&[Call::Events(2), Call::Infer(0), Call::Stream(2), Call::Events(2)]);
    for lost in 0..conversation.calls.len() {
        let mut rig = Rig::new();
        rig.accept(1);
        for (at, (dir, bytes)) in conversation.calls.iter().enumerate() {
            match *dir {
                _ if at == lost => rig.lose(1, *dir, bytes.len()),
                DIR_RECV => rig.recv(1, bytes),
                _ => rig.send(1, bytes),
            }
        }
        rig.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID);
        for exchange in rig.finished() {
            let path = exchange.path.as_deref().unwrap_or("/v1/chat/completions");
            assert!(path == "/v1/chat/completions" || path.starts_with("/inference."), "{path}");
            assert!(exchange.status.is_none_or(|status| status == 200));
        }
        assert_no_secret(&rig);
        rig.assert_replays();
    }
}

#[test]
fn a_block_may_be_cut_anywhere() {
    let block = [post("/x?k=1"), field("authorization", SECRET), field("x-request-id", "r9")].concat();
    for at in 0..=block.len() {
        let mut rig = accepted();
        rig.recv(
            1,
            [frame(1, 1, 1, &block[..at]), frame(9, 0, 1, b""), frame(9, 4, 1, &block[at..])].concat(),
        );
        rig.send(1, frame(1, 5, 1, &[0x89]));
        let done = rig.finished()[0].clone();
        assert_eq!((done.path.as_deref(), done.request_id.as_deref()), (Some("/x"), Some("r9")));
        assert_eq!((done.status, done.outcome), (Some(204), Some(Outcome::Ok)), "cut at {at}");
        assert_no_secret(&rig);
        rig.assert_replays();
    }
}

#[test]
fn padding_and_priority_are_no_content() {
    let mut rig = accepted();
    let head = [&[3, 0x80, 0, 0, 0, 16][..], &post("/v1/completions"), b"pad"].concat();
    rig.recv(1, frame(1, 0x2c, 1, &head));
    rig.recv(1, frame(0, 9, 1, &[&[4][..], br#"{"model":"m"}"#, b"s3cr"].concat()));
    rig.send(1, frame(1, 4, 1, &[0x88]));
    rig.send(1, frame(0, 9, 1, &[&[2][..], br#"{"choices":[{"text":"a"}]}"#, b"zz"].concat()));
    assert_eq!((rig.outcomes(), rig.finished()[0].model.as_deref()), (vec![Outcome::Ok], Some("m")));
    assert!(rig.records[rig.records.len() - 3].ends_with(b"xxxx"));
    rig.assert_replays();
}

#[test]
fn how_calls_end() {
    let open = |rig: &mut Rig, id| rig.recv(1, frame(1, 5, id, &post("/v1/completions")));
    let mut rig = accepted();
    (0..5).for_each(|n| open(&mut rig, 1 + 2 * n));
    rig.send(1, frame(1, 4, 3, &[0x88]));
    // The client cancels one, the server resets one, and will not do another.
    rig.recv(1, frame(3, 0, 1, &[0, 0, 0, 8]));
    rig.send(1, frame(3, 0, 3, &[0, 0, 0, 2]));
    rig.send(1, frame(7, 0, 0, &[0, 0, 0, 7, 0, 0, 0, 0]));
    rig.send(1, frame(1, 5, 5, &[0x8d]));
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE, 0);
    let outcomes = [
        Outcome::ClientDisconnect,
        Outcome::Truncated,
        Outcome::Truncated,
        Outcome::Client4xx,
        Outcome::ClientDisconnect,
    ];
    assert_eq!(rig.outcomes(), outcomes);
    let ids: Vec<u64> = rig.finished().iter().map(|e| e.id.unwrap().0).collect();
    assert_eq!(ids, [0, 1, 4, 2, 3]);
    rig.assert_replays();
}

/// What had arrived before a reset is read after it.
#[test]
fn a_call_that_is_read_after_the_reset_is_told() {
    let mut rig = accepted();
    rig.recv(1, frame(1, 5, 1, &post("/a")));
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE, 0);
    let reset = rig.now;
    rig.recv(1, [frame(1, 4, 3, &post("/b")), frame(0, 1, 3, br#"{"model":"m"}"#)].concat());
    assert_eq!(rig.outcomes(), [Outcome::ClientDisconnect]);
    rig.state(1, tcp::CLOSE, tcp::CLOSE, 0);
    assert_eq!(rig.outcomes(), [Outcome::ClientDisconnect; 2]);
    let late = rig.finished()[1];
    assert_eq!((late.path.as_deref(), late.close_ns), (Some("/b"), Some(reset)));
    rig.assert_replays();
}

/// A server that gives up with something unread resets the connection.
#[test]
fn a_reset_by_the_server_is_no_disconnect() {
    let mut rig = accepted();
    rig.recv(1, frame(1, 4, 1, &post("/a")));
    rig.send(1, frame(1, 4, 1, &[0x88]));
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE, PID + 1);
    assert_eq!(rig.outcomes(), [Outcome::Truncated]);
}

#[test]
fn interim_headers_are_not_the_answer() {
    let mut rig = accepted();
    rig.recv(1, frame(1, 5, 1, &post("/x")));
    rig.send(1, frame(1, 4, 1, &field(":status", "103")));
    rig.send(1, frame(1, 5, 1, &[0x89]));
    assert_eq!((rig.finished()[0].status, rig.outcomes()), (Some(204), vec![Outcome::Ok]));
    assert_eq!(rig.finished()[0].first_byte_out_ns, Some(rig.now));
}

#[test]
fn large_bodies_of_which_the_middle_is_not_captured() {
    let mut rig = accepted();
    let body = [br#"{"model":"m","prompt":""#, &[b'p'; 5000][..], br#"","stream":false}"#].concat();
    rig.recv(1, [frame(1, 4, 1, &post("/v1/completions")), frame(0, 1, 1, &body)].concat());
    let is_read = rig.out.iter().any(|news| matches!(news, Tracked::RequestRead { .. }));
    assert!(is_read, "read to the end");
    let start = [br#"{"choices":[{"text":""#, &[b'a'; 4000][..]].concat();
    let end = [&[b'a'; 4000][..], br#"","finish_reason":"stop"}],"usage":{"completion_tokens":7}}"#].concat();
    let answer = [frame(1, 4, 1, &[0x88]), frame(0, 0, 1, &start), frame(0, 0, 1, &end), frame(0, 1, 1, b"")];
    rig.send(1, answer.concat());
    // The frames at the end were found, and the one before told the rest.
    let done = rig.finished()[0].clone();
    assert_eq!(
        (done.model.as_deref(), done.output_tokens, done.outcome),
        (Some("m"), Some(7), Some(Outcome::Ok))
    );
    assert_eq!((done.flags, done.last_byte_out_ns), (vec![Flag::Gap], Some(rig.now)));
    rig.assert_replays();
    // An end that was not captured is not waited for when the client goes on.
    rig.recv(1, frame(1, 5, 3, &post("/v1/completions")));
    rig.send(1, [frame(1, 4, 3, &[0x88]), frame(0, 0, 3, &start), frame(0, 1, 3, &end)].concat());
    assert_eq!(rig.finished().len(), 1);
    rig.recv(1, frame(1, 5, 5, &post("/v1/completions")));
    rig.send(1, [frame(1, 4, 5, &[0x88]), frame(0, 1, 5, b"{}")].concat());
    assert_eq!(rig.finished().len(), 3);
    rig.assert_replays();
}

#[test]
fn a_loss_without_headers_in_it_spoils_no_table() {
    let indexed = [&[0x83, 0x40, 5][..], b":path", &[2], b"/a"].concat();
    // A body, or a whole request too, is in the part that is not captured.
    for (lost, next, expected) in [(vec![], 3, Some("/a")), (frame(1, 5, 3, &indexed), 5, None)] {
        let mut rig = accepted();
        rig.recv(1, frame(1, 4, 1, &indexed));
        let pieces = [frame(0, 0, 1, &[b' '; 2000]), lost, frame(0, 1, 1, &[b' '; 2000])];
        rig.recv(1, pieces.concat());
        rig.recv(1, frame(1, 5, next, &[0x83, 0xbe]));
        rig.send(1, frame(1, 5, next, &[0x89]));
        assert_eq!(rig.finished()[0].path.as_deref(), expected);
        rig.assert_replays();
    }
}

#[test]
fn a_single_p_may_begin_either_protocol() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, "P");
    rig.recv(1, &PREFACE[1..]);
    rig.recv(1, frame(1, 5, 1, &post("/a")));
    rig.send(1, frame(1, 5, 1, &[0x89]));
    rig.accept(2);
    rig.recv(2, "P");
    rig.recv(2, "UT /b HTTP/1.1\r\n\r\n");
    rig.send(2, "HTTP/1.1 204 No Content\r\n\r\n");
    let said: Vec<_> = rig.finished().iter().map(|e| (e.protocol.as_str(), e.path.as_deref())).collect();
    assert_eq!(said, [("HTTP/2", Some("/a")), ("HTTP/1.1", Some("/b"))]);
    assert_eq!(rig.finished()[1].bytes_in, 19);
    rig.assert_replays();
}
