//! News of exchanges to whole requests.

mod doubts;

use std::collections::BTreeMap;

use super::*;
use crate::{
    request::{
        record::Flag,
        requests::{Requests, Settled},
    },
    track::{Exchange, ServiceId, Tracked},
};

const MS: u64 = 1_000_000;
/// Processes of a chain: each is a service of its own.
const NGINX: u32 = 1;
const ROUTER: u32 = 2;
const ENGINE: u32 = 3;

/// News as the tracker tells them.
#[derive(Default)]
struct Rig {
    requests: Requests,
    health: Health,
    settled: Vec<Settled>,
    open: BTreeMap<u64, Exchange>,
}

impl Rig {
    /// A request is read by `pid` at `ms`, sent by `client`; `change` says what else is known of it.
    fn read(&mut self, id: u64, pid: u32, ms: u64, client: Option<u32>, change: impl FnOnce(&mut Exchange)) {
        let client = client.map(|pid| Client { pid, tid: 10 * pid });
        let mut exchange = Exchange {
            id: Some(ExchangeId(id)),
            service: Some(ServiceId(pid)),
            pid,
            reader_tid: 10 * pid,
            client,
            method: Some("POST".into()),
            path: Some("/v1/chat/completions".into()),
            first_byte_in_ns: Some(ms * MS),
            read_done_ns: Some(ms * MS),
            local_port: Some(8000),
            ..Exchange::default()
        };
        change(&mut exchange);
        self.apply(Tracked::Begun {
            exchange: ExchangeId(id),
            pid,
            listener: exchange.sight().listener,
            time_ns: ms * MS,
        });
        self.apply(Tracked::RequestRead {
            exchange: ExchangeId(id),
            service: ServiceId(pid),
            time_ns: ms * MS,
            tid: 10 * pid,
            client,
            sight: Box::new(exchange.sight()),
        });
        self.open.insert(id, exchange);
    }

    fn finish(&mut self, id: u64, ms: u64, change: impl FnOnce(&mut Exchange)) {
        let mut exchange = self.open.remove(&id).unwrap();
        exchange.status = Some(200);
        exchange.outcome = Some(Outcome::Ok);
        exchange.last_byte_out_ns = Some(ms * MS);
        change(&mut exchange);
        self.apply(Tracked::Finished(Box::new(exchange)));
    }

    fn apply(&mut self, news: Tracked) {
        self.requests.apply(news, &mut self.health, &mut self.settled);
    }

    fn tick(&mut self, ms: u64) {
        self.apply(Tracked::Tick { time_ns: ms * MS });
    }

    /// The requests so far, as `id: inner exchanges @ process of the last of them`, with a `?` where that was guessed.
    fn told(&self) -> Vec<String> {
        let requests = self.settled.iter().filter_map(|s| match s {
            Settled::Request(ended) => Some(&**ended),
            _ => None,
        });
        let line = |ended: &Ended| {
            let guessed = if ended.exchange.flags.contains(&Flag::NestedGuessed) { "?" } else { "" };
            let inner = ended.inner.map(|i| format!(": {} @ {}", i.count, i.pid)).unwrap_or_default();
            format!("{}{inner}{guessed}", ended.exchange.id.unwrap().0)
        };
        requests.map(line).collect()
    }

    fn last(&self) -> &Ended {
        self.settled
            .iter()
            .rev()
            .find_map(|s| if let Settled::Request(e) = s { Some(e) } else { None })
            .unwrap()
    }
}

fn nothing(_: &mut Exchange) {}

fn identified(id: &str) -> impl FnOnce(&mut Exchange) {
    let id = id.to_owned();
    move |exchange| exchange.request_id = Some(id)
}

#[test]
fn the_only_one_in_flight_is_it() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, |e| e.path = Some("/api/chat".into()));
    rig.read(1, ENGINE, 110, Some(NGINX), nothing);
    rig.finish(1, 200, |e| {
        e.model = Some("m".into());
        e.output_tokens = Some(9);
        e.tokens_source = Some("usage");
        e.finish_reason = Some("stop".into());
    });
    assert!(rig.told().is_empty(), "it waits for the outer one: {:?}", rig.told());
    rig.finish(0, 201, |e| e.outcome = Some(Outcome::ContentFilter));
    assert_eq!(rig.told(), ["0: 1 @ 3"]);
    let Ended { exchange, inner, .. } = rig.last();
    assert_eq!((exchange.path.as_deref(), exchange.last_byte_out_ns), (Some("/api/chat"), Some(201 * MS)));
    assert_eq!((exchange.model.as_deref(), exchange.output_tokens), (Some("m"), Some(9)));
    assert_eq!((exchange.finish_reason.as_deref(), exchange.tokens_source), (Some("stop"), Some("usage")));
    assert_eq!(exchange.outcome, Some(Outcome::ContentFilter), "what the client saw");
    let inner = inner.unwrap();
    assert_eq!((inner.read_done_ns, inner.last_byte_out_ns), (Some(110 * MS), Some(200 * MS)));
    assert_eq!(rig.health.requests["nested"], 1);
}

/// Records of two processors can come in the other order: then the outer one waits.
#[test]
fn the_outer_one_may_be_over_first() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, nothing);
    rig.read(1, ENGINE, 110, Some(NGINX), nothing);
    rig.finish(0, 200, |e| e.awaits_delivery = true);
    let delivery = Delivery { acked_ns: 5, srtt_us: None, retransmits: None };
    rig.apply(Tracked::Delivered { exchange: ExchangeId(0), delivery: Some(delivery) });
    assert!(rig.told().is_empty());
    rig.finish(1, 199, nothing);
    assert_eq!(rig.told(), ["0: 1 @ 3"]);
    assert_eq!((rig.last().exchange.delivery, rig.last().exchange.awaits_delivery), (Some(delivery), false));
}

#[test]
fn those_of_other_processes_and_of_nobody_stand_for_themselves() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, nothing);
    rig.read(1, ENGINE, 110, None, nothing);
    rig.read(2, ENGINE, 120, Some(ROUTER), nothing);
    rig.finish(1, 130, nothing);
    rig.finish(2, 131, nothing);
    rig.finish(0, 140, nothing);
    rig.read(3, ENGINE, 150, Some(NGINX), nothing);
    rig.finish(3, 160, nothing);
    assert_eq!(rig.told(), ["1", "2", "0", "3"]);
    assert_eq!(rig.health.requests["without_outer"], 2);
}

/// A proxy's own question whether the server lives, while it forwards something.
#[test]
fn a_probe_is_no_part_of_a_request_and_a_forwarded_probe_is_one_probe() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, nothing);
    rig.read(1, ENGINE, 110, Some(NGINX), |e| e.probe = true);
    rig.finish(1, 120, nothing);
    rig.finish(0, 130, nothing);
    assert_eq!((rig.told(), rig.health.requests["probe"]), (vec!["0".to_owned()], 1));
    rig.read(2, NGINX, 200, None, |e| e.probe = true);
    rig.read(3, ENGINE, 210, Some(NGINX), |e| e.probe = true);
    rig.finish(3, 220, nothing);
    rig.finish(2, 230, nothing);
    assert_eq!((rig.told(), rig.health.requests["probe"]), (vec!["0".to_owned()], 2));
}

#[test]
fn many_at_once_are_told_apart_by_their_ids_in_any_order() {
    let mut rig = Rig::default();
    for n in 0..8 {
        rig.read(n, NGINX, 100, None, identified(&format!("r{n}")));
    }
    for n in (0..8).rev() {
        rig.read(20 - n, ENGINE, 110, Some(NGINX), identified(&format!("r{n}")));
    }
    for n in [3, 0, 7, 1, 2, 6, 5, 4] {
        rig.finish(20 - n, 200 + n, nothing);
        rig.finish(n, 201 + n, nothing);
        assert_eq!(rig.told().pop().unwrap(), format!("{n}: 1 @ 3"));
    }
}

/// Nothing tells them apart but when they end: the second one's answer comes first.
#[test]
fn what_looks_the_same_is_guessed_and_flagged() {
    for is_reverse in [false, true] {
        let mut rig = Rig::default();
        let mut pairs = [(0, 2), (1, 3)];
        rig.read(0, NGINX, 100, None, nothing);
        rig.read(1, NGINX, 101, None, nothing);
        rig.read(2, ENGINE, 110, Some(NGINX), |e| e.max_tokens = Some(2));
        rig.read(3, ENGINE, 111, Some(NGINX), |e| e.max_tokens = Some(3));
        if is_reverse {
            pairs = [(0, 3), (1, 2)];
        }
        for ((outer, inner), ms) in pairs.into_iter().zip([200, 300]) {
            rig.finish(inner, ms, nothing);
            rig.finish(outer, ms + 1, nothing);
            assert_eq!(rig.told().pop().unwrap(), format!("{outer}: 1 @ 3?"));
            assert_eq!(rig.last().exchange.max_tokens, Some(inner), "{is_reverse}");
        }
    }
}

/// An answer that goes out while the one guessed for it still runs belongs to another one.
#[test]
fn a_guess_is_put_right_by_the_order_of_answers() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, nothing);
    rig.read(1, NGINX, 100, None, nothing);
    rig.read(2, ENGINE, 110, Some(NGINX), |e| e.max_tokens = Some(2));
    rig.read(3, ENGINE, 110, Some(NGINX), |e| e.max_tokens = Some(3));
    rig.finish(2, 200, nothing);
    rig.finish(1, 201, nothing);
    assert_eq!((rig.told(), rig.last().exchange.max_tokens), (vec!["1: 1 @ 3?".to_owned()], Some(2)));
    rig.finish(3, 300, nothing);
    rig.finish(0, 301, nothing);
    assert_eq!(rig.told(), ["1: 1 @ 3?", "0: 1 @ 3?"]);
}

#[test]
fn a_second_attempt_belongs_to_the_same_request() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, identified("a"));
    rig.read(1, NGINX, 100, None, identified("b"));
    rig.read(2, ENGINE, 110, Some(NGINX), identified("a"));
    rig.finish(2, 120, |e| {
        e.status = Some(503);
        e.outcome = Some(Outcome::Server5xx);
    });
    rig.read(3, ENGINE, 121, Some(NGINX), identified("a"));
    rig.read(4, ENGINE, 122, Some(NGINX), identified("b"));
    rig.finish(3, 200, |e| e.model = Some("m".into()));
    rig.finish(0, 201, nothing);
    assert_eq!((rig.told(), rig.last().exchange.model.as_deref()), (vec!["0: 2 @ 3".to_owned()], Some("m")));
    assert_eq!(rig.last().inner.unwrap().read_done_ns, Some(121 * MS), "the attempt that was answered");
    assert_eq!(rig.last().exchange.status, Some(200));
    rig.finish(4, 300, nothing);
    rig.finish(1, 301, nothing);
    assert_eq!(rig.told(), ["0: 2 @ 3", "1: 1 @ 3"]);
}

/// One question that becomes several, at the same time and one after the other; and answers out of a cache.
#[test]
fn several_and_none() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, nothing);
    rig.read(1, ENGINE, 110, Some(NGINX), nothing);
    rig.read(2, ENGINE, 110, Some(NGINX), nothing);
    rig.finish(2, 120, nothing);
    rig.finish(1, 121, nothing);
    rig.read(3, ENGINE, 130, Some(NGINX), nothing);
    rig.finish(3, 140, nothing);
    rig.finish(0, 150, nothing);
    rig.read(4, NGINX, 200, None, nothing);
    rig.finish(4, 201, nothing);
    assert_eq!(rig.told(), ["0: 3 @ 3", "4"]);
}

#[test]
fn a_chain_of_three_is_one() {
    let mut rig = Rig::default();
    for id in [0, 10] {
        rig.read(id, NGINX, 100, None, identified(&id.to_string()));
        rig.read(id + 1, ROUTER, 101, Some(NGINX), identified(&id.to_string()));
        rig.read(id + 2, ENGINE, 102, Some(ROUTER), identified(&id.to_string()));
    }
    // In order, and the ends in the other one.
    for id in [12, 11, 10, 0, 1, 2] {
        rig.finish(id, 200, nothing);
    }
    assert_eq!(rig.told(), ["10: 2 @ 3", "0: 2 @ 3"]);
}

/// The client leaves, and the server behind the proxy goes on: the record does not wait for that for long, and there
/// is no second one.
#[test]
fn what_goes_on_after_its_client_has_left_is_no_request() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, nothing);
    rig.read(1, ENGINE, 110, Some(NGINX), nothing);
    rig.finish(0, 200, |e| e.outcome = Some(Outcome::ClientDisconnect));
    rig.tick(200 + 999);
    assert!(rig.told().is_empty());
    rig.tick(200 + 1000);
    assert_eq!(rig.told(), ["0"]);
    rig.finish(1, 9000, nothing);
    assert_eq!(rig.told(), ["0"]);
    assert_eq!((rig.health.limits["nested_unfinished"], rig.health.ignored["nested_after_outer"]), (1, 1));
}

/// What has not answered when the client has the whole answer was no part of it.
#[test]
fn what_is_not_over_when_all_is_answered_is_a_request_of_its_own() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, nothing);
    rig.read(1, ENGINE, 110, Some(NGINX), nothing);
    rig.finish(0, 200, nothing);
    rig.tick(1200);
    rig.finish(1, 9000, nothing);
    assert_eq!(rig.told(), ["0", "1"]);
}

/// What began as a request was none: what seemed to belong to it stands for itself.
#[test]
fn nothing_is_lost_with_what_was_no_request() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, nothing);
    rig.read(1, ENGINE, 110, Some(NGINX), nothing);
    rig.finish(1, 200, nothing);
    rig.apply(Tracked::Forgotten { exchange: ExchangeId(0) });
    assert_eq!(rig.told(), ["1"]);
}

#[test]
fn the_end_of_a_run_hands_out_what_is_over() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, nothing);
    rig.read(1, ENGINE, 110, Some(NGINX), nothing);
    rig.read(2, NGINX, 120, None, nothing);
    rig.finish(1, 200, nothing);
    rig.read(3, ROUTER, 210, None, nothing);
    rig.read(4, ENGINE, 210, Some(ROUTER), nothing);
    rig.read(5, ENGINE, 210, Some(ROUTER), nothing);
    rig.finish(4, 220, nothing);
    rig.finish(3, 230, nothing);
    rig.apply(Tracked::End { time_ns: 300 * MS });
    assert_eq!(rig.told(), ["3: 1 @ 3", "1"], "what is over, with what is over of it");
    assert_eq!(rig.health.limits["requests_unfinished_at_end"], 3);
}

#[test]
fn nothing_stays_of_what_is_over_and_what_is_kept_is_bounded() {
    let mut rig = Rig::default();
    for n in 0..100 {
        rig.read(3 * n, NGINX, 100 + n, None, nothing);
        rig.read(3 * n + 1, ENGINE, 100 + n, Some(NGINX), nothing);
        rig.finish(3 * n + 1, 101 + n, nothing);
        rig.finish(3 * n, 101 + n, nothing);
        rig.apply(Tracked::Begun { exchange: ExchangeId(3 * n + 2), pid: NGINX, listener: None, time_ns: 0 });
        rig.apply(Tracked::Forgotten { exchange: ExchangeId(3 * n + 2) });
    }
    let (mut nesting, mut health, mut out) = (Nesting::default(), Health::default(), VecDeque::new());
    for id in 0..=KEPT as u64 {
        let begun = Begun { pid: NGINX, listener: None, time_ns: id };
        nesting.begun(ExchangeId(id), begun, &mut health, &mut out);
    }
    assert_eq!((nesting.all.len(), health.limits["nested_exchanges"]), (KEPT, 1));
    for id in 0..=KEPT as u64 {
        nesting.forget(ExchangeId(id), &mut health, &mut out);
    }
    let Nesting { all, answering, asking, guesses, waiting, whole, events: 0 } = &nesting else {
        panic!("events")
    };
    assert!(answering.is_empty() && asking.is_empty() && guesses.is_empty());
    assert!(all.is_empty() && waiting.is_empty() && whole.is_empty());
    assert_eq!(rig.told().len(), 100);
}

/// Work in the background of a process that answers a stream without end: nothing says whether it belongs to that.
#[test]
fn what_is_over_does_not_wait_for_a_stream_without_end() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, nothing);
    rig.read(1, ENGINE, 110, Some(NGINX), nothing);
    rig.finish(1, 200, nothing);
    rig.tick(200 + 59_999);
    assert!(rig.told().is_empty());
    rig.tick(200 + 60_000);
    assert_eq!(rig.told(), ["1?"]);
    assert_eq!(rig.health.limits["nested_apart"], 1);
    rig.read(2, ENGINE, 70_000, Some(NGINX), nothing);
    rig.finish(2, 70_100, nothing);
    rig.finish(0, 70_200, nothing);
    assert_eq!(rig.told(), ["1?", "0: 1 @ 3"], "what is younger still belongs to it");
}

#[test]
fn what_has_the_identifier_of_a_long_answer_waits_for_it() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, identified("a"));
    rig.read(1, ENGINE, 110, Some(NGINX), identified("a"));
    rig.finish(1, 200, nothing);
    for minute in 1..100 {
        rig.tick(60_001 * minute);
    }
    assert!(rig.told().is_empty(), "{:?}", rig.told());
    rig.finish(0, 7_000_000, nothing);
    assert_eq!(rig.told(), ["0: 1 @ 3"]);
    assert!(!rig.health.limits.contains_key("nested_apart"));
}

/// Processor time that a flood of requests takes which are all in flight, and sent by the server itself, ns.
fn flood(count: u64) -> u64 {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        1_000_000_000 * u64::try_from(time.tv_sec).unwrap() + u64::try_from(time.tv_nsec).unwrap()
    };
    let mut rig = Rig::default();
    let begin = now();
    for id in 0..count {
        rig.read(id, NGINX, 100, Some(NGINX), nothing);
    }
    for id in 0..count {
        rig.finish(id, 200, nothing);
    }
    assert_eq!(rig.told().len() as u64, count);
    now() - begin
}

/// What each of them costs does not grow with how many there are: for eight times as many it was 64 times as much.
#[test]
fn a_flood_costs_what_its_requests_cost() {
    let few = flood(500).max(1);
    let many = flood(4000);
    assert!(many < 32 * few, "{many} ns for 4000, {few} ns for 500");
}
