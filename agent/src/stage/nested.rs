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
