//! When requests arrived and answers were acknowledged.

use wire::socket::{Network, tcp};

use super::{framing::post, rig::Rig};
use crate::{
    request::record::Arrival,
    track::{Delivery, Exchange, ExchangeId, Tracked},
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn request() -> String {
    post("/v1/chat/completions", r#"{"model":"m"}"#)
}

/// Arrival of a read whose bytes all came at once.
fn at_once(time_ns: u64) -> Network {
    Network { first_ns: time_ns, last_ns: time_ns, first_len: u32::MAX, last_from: 0 }
}

fn arrival(exchange: &Exchange) -> (Option<u64>, Option<u64>, Option<Arrival>) {
    (exchange.first_byte_in_ns, exchange.last_byte_in_ns, exchange.arrival)
}

fn deliveries(rig: &Rig) -> Vec<(ExchangeId, Option<Delivery>)> {
    let delivered = |t: &Tracked| match t {
        Tracked::Delivered { exchange, delivery } => Some((*exchange, *delivery)),
        _ => None,
    };
    rig.out.iter().filter_map(delivered).collect()
}

#[test]
fn a_request_begins_when_it_arrives() {
    type Case = (&'static str, Vec<Network>, (u64, u64, Arrival));
    let half = request().len() / 2;
    let cases: [Case; 4] = [
        ("in one segment", vec![at_once(100)], (100, 100, Arrival::Wire)),
        ("in two reads", vec![at_once(100), at_once(200)], (100, 200, Arrival::Wire)),
        ("beginning not known", vec![Network::default(), at_once(2_500)], (3_000, 4_000, Arrival::Read)),
        ("end not known", vec![at_once(100), Network::default()], (100, 4_000, Arrival::Bounded)),
    ];
    for (name, reads, (first, last, source)) in cases {
        let mut rig = Rig::new();
        rig.accept(1);
        let text = request();
        let parts = if reads.len() == 1 { vec![&text[..]] } else { vec![&text[..half], &text[half..]] };
        for (part, network) in parts.into_iter().zip(reads) {
            rig.network = network;
            rig.recv(1, part);
        }
        rig.network = Network::default();
        rig.send(1, OK);
        let finished = rig.finished();
        assert_eq!(arrival(finished[0]), (Some(first), Some(last), Some(source)), "{name}");
        rig.assert_replays();
    }
}

#[test]
fn pipelined_requests_have_each_its_own_arrival() {
    let mut rig = Rig::new();
    rig.accept(1);
    let one = u32::try_from(request().len()).unwrap();
    rig.network = Network { first_ns: 100, last_ns: 300, first_len: one, last_from: 2 * one };
    rig.recv(1, request().repeat(3));
    rig.network = Network::default();
    rig.send(1, OK.repeat(3));
    let all: Vec<_> = rig.finished().into_iter().map(arrival).collect();
    let times = |ns, source| (Some(ns), Some(ns), Some(source));
    let expected = [times(100, Arrival::Wire), times(300, Arrival::Bounded), times(300, Arrival::Wire)];
    assert_eq!(all, expected);
}

#[test]
fn an_answer_is_delivered_when_its_last_byte_is_acknowledged() {
    let len = OK.len() as u64;
    let mut rig = Rig::new();
    rig.accept(1);
    rig.network = at_once(100);
    rig.recv(1, request());
    rig.network = Network::default();
    rig.send(1, OK);
    assert!(rig.finished()[0].awaits_delivery);
    rig.ack(1, len - 1, 0);
    assert_eq!(deliveries(&rig), []);
    rig.ack(1, len, 2);
    let acked_ns = rig.now;
    let first = Delivery { acked_ns, srtt_us: Some(250), retransmits: Some(2) };
    assert_eq!(deliveries(&rig), [(ExchangeId(0), Some(first))]);
    rig.network = at_once(5_000);
    rig.recv(1, request());
    rig.network = Network { last_ns: 7_777, ..Network::default() };
    rig.send(1, OK);
    let second = rig.finished()[1].delivery.unwrap();
    assert_eq!((second.acked_ns, second.retransmits), (7_777, Some(0)), "acknowledged within the write");
    assert_eq!(second.srtt_us, Some(250), "as of the last acknowledgement that was told");
    rig.network = at_once(8_000);
    rig.recv(1, request());
    rig.network = Network { last_ns: 9_999, first_len: 40, last_from: 3, ..Network::default() };
    rig.send(1, OK);
    let third = Delivery { acked_ns: 9_999, srtt_us: Some(40), retransmits: Some(1) };
    assert_eq!(rig.finished()[2].delivery, Some(third), "and told with it");
    rig.assert_replays();
}

#[test]
fn an_acknowledgement_that_never_comes_is_said_to() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.network = at_once(100);
    rig.recv(1, request());
    rig.network = Network::default();
    rig.send(1, OK);
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE, 0);
    assert_eq!(deliveries(&rig), [(ExchangeId(0), None)]);
}

#[test]
fn a_close_by_the_server_does_not_end_the_wait() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.network = at_once(100);
    rig.recv(1, request());
    rig.network = Network::default();
    rig.send(1, OK);
    rig.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, super::rig::PID);
    rig.recv(1, "");
    rig.ack(1, OK.len() as u64, 0);
    assert!(deliveries(&rig)[0].1.is_some());
}

#[test]
fn where_arrivals_are_not_seen_nothing_is_waited_for() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, request());
    rig.send(1, OK);
    let finished = rig.finished();
    assert!(!finished[0].awaits_delivery && finished[0].delivery.is_none());
}
