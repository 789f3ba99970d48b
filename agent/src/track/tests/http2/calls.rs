//! How calls begin and end in their rarer ways.

use wire::socket::{DIR_RECV, DIR_SEND, Network, tcp};

use super::{
    super::rig::{PID, Rig},
    PREFACE, SETTINGS, accepted, field, frame, message, post,
};
use crate::request::record::Outcome;

/// HTTP/1.1 asks for HTTP/2, and gets the answer there.
#[test]
fn a_request_that_asks_for_http2_is_answered_on_stream_1() {
    let body = r#"{"model":"m"}"#;
    let request = format!(
        "POST /v1/completions?k=1 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABk\r\nx-request-id: r1\r\nContent-Length: 13\r\n\r\n{body}"
    );
    let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let head = frame(1, 4, 1, &[0x88]);
    let answer = frame(0, 1, 1, br#"{"model":"m-2","choices":[{"text":"a"}]}"#);
    for whole in [false, true] {
        let mut rig = Rig::new();
        rig.accept(1);
        rig.recv(1, &request);
        if whole {
            rig.send(1, [&switch[..], SETTINGS, &head].concat());
        } else {
            for b in switch {
                rig.send(1, [*b]);
            }
            rig.send(1, SETTINGS);
            rig.send(1, &head);
        }
        rig.recv(1, [PREFACE, SETTINGS].concat());
        rig.send(1, &answer);
        rig.recv(1, frame(1, 5, 3, &post("/b")));
        rig.send(1, frame(1, 5, 3, &[0x89]));
        let facts: Vec<_> = rig
            .finished()
            .iter()
            .map(|e| (e.path.clone().unwrap(), e.status.unwrap(), e.protocol.clone(), e.flags.len()))
            .collect();
        let http2 = |path: &str, status| (path.to_owned(), status, "HTTP/2".to_owned(), 0);
        assert_eq!(facts, [http2("/v1/completions", 200), http2("/b", 204)]);
        let done = rig.finished()[0];
        assert_eq!((done.model.as_deref(), done.request_id.as_deref()), (Some("m-2"), Some("r1")));
        assert_eq!(done.bytes_in, request.len() as u64);
        assert_eq!(done.bytes_out, (switch.len() + head.len() + answer.len()) as u64);
        assert_eq!(rig.outcomes(), [Outcome::Ok; 2]);
        rig.assert_replays();
    }
}

/// The answer is not held for an acknowledgement as one of HTTP/1 would be.
#[test]
fn a_client_that_gives_up_after_an_upgrade_is_gone() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.network = Network { first_ns: 1, last_ns: 1, first_len: u32::MAX, last_from: 0 };
    rig.recv(1, "GET /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
    rig.network = Network::default();
    rig.send(1, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
    rig.recv(1, [PREFACE, SETTINGS].concat());
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE_WAIT, 0);
    rig.now += 2_000_000_000;
    rig.send(1, [SETTINGS, &frame(1, 5, 1, &[0x88])].concat());
    rig.state(1, tcp::CLOSE_WAIT, tcp::CLOSE, 0);
    assert_eq!(rig.outcomes(), [Outcome::ClientDisconnect]);
    assert_eq!(rig.tracker.held(), 0);
    rig.assert_replays();
}

/// The first request after the client's end of the connection was only read then.
#[test]
fn a_reset_after_the_clients_end_is_the_clients() {
    let mut rig = accepted();
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE_WAIT, 0);
    rig.recv(1, frame(1, 5, 1, &post("/x")));
    rig.state(1, tcp::CLOSE_WAIT, tcp::CLOSE, PID);
    assert_eq!(rig.outcomes(), [Outcome::ClientDisconnect]);
    assert!(rig.finished()[0].close_ns.is_some());
    rig.assert_replays();
}

/// The server does not want to: it answers over HTTP/1.1 as if nothing had been asked.
#[test]
fn a_refused_upgrade_changes_nothing() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, "GET /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
    rig.send(1, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    rig.recv(1, "GET /b HTTP/1.1\r\n\r\n");
    rig.send(1, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(rig.outcomes(), [Outcome::Ok; 2]);
    assert!(rig.finished().iter().all(|e| e.protocol == "HTTP/1.1"));
}

/// A client that says how long it waits, and one that gives up before.
#[test]
fn a_call_that_is_given_up_at_its_own_limit_timed_out() {
    for (limit, by_client, expected) in [
        ("50m", true, Outcome::Timeout),
        ("50m", false, Outcome::Timeout),
        ("200m", true, Outcome::ClientDisconnect),
        ("200m", false, Outcome::Truncated),
    ] {
        let mut rig = accepted();
        let kind = field("content-type", "application/grpc");
        let head = [post("/my.Service/Chat"), field("grpc-timeout", limit)].concat();
        rig.recv(1, frame(1, 5, 1, &head));
        rig.send(1, frame(1, 4, 1, &[&[0x88][..], &kind].concat()));
        rig.now += 49_000_000;
        let reset = frame(3, 0, 1, &[0, 0, 0, 8]);
        if by_client {
            rig.recv(1, reset);
        } else {
            rig.send(1, reset);
        }
        assert_eq!(rig.outcomes(), [expected], "{limit} {by_client}");
        assert_eq!(rig.finished()[0].timeout_ns, Some(if limit == "50m" { 50_000_000 } else { 200_000_000 }));
        rig.assert_replays();
    }
}

/// An error that comes as a message of the stream is an event without content.
#[test]
fn an_error_in_a_grpc_stream_is_no_content() {
    let mut rig = accepted();
    let kind = field("content-type", "application/grpc");
    let path = field(":path", "/inference.GRPCInferenceService/ModelStreamInfer");
    rig.recv(1, frame(1, 5, 1, &[&[0x83][..], &path, &kind].concat()));
    rig.send(1, frame(1, 4, 1, &[&[0x88][..], &kind].concat()));
    rig.send(1, frame(0, 0, 1, &message(b"\x12\x03\x0a\x01m")));
    rig.send(1, frame(0, 0, 1, &message(b"\x0a\x03no!")));
    rig.send(1, frame(1, 5, 1, &field("grpc-status", "0")));
    assert_eq!((rig.outcomes(), rig.finished()[0].content_total), (vec![Outcome::InBandError], 1));
    rig.assert_replays();
}

/// Blocks of 40 KiB, in as many frames as that takes, with other streams' frames before and after.
#[test]
fn large_metadata_takes_many_frames() {
    let long = (0..40).flat_map(|n| field(&format!("x-{n}-bin"), &"A".repeat(120))).collect::<Vec<u8>>();
    let large = |first: &[u8], last: &[u8]| [first, &long.repeat(8), last].concat();
    let mut rig = accepted();
    let head = large(&[0x83], &[field(":path", "/a"), field("x-request-id", "r2")].concat());
    let frames = |id: u32, block: &[u8], end: u8| {
        let parts: Vec<&[u8]> = block.chunks(16_384).collect();
        let last = parts.len() - 1;
        parts
            .iter()
            .enumerate()
            .map(|(at, part)| {
                let kind = if at == 0 { 1 } else { 9 };
                let flags = if at == 0 { end } else { 0 } | if at == last { 4 } else { 0 };
                frame(kind, flags, id, part)
            })
            .collect::<Vec<_>>()
            .concat()
    };
    let send = |rig: &mut Rig, dir, bytes: &[u8]| {
        bytes.chunks(1500).for_each(|piece| rig.call(1, dir, piece, (piece.len(), 0), piece.len()));
    };
    send(&mut rig, DIR_RECV, &frames(1, &head, 1));
    send(&mut rig, DIR_RECV, &frame(1, 5, 3, &post("/b")));
    send(&mut rig, DIR_SEND, &frames(1, &large(&[0x88], b""), 0));
    send(&mut rig, DIR_SEND, &frames(1, &large(b"", &field("grpc-status", "0")), 1));
    send(&mut rig, DIR_SEND, &frame(1, 5, 3, &[0x89]));
    let told: Vec<_> =
        rig.finished().iter().map(|e| (e.path.clone().unwrap(), e.request_id.clone())).collect();
    assert_eq!(told, [("/a".into(), Some("r2".into())), ("/b".into(), None)]);
    assert_eq!(rig.outcomes(), [Outcome::Ok; 2]);
    assert!(rig.finished()[0].flags.is_empty() && rig.finished()[0].bytes_in > 40_000);
    rig.assert_replays();
}
