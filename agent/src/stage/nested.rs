//! A request that goes through a proxy: its stages.

use super::scenarios::{ENGINE, FRONT, MS, SERVICE, content, finished, one, stages, step, stream, want};
use crate::{
    request::record::{Confidence, Flag},
    track::{Client, Exchange, ExchangeId, ServiceId, Sight, Tracked},
};

const PROXY: u32 = 50;
const PROXY_SERVICE: ServiceId = ServiceId(7);

/// A request is read by a proxy at 100 ms and by the server at 110 ms; written by the server at 153 ms, by the proxy
/// at 155 ms.
fn pair(proxy_service: ServiceId) -> (Exchange, Exchange) {
    let outer = Exchange {
        pid: PROXY,
        service: Some(proxy_service),
        output_tokens: None,
        last_byte_out_ns: Some(155 * MS),
        ..stream(1, 100, &[144, 154])
    };
    let client = Some(Client { pid: PROXY, tid: 0 });
    (outer, Exchange { client, ..stream(2, 110, &[142, 152]) })
}

fn began(exchange: &Exchange) -> [Tracked; 2] {
    let (id, pid) = (exchange.id.unwrap(), exchange.pid);
    let time_ns = exchange.read_done_ns.unwrap();
    // Of the answer nothing is known yet.
    let asked = Sight { chunks: None, output_tokens: None, ..exchange.sight() };
    let asked = Sight { first_token_ns: None, last_byte_out_ns: None, ..asked };
    let read = Tracked::RequestRead {
        exchange: id,
        service: exchange.service.unwrap(),
        time_ns,
        tid: pid,
        client: exchange.client,
        sight: Box::new(asked),
    };
    [Tracked::Begun { exchange: id, pid, listener: None, time_ns }, read]
}

/// The news of a request alone, as they come.
fn news(proxy_service: ServiceId) -> Vec<Tracked> {
    let (outer, inner) = pair(proxy_service);
    let mut news: Vec<Tracked> = [&outer, &inner].into_iter().flat_map(began).collect();
    let of_outer = |ms: u64| {
        let event = crate::track::ContentEvent { time_ns: ms * MS, tid: PROXY };
        Tracked::Content { exchange: ExchangeId(1), event }
    };
    news.extend([
        step(ENGINE, 120, 140),
        content(2, 142),
        of_outer(144),
        step(ENGINE, 141, 150),
        content(2, 152),
        finished(inner),
        of_outer(154),
        finished(outer),
    ]);
    news
}

/// The proxy's time before the engine is preprocessing, behind it postprocessing, and all adds up. That the proxy is a
/// part of the service makes no difference: a request is in flight once.
#[test]
fn the_time_of_a_proxy_has_its_place() {
    for service in [PROXY_SERVICE, SERVICE] {
        let record = one(news(service));
        let all = [
            ("decode", 10),
            ("network_in", 1),
            ("network_out", 0),
            ("postprocess", 5),
            ("prefill", 20),
            ("preprocess", 20),
            ("queue", 0),
            ("unattributed", 0),
        ];
        assert_eq!(stages(&record), want(all), "{service:?}");
        assert_eq!((record.pid, record.confidence, record.steps), (PROXY, Some(Confidence::Exact), Some(2)));
        assert_eq!((record.inner_count, record.inner_pid), (Some(1), Some(FRONT)));
        assert_eq!((record.t_inner_read_done_ns, record.output_tokens), (Some(110 * MS), Some(2)));
        assert_eq!(record.batch_size_mean, Some(1.0), "it is not counted twice");
        assert!(record.stage_bounds.is_empty() && record.flags.is_empty(), "{record:?}");
    }
}

/// While the proxy has the request the engine's steps of others delay it as well.
#[test]
fn the_queue_begins_where_the_proxy_read() {
    for service in [PROXY_SERVICE, SERVICE] {
        let mut news = news(service);
        let at = news.iter().position(|news| matches!(news, Tracked::Step { .. })).unwrap();
        news.insert(at, step(ENGINE, 102, 118));
        let record = one(news);
        let stage = |name: &str| (1e3 * record.stages[name]).round();
        assert_eq!((stage("preprocess_s"), stage("queue_s")), (4.0, 16.0), "{service:?}");
    }
}

/// Without steps, what is known of the stages before and behind the server is said as bounds.
#[test]
fn without_steps_the_time_of_a_proxy_is_a_bound() {
    let mut news = news(PROXY_SERVICE);
    news.retain(|news| !matches!(news, Tracked::Step { .. }));
    let record = one(news);
    let bounds = |stage: &str| record.stage_bounds[stage].map(|s| (1e3 * s).round());
    assert_eq!((bounds("preprocess_s"), bounds("postprocess_s")), ([10.0, 53.0], [2.0, 45.0]));
    let total: f64 = record.stages.values().sum();
    assert!((total - record.e2e_s.unwrap()).abs() < 1e-9);
}

/// Two alike at once: whose steps they are is as sure as which of the two it is.
#[test]
fn a_guess_is_no_exact_stage() {
    let (outer, inner) = pair(PROXY_SERVICE);
    let other = Exchange { id: Some(ExchangeId(0)), ..outer.clone() };
    let mut all: Vec<Tracked> = began(&other).into_iter().collect();
    all.extend(news(PROXY_SERVICE));
    let record = one(all);
    assert_eq!((record.confidence, record.flags), (Some(Confidence::Estimated), vec![Flag::NestedGuessed]));
    assert_eq!(record.t_inner_last_byte_out_ns, inner.last_byte_out_ns);
}

/// An engine that asks another server in the course of its answer, as one that looks over what it says. Both have steps
/// of their own, `own` and `theirs`.
fn engine_that_asks(own: &[(u64, u64)], theirs: &[(u64, u64)]) -> crate::request::RequestRecord {
    const GUARD: u32 = 60;
    const GUARD_SERVICE: ServiceId = ServiceId(8);
    let outer = stream(1, 100, &[142, 152]);
    let inner = Exchange {
        pid: GUARD,
        service: Some(GUARD_SERVICE),
        client: Some(Client { pid: FRONT, tid: 0 }),
        streaming: Some(false),
        first_token_ns: None,
        content: Vec::new(),
        content_total: 0,
        output_tokens: None,
        last_byte_out_ns: Some(118 * MS),
        ..stream(2, 110, &[117])
    };
    let mut news: Vec<Tracked> = [&outer, &inner].into_iter().flat_map(began).collect();
    let on_guard = |(begin, end): &(u64, u64)| match step(GUARD, *begin, *end) {
        Tracked::Step { step, .. } => Tracked::Step { service: GUARD_SERVICE, step },
        other => other,
    };
    news.extend(theirs.iter().map(on_guard));
    news.push(finished(inner));
    for ((begin, end), written) in own.iter().zip([142, 152]) {
        news.extend([step(ENGINE, *begin, *end), content(1, written)]);
    }
    news.push(finished(outer));
    one(news)
}

#[test]
fn an_engine_that_asks_others_keeps_its_own_stages() {
    let record = engine_that_asks(&[(120, 140), (141, 150)], &[]);
    let stage = |name: &str| (1e3 * record.stages[name]).round();
    assert_eq!((stage("prefill_s"), stage("decode_s")), (20.0, 10.0), "{record:?}");
    assert_eq!((record.steps, record.inner_count), (Some(2), Some(1)));
    assert!(record.flags.is_empty(), "{:?}", record.flags);
}

#[test]
fn of_two_that_had_steps_the_longer_work_counts_and_that_is_a_guess() {
    let record = engine_that_asks(&[(120, 140), (141, 150)], &[(112, 116)]);
    let stage = |name: &str| (1e3 * record.stages[name]).round();
    assert_eq!((stage("prefill_s"), stage("decode_s")), (20.0, 10.0), "{record:?}");
    assert_eq!((record.confidence, record.flags), (Some(Confidence::Estimated), vec![Flag::NestedGuessed]));
}
