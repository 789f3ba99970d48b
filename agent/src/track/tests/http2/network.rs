//! When requests of concurrent streams arrived, and when their answers were acknowledged.

use wire::socket::{Network, tcp};

use super::{
    super::rig::{PID, Rig},
    accepted, frame, message, post,
};
use crate::{
    request::record::Arrival,
    track::{ExchangeId, Tracked},
};

/// First and last byte, and how they are known, in the order of the streams.
fn arrivals(rig: &Rig) -> Vec<(u64, u64, Arrival)> {
    let of = |e: &&crate::track::Exchange| {
        (e.first_byte_in_ns.unwrap(), e.last_byte_in_ns.unwrap(), e.arrival.unwrap())
    };
    let mut finished = rig.finished();
    finished.sort_by_key(|e| e.id);
    finished.iter().map(of).collect()
}

fn deliveries(rig: &Rig) -> Vec<(u64, Option<u64>)> {
    let delivered = |t: &Tracked| match t {
        Tracked::Delivered { exchange: ExchangeId(id), delivery } => {
            Some((*id, delivery.map(|d| d.acked_ns / 1000)))
        }
        _ => None,
    };
    rig.out.iter().filter_map(delivered).collect()
}

fn len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap()
}

/// Three requests in one read, of three segments.
#[test]
fn each_stream_has_the_time_of_its_own_segments() {
    let requests = [1, 3, 5].map(|id| frame(1, 5, id, &post("/a")));
    let mut rig = accepted();
    rig.network = Network {
        first_ns: 100,
        last_ns: 300,
        first_len: len(&requests[0]),
        last_from: len(&requests[0]) + len(&requests[1]),
    };
    rig.recv(1, requests.concat());
    rig.network = Network::default();
    for id in [1, 3, 5] {
        rig.send(1, frame(1, 5, id, &[0x89]));
    }
    let expected = [(100, 100, Arrival::Wire), (300, 300, Arrival::Bounded), (300, 300, Arrival::Wire)];
    assert_eq!(arrivals(&rig), expected);
    rig.assert_replays();
}

/// The body of one stream comes around the whole request of another, in reads that cut frames.
#[test]
fn a_request_ends_with_its_own_last_byte() {
    let head = frame(1, 4, 1, &post("/v1/completions"));
    let other = frame(1, 5, 3, &post("/b"));
    let body = frame(0, 1, 1, br#"{"model":"m"}"#);
    let at_once = |ns| Network { first_ns: ns, last_ns: ns, first_len: u32::MAX, last_from: 0 };
    let mut rig = accepted();
    for (ns, bytes) in [
        (100, &head[..20]),
        (200, &[&head[20..], &other[..10]].concat()),
        (300, &[&other[10..], &body[..3]].concat()),
        (400, &body[3..]),
    ] {
        rig.network = at_once(ns);
        rig.recv(1, bytes);
    }
    rig.network = Network::default();
    for id in [1, 3] {
        rig.send(1, frame(1, 5, id, &[0x89]));
    }
    assert_eq!(arrivals(&rig), [(100, 400, Arrival::Wire), (200, 300, Arrival::Wire)]);
    rig.assert_replays();
}

/// The middle of a long body is not captured: its end arrived with the last segment all the same.
#[test]
fn a_gap_moves_no_arrival() {
    let head = frame(1, 4, 1, &post("/v1/completions"));
    let body = frame(0, 1, 1, &[b' '; 3000]);
    let next = frame(1, 5, 3, &post("/b"));
    let bytes = [&head[..], &body, &next].concat();
    let mut rig = accepted();
    let last_from = len(&bytes) - len(&next);
    rig.network = Network { first_ns: 100, last_ns: 900, first_len: 10, last_from };
    rig.recv(1, &bytes);
    rig.network = Network::default();
    for id in [1, 3] {
        rig.send(1, frame(1, 5, id, &[0x89]));
    }
    assert_eq!(arrivals(&rig), [(100, 900, Arrival::Bounded), (900, 900, Arrival::Wire)]);
}

/// An answer to a message of a stream that goes on: what was read by then had arrived by then.
#[test]
fn a_stream_of_requests_arrives_as_far_as_it_is_answered() {
    let head = [&[0x83][..], &super::field(":path", "/my.Service/Chat")].concat();
    let head = [head, super::field("content-type", "application/grpc")].concat();
    let mut rig = accepted();
    rig.network = Network { first_ns: 100, last_ns: 100, first_len: u32::MAX, last_from: 0 };
    rig.recv(1, [frame(1, 4, 1, &head), frame(0, 0, 1, &message(b"a"))].concat());
    rig.network = Network::default();
    rig.send(1, frame(1, 4, 1, &[&[0x88][..], &super::field("content-type", "application/grpc")].concat()));
    rig.send(1, frame(0, 0, 1, &message(b"b")));
    rig.network = Network { first_ns: 9000, last_ns: 9000, first_len: u32::MAX, last_from: 0 };
    rig.recv(1, frame(0, 1, 1, b""));
    rig.network = Network::default();
    rig.send(1, frame(1, 5, 1, &super::field("grpc-status", "0")));
    assert_eq!(arrivals(&rig), [(100, 100, Arrival::Wire)]);
}

/// Answers end in the middle of writes, and acknowledgements come in pieces.
#[test]
fn an_answer_is_delivered_when_its_own_last_byte_is_acknowledged() {
    let mut rig = accepted();
    rig.network = Network { first_ns: 100, last_ns: 100, first_len: u32::MAX, last_from: 0 };
    rig.recv(1, [1, 3, 5].map(|id| frame(1, 5, id, &post("/a"))).concat());
    rig.network = Network::default();
    let [first, second, third] = [1, 3, 5].map(|id| frame(1, 5, id, &[0x89]));
    let settings = super::SETTINGS.len() as u64;
    let ends = [first.len(), first.len() + second.len()].map(|end| settings + end as u64);
    rig.send(1, [&first[..], &second[..5]].concat());
    rig.send(1, [&second[5..], &third].concat());
    assert!(rig.finished().iter().all(|e| e.awaits_delivery));
    rig.ack(1, ends[0] - 1, 0);
    assert_eq!(deliveries(&rig), []);
    rig.ack(1, ends[1] - 1, 0);
    let at = rig.now / 1000;
    assert_eq!(deliveries(&rig), [(0, Some(at))]);
    rig.ack(1, ends[1], 0);
    assert_eq!(deliveries(&rig)[1..], [(1, Some(at + 1))]);
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE, PID);
    assert_eq!(deliveries(&rig)[2..], [(2, None)]);
    rig.assert_replays();
}

#[test]
fn an_acknowledgement_within_the_write_is_known_at_once() {
    let mut rig = accepted();
    rig.network = Network { first_ns: 100, last_ns: 100, first_len: u32::MAX, last_from: 0 };
    rig.recv(1, frame(1, 5, 1, &post("/a")));
    rig.network = Network { last_ns: 7777, ..Network::default() };
    rig.send(1, frame(1, 5, 1, &[0x89]));
    assert_eq!(rig.finished()[0].delivery.unwrap().acked_ns, 7777);
}

/// More answers than are waited for: those that are not, say so at once.
#[test]
fn deliveries_are_bounded() {
    let mut rig = accepted();
    rig.network = Network { first_ns: 100, last_ns: 100, first_len: u32::MAX, last_from: 0 };
    for n in 0..600 {
        rig.recv(1, frame(1, 5, 1 + 2 * n, &post("/a")));
        rig.network = Network::default();
        rig.send(1, frame(1, 5, 1 + 2 * n, &[0x89]));
        rig.network = Network { first_ns: 100, last_ns: 100, first_len: u32::MAX, last_from: 0 };
    }
    assert_eq!(rig.finished().iter().filter(|e| e.awaits_delivery).count(), 512);
    assert_eq!(rig.health.limits["deliveries"], 88);
}

fn window(stream: u32, by: u32) -> Vec<u8> {
    frame(8, 0, stream, &by.to_be_bytes())
}

/// A client that reads slowly lets the server wait: for the stream's window, for the connection's, and again.
#[test]
fn waiting_for_a_window_is_time_that_the_client_took() {
    let mut rig = accepted();
    rig.recv(1, frame(4, 0, 0, &[0, 4, 0, 0, 0x10, 0]));
    rig.recv(1, [1, 3].map(|id| frame(1, 5, id, &post("/a"))).concat());
    for id in [1, 3] {
        rig.send(1, frame(1, 4, id, &[0x88]));
    }
    let send = |rig: &mut Rig, id, len: usize, end| {
        let bytes = frame(0, end, id, &vec![b'a'; len]);
        bytes
            .chunks(1500)
            .for_each(|piece| rig.call(1, wire::socket::DIR_SEND, piece, (piece.len(), 0), piece.len()));
    };
    // The first has 4 KiB, and waits 3 ms for more.
    send(&mut rig, 1, 4096, 0);
    rig.now += 3_000_000;
    rig.recv(1, window(1, 65_536));
    send(&mut rig, 1, 100, 0);
    // The second's window grows too, but it had nothing to say for long.
    send(&mut rig, 3, 4096, 0);
    rig.now += 3_000_000;
    rig.recv(1, window(3, 65_536));
    rig.now += 50_000_000;
    // Both use up what they share.
    send(&mut rig, 3, 16_384, 0);
    send(&mut rig, 3, 16_384, 0);
    send(&mut rig, 3, 16_384, 0);
    send(&mut rig, 1, 65_535 - 4096 - 100 - 4096 - 3 * 16_384, 0);
    rig.now += 7_000_000;
    rig.recv(1, window(0, 100_000));
    send(&mut rig, 1, 10, 1);
    send(&mut rig, 3, 10, 1);
    let blocked: Vec<u64> = rig.finished().iter().map(|e| e.blocked_ns / 1_000_000).collect();
    assert_eq!(blocked, [10, 7]);
    rig.assert_replays();
}

/// After a loss nobody knows what may be sent.
#[test]
fn a_loss_makes_windows_unknown() {
    let mut rig = accepted();
    rig.recv(1, frame(1, 5, 1, &post("/a")));
    rig.send(1, frame(1, 4, 1, &[0x88]));
    rig.lose(1, wire::socket::DIR_RECV, 13);
    rig.recv(1, frame(6, 0, 0, &[0; 8]));
    for _ in 0..4 {
        let bytes = frame(0, 0, 1, &[b'a'; 16_384]);
        bytes
            .chunks(1500)
            .for_each(|piece| rig.call(1, wire::socket::DIR_SEND, piece, (piece.len(), 0), piece.len()));
    }
    rig.now += 9_000_000;
    rig.recv(1, window(0, 100_000));
    rig.send(1, frame(0, 1, 1, b"a"));
    assert_eq!(rig.finished()[0].blocked_ns, 0);
}

/// Windows that are shut from the start: the server waits with the first byte of a body.
#[test]
fn a_window_that_begins_shut_is_waited_for() {
    for shared in [false, true] {
        let mut rig = accepted();
        if shared {
            // Another answer has used up what they share.
            rig.recv(1, frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]));
            rig.recv(1, frame(1, 5, 1, &post("/a")));
            rig.send(1, frame(1, 4, 1, &[0x88]));
            let bytes = [16_384, 16_384, 16_384, 16_383].map(|len| frame(0, 0, 1, &vec![b'a'; len])).concat();
            bytes
                .chunks(1500)
                .for_each(|piece| rig.call(1, wire::socket::DIR_SEND, piece, (piece.len(), 0), piece.len()));
        } else {
            rig.recv(1, frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
        }
        rig.recv(1, frame(1, 5, 3, &post("/b")));
        // Before it answers, it waits for nothing.
        rig.now += 500_000_000;
        rig.send(1, frame(1, 4, 3, &[0x88]));
        rig.now += 1_000_000_000;
        rig.recv(1, window(if shared { 0 } else { 3 }, 65_536));
        rig.send(1, frame(0, 1, 3, b"a"));
        assert_eq!(rig.finished()[0].blocked_ns / 1_000_000, 1000, "shared {shared}");
        rig.assert_replays();
    }
}
