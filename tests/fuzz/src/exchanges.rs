//! Calls on sockets: what must hold of any of them.

use std::mem::take;

use agent::{
    decode::decode,
    health::Health,
    pipeline::{Output, Pipeline, Settings},
    track::{Exchange, TrackSettings, Tracked, Tracker},
};
use wire::socket::{DIR_RECV, DIR_SEND, Data, ROLE_ACCEPTED, tcp};

use crate::{
    make::{Captured, Maker},
    script::{Act, Call, SOCKETS, calls},
};

/// The connection beside those of the script.
const GOOD: usize = SOCKETS;
const GOOD_REQUEST: &[u8] =
    b"POST /v1/completions HTTP/1.1\r\ncontent-length: 26\r\n\r\n{\"model\":\"m\",\"prompt\":\"a\"}";
const GOOD_ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-length: 38\r\n\r\n{\"model\":\"m\",\"choices\":[{\"text\":\"a\"}]}";
/// What shows that framing was lost. What is found again depends on where calls begin.
const LOST: [&str; 7] = [
    "bad_request",
    "bad_response",
    "not_http1",
    "bad_frame",
    "http2_headers_unknown",
    "response_without_request",
    "response_head_unseen",
];

/// Runs a script in every way that tells something.
pub fn run(data: &[u8]) {
    let calls = calls(data);
    undisturbed(&calls);
    replays(&calls);
    splits(&calls);
}

/// Exchanges of another connection come out as if nothing else were there.
fn undisturbed(calls: &[Call<'_>]) {
    let mut maker = opened(SOCKETS + 1);
    for call in calls {
        add(&mut maker, call);
        maker.call(GOOD, DIR_RECV, Captured::whole(GOOD_REQUEST));
        maker.call(GOOD, DIR_SEND, Captured::whole(GOOD_ANSWER));
    }
    let Tracking { exchanges, .. } = track(&mut maker.records);
    let good = exchanges.iter().filter(|e| e.connection.is_some_and(|id| id.sock == GOOD as u64 + 1));
    let mut number = 0;
    for exchange in good {
        number += 1;
        assert_eq!((exchange.status, exchange.model.as_deref()), (Some(200), Some("m")));
        assert_eq!(exchange.bytes_in, GOOD_REQUEST.len() as u64);
        assert_eq!(exchange.bytes_out, GOOD_ANSWER.len() as u64);
        assert!(exchange.flags.is_empty() && exchange.close_ns.is_none(), "{exchange:?}");
    }
    assert_eq!(number, calls.len(), "exchanges of the other connection");
}

/// A recording of what was masked gives what the live run gave.
fn replays(calls: &[Call<'_>]) {
    let mut maker = opened(SOCKETS);
    for call in calls {
        add(&mut maker, call);
    }
    maker.observe(&agent::decode::Observation::End);
    live_and_replay(&mut maker.records);
}

/// The same of any records.
pub(crate) fn live_and_replay(records: &mut [Vec<u8>]) {
    let live = process(records);
    let mut again = records.to_vec();
    let replay = process(&mut again);
    for (index, (once, twice)) in records.iter().zip(&again).enumerate() {
        assert!(once == twice, "record {index}:\n{}\n{}", once.escape_ascii(), twice.escape_ascii());
    }
    assert_eq!(live, replay);
}

fn process(records: &mut [Vec<u8>]) -> (Vec<String>, Health) {
    let mut pipeline = Pipeline::new(Settings {});
    let mut out: Vec<Output> = Vec::new();
    for record in records {
        pipeline.process(record, &mut out);
    }
    (out.iter().map(|output| format!("{output:?}")).collect(), pipeline.health().clone())
}

/// Where calls begin and end changes times, and nothing else.
fn splits(calls: &[Call<'_>]) {
    let mut whole = opened(1);
    let mut split = whole.clone();
    for (index, call) in calls.iter().enumerate() {
        whole.call(0, call.dir, Captured::whole(call.bytes));
        let mut rest = call.bytes;
        while !rest.is_empty() {
            let len = (piece(index, rest.len())).min(rest.len());
            let (piece, behind) = rest.split_at(len);
            split.call(0, call.dir, Captured::whole(piece));
            rest = behind;
        }
    }
    for maker in [&mut whole, &mut split] {
        maker.state(0, tcp::ESTABLISHED, tcp::CLOSE_WAIT);
        maker.state(0, tcp::CLOSE_WAIT, tcp::CLOSE);
    }
    let (a, b) = (track(&mut whole.records), track(&mut split.records));
    assert_eq!((a.held, b.held), (0, 0), "held for a connection that is closed");
    if LOST
        .iter()
        .any(|reason| a.health.ignored.contains_key(reason) || b.health.ignored.contains_key(reason))
    {
        return;
    }
    for (a, b) in a.exchanges.iter().zip(&b.exchanges) {
        assert_eq!(a, b);
    }
    assert_eq!(a.exchanges.len(), b.exchanges.len());
    for dir in [DIR_RECV, DIR_SEND] {
        let (a, b) = (payload(&whole.records, dir), payload(&split.records, dir));
        assert!(same(&a, &b), "masked:\n{}\n{}", a.escape_ascii(), b.escape_ascii());
    }
}

/// They differ only where one is masked: of a word from a list, the letters before a cut may stay.
fn same(a: &[u8], b: &[u8]) -> bool {
    let same = |(a, b): (&u8, &u8)| a == b || *a == b'x' || *b == b'x';
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Any lengths, the same in every run.
fn piece(index: usize, left: usize) -> usize {
    1 + (index.wrapping_mul(31) ^ left.wrapping_mul(0x9e37)) % 7 * (1 + left % 3)
}

/// What the tracker made of records.
struct Tracking {
    exchanges: Vec<Exchange>,
    health: Health,
    /// Bytes that the tracker still holds for peers.
    held: usize,
}

fn track(records: &mut [Vec<u8>]) -> Tracking {
    let mut tracker = Tracker::new(TrackSettings::default());
    let (mut health, mut out) = (Health::default(), Vec::new());
    for record in records {
        let event = decode(record).expect("a record of our own");
        tracker.feed(event, &mut health, &mut out);
    }
    let finished = out.into_iter().filter_map(|t| if let Tracked::Finished(e) = t { Some(*e) } else { None });
    Tracking { exchanges: finished.map(timeless).collect(), health, held: tracker.held() }
}

/// Without what depends on when and in how many calls.
fn timeless(exchange: Exchange) -> Exchange {
    let known = |time: Option<u64>| time.map(|_| 0);
    Exchange {
        content: Vec::new(),
        first_byte_in_ns: known(exchange.first_byte_in_ns),
        last_byte_in_ns: known(exchange.last_byte_in_ns),
        read_done_ns: known(exchange.read_done_ns),
        first_byte_out_ns: known(exchange.first_byte_out_ns),
        first_token_ns: known(exchange.first_token_ns),
        last_byte_out_ns: known(exchange.last_byte_out_ns),
        close_ns: known(exchange.close_ns),
        ..exchange
    }
}

fn payload(records: &[Vec<u8>], dir: u8) -> Vec<u8> {
    let is_data =
        |record: &&Vec<u8>| record.get(2..4) == Some(&(wire::Kind::SocketData as u16).to_le_bytes()[..]);
    let of_dir = |record: &&Vec<u8>| record.get(size_of::<Data>() - 2) == Some(&dir);
    let data = records.iter().filter(is_data).filter(of_dir);
    data.flat_map(|record| record[size_of::<Data>()..].iter().copied()).collect()
}

fn opened(sockets: usize) -> Maker {
    let mut maker = Maker::new(sockets);
    (0..sockets).for_each(|sock| maker.open(sock, ROLE_ACCEPTED, 0));
    maker
}

fn add(maker: &mut Maker, call: &Call<'_>) {
    let Call { sock, dir, act, bytes } = *call;
    match act {
        Act::Whole => maker.call(sock, dir, Captured::whole(bytes)),
        Act::Gap(cut) => maker.call(sock, dir, gap(bytes, cut)),
        Act::Behind(root) => {
            maker.skip(sock, dir, u64::from(root) * u64::from(root));
            maker.call(sock, dir, Captured::whole(bytes));
        }
        Act::Fail(which) => {
            let result = [0, -11, -32, -104, -5][usize::from(which) % 5];
            maker.call(sock, dir, Captured::failed(result));
        }
        Act::Life(what) => life(maker, sock, what),
        Act::Pieces(len) => bytes.chunks(usize::from(len).max(1)).for_each(|piece| {
            maker.call(sock, dir, Captured::whole(piece));
        }),
    }
}

/// Up to 15 times 8 bytes of the tail are captured, and a part of the rest.
fn gap(bytes: &[u8], cut: u8) -> Captured<'_> {
    let tail = (usize::from(cut & 15) * 8).min(bytes.len());
    let (before, tail) = bytes.split_at(bytes.len() - tail);
    Captured { head: &before[..before.len() * usize::from(cut >> 4) / 16], tail, ..Captured::whole(bytes) }
}

fn life(maker: &mut Maker, sock: usize, what: u8) {
    match what % 8 {
        role @ 0..=2 => maker.open(sock, role, what >> 3 & 1),
        3 => maker.state(sock, tcp::ESTABLISHED, tcp::CLOSE),
        4 => maker.state(sock, tcp::ESTABLISHED, tcp::CLOSE_WAIT),
        5 => maker.state(sock, tcp::CLOSE_WAIT, tcp::CLOSE),
        6 => maker.state(sock, tcp::ESTABLISHED, tcp::FIN_WAIT1),
        _ => maker.ack(sock),
    }
}

/// For targets that look at bodies.
pub(crate) fn masked(maker: &mut Maker) -> (Vec<Exchange>, [Vec<u8>; 2]) {
    let tracking = track(&mut maker.records);
    let records = take(&mut maker.records);
    (tracking.exchanges, [DIR_RECV, DIR_SEND].map(|dir| payload(&records, dir)))
}

/// One connection that was accepted.
pub(crate) fn connection() -> Maker {
    opened(1)
}
