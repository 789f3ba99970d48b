//! Hand-made cases, from the tracker's values to the record.

use std::time::Duration;

use wire::{Header, Kind, cuda};

use super::{Names, report, simulator};
use crate::{
    health::Health,
    request::{
        RequestRecord, Requests, Settled,
        record::{Confidence, Flag, Outcome},
    },
    track::{ContentEvent, Exchange, ExchangeId, ServiceId, Tracked},
};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SERVICE: ServiceId = ServiceId(3);
pub(super) const FRONT: u32 = 1;
pub(super) const ENGINE: u32 = 10;

struct Fixed;

impl Names for Fixed {
    fn service_name(&self, _: ServiceId) -> &'static str {
        "chat"
    }
    fn comm(&self, pid: u32) -> Option<&str> {
        (pid == FRONT).then_some("api")
    }
    fn container(&self, _: u32) -> Option<&str> {
        None
    }
    fn wall_ns(&self, mono_ns: u64) -> Option<u64> {
        Some(1_700_000_000_000_000_000 + mono_ns)
    }
}

pub(super) fn run(news: Vec<Tracked>) -> (Vec<RequestRecord>, Health) {
    let (mut requests, mut health, mut settled) = (Requests::new(), Health::default(), Vec::new());
    for news in news {
        requests.apply(news, &mut health, &mut settled);
    }
    let records = settled.into_iter().filter_map(|s| match s {
        Settled::Request(ended) => Some(*ended),
        _ => None,
    });
    let records = records.map(|ended| report(ended, &Fixed, &mut health)).collect();
    (records, health)
}

pub(super) fn one(news: Vec<Tracked>) -> RequestRecord {
    let (mut records, _) = run(news);
    assert_eq!(records.len(), 1);
    records.remove(0)
}

pub(super) fn read(id: u64, ms: u64) -> Tracked {
    Tracked::RequestRead {
        exchange: ExchangeId(id),
        service: SERVICE,
        time_ns: ms * MS,
        tid: FRONT,
        client: None,
        sight: Box::default(),
    }
}

pub(super) fn step(pid: u32, begin: u64, end: u64) -> Tracked {
    Tracked::Step { service: SERVICE, step: simulator::marker(pid, pid, begin * MS, end * MS) }
}

pub(super) fn content(id: u64, ms: u64) -> Tracked {
    Tracked::Content { exchange: ExchangeId(id), event: event(ms) }
}

fn event(ms: u64) -> ContentEvent {
    ContentEvent { time_ns: ms * MS, tid: FRONT }
}

/// A stream read at `read` ms with content at `content` ms.
pub(super) fn stream(id: u64, read: u64, content: &[u64]) -> Exchange {
    let content: Vec<_> = content.iter().map(|ms| event(*ms)).collect();
    Exchange {
        id: Some(ExchangeId(id)),
        service: Some(SERVICE),
        pid: FRONT,
        reader_tid: FRONT,
        streaming: Some(true),
        outcome: Some(Outcome::Ok),
        status: Some(200),
        first_byte_in_ns: Some((read - 1) * MS),
        last_byte_in_ns: Some(read * MS),
        read_done_ns: Some(read * MS),
        first_token_ns: content.first().map(|e| e.time_ns),
        last_byte_out_ns: content.last().map(|e| e.time_ns + MS),
        content_total: content.len() as u64,
        output_tokens: Some(content.len() as u64),
        content,
        ..Exchange::default()
    }
}

/// An answer that came at once, at `end` ms.
pub(super) fn at_once(id: u64, read: u64, end: u64) -> Exchange {
    let last_byte_out_ns = Some(end * MS);
    Exchange { streaming: Some(false), output_tokens: None, last_byte_out_ns, ..stream(id, read, &[]) }
}

pub(super) fn finished(exchange: Exchange) -> Tracked {
    Tracked::Finished(Box::new(exchange))
}

/// Stages in milliseconds.
pub(super) fn stages(record: &RequestRecord) -> Vec<(&str, Duration)> {
    record.stages.iter().map(|(k, v)| (k.trim_end_matches("_s"), Duration::from_secs_f64(*v))).collect()
}

pub(super) fn want<const N: usize>(stages: [(&'static str, u64); N]) -> Vec<(&'static str, Duration)> {
    stages.map(|(stage, ms)| (stage, Duration::from_millis(ms))).to_vec()
}

/// Two steps in flight, the first of them somebody's who is gone.
fn alone() -> Vec<Tracked> {
    vec![
        read(1, 100),
        step(ENGINE, 90, 110),
        step(ENGINE, 105, 140),
        content(1, 142),
        step(ENGINE, 130, 150),
        content(1, 152),
        step(ENGINE, 145, 160),
        content(1, 163),
        finished(stream(1, 100, &[142, 152, 163])),
    ]
}

#[test]
fn a_stream_alone() {
    let record = one(alone());
    let want = [
        ("decode", 20),
        ("network_in", 1),
        ("network_out", 0),
        ("postprocess", 4),
        ("prefill", 35),
        ("preprocess", 0),
        ("queue", 5),
        ("unattributed", 0),
    ];
    assert_eq!(stages(&record), self::want(want));
    assert_eq!(record.confidence, Some(Confidence::Exact));
    assert_eq!(
        (record.steps, record.batch_size_mean, record.gpu_active_s),
        (Some(3), Some(1.0), Some(0.055))
    );
    assert_eq!((record.e2e_s, record.ttft_s, record.tpot_s), (Some(0.065), Some(0.043), Some(0.0105)));
    assert_eq!((record.tbt_p50_s, record.tbt_max_s), (Some(0.010), Some(0.011)));
    assert_eq!((record.comm.as_str(), record.service.as_str(), record.sampled), ("api", "chat", true));
    assert_eq!(record.ts.as_deref(), Some("2023-11-14T22:13:20.099000000Z"));
    assert!(record.stage_bounds.is_empty() && record.flags.is_empty());
}

#[test]
fn a_begin_that_is_not_known_is_not_exact() {
    let mut news = alone();
    if let Tracked::Step { step, .. } = &mut news[2] {
        step.flags = cuda::STEP_FIRST_BOUNDED;
    }
    let record = one(news);
    assert_eq!(record.confidence, Some(Confidence::Estimated));
    assert!(record.stage_bounds.contains_key("prefill_s"));
}

#[test]
fn nothing_is_exact_after_a_loss() {
    let (mut requests, mut health, mut settled) = (Requests::new(), Health::default(), Vec::new());
    for (i, news) in alone().into_iter().enumerate() {
        if i == 4 {
            health.kernel.insert("drop_step_ring_full".to_owned(), 1);
            requests.apply(Tracked::Tick { time_ns: 141 * MS }, &mut health, &mut settled);
        }
        requests.apply(news, &mut health, &mut settled);
    }
    let Some(Settled::Request(ended)) = settled.pop() else { panic!("{settled:?}") };
    assert_eq!(ended.assignment.confidence, Some(Confidence::Estimated));
}

#[test]
fn an_answer_at_once() {
    let news = |other: bool| {
        let mut news = vec![read(1, 100)];
        news.extend(other.then(|| read(2, 101)));
        news.extend([step(ENGINE, 110, 120), step(ENGINE, 125, 150)]);
        news.push(finished(at_once(1, 100, 160)));
        news
    };
    let record = one(news(false));
    assert_eq!((record.confidence, record.steps), (Some(Confidence::Exact), Some(2)));
    assert_eq!(record.stages.get("forward_s"), Some(&0.040));
    assert_eq!(record.gpu_active_s, Some(0.035));
    assert!(record.chunks.is_none() && record.tokens_source.is_none());
    let record = one(news(true));
    assert_eq!((record.confidence, record.steps), (Some(Confidence::Bounded), None));
    assert_eq!(stages(&record), want([("network_in", 1), ("network_out", 0), ("unattributed", 60)]));
    // Wider by what the times of probes leave open.
    assert_eq!(record.stage_bounds.get("forward_s"), Some(&[0.0, 0.040_24]));
    assert_eq!(record.stage_bounds.get("queue_s"), Some(&[0.0, 0.010_21]));
    assert_eq!(record.stage_bounds.get("postprocess_s"), Some(&[0.009_79, 0.040_24]));
}

#[test]
fn an_engine_that_may_go_on_with_an_aborted_request() {
    let mut gone = stream(1, 100, &[112]);
    gone.outcome = Some(Outcome::ClientDisconnect);
    let (records, _) = run(vec![
        read(1, 100),
        step(ENGINE, 101, 110),
        content(1, 112),
        finished(gone),
        read(2, 115),
        step(ENGINE, 116, 120),
        step(ENGINE, 121, 130),
        finished(at_once(2, 115, 135)),
    ]);
    assert_eq!(records[1].confidence, Some(Confidence::Bounded));
}

#[test]
fn no_step_that_could_be_its_own() {
    let record = one(vec![step(ENGINE, 10, 20), read(1, 100), finished(at_once(1, 100, 105))]);
    assert_eq!((record.confidence, record.steps), (Some(Confidence::Estimated), Some(0)));
    assert_eq!(stages(&record), want([("network_in", 1), ("network_out", 0), ("unattributed", 5)]));
    let record = one(vec![read(1, 100), finished(at_once(1, 100, 105))]);
    assert_eq!((record.confidence, record.steps), (Some(Confidence::Bounded), None), "no GPU process known");
}

#[test]
fn several_gpu_processes() {
    let ranks = |returns: bool| {
        let mut news = vec![read(1, 100)];
        for (begin, end) in [(105, 140), (141, 150)] {
            news.push(step(ENGINE, begin, end));
            let mut other = simulator::marker(11, 11, begin * MS, end * MS + 1);
            other.work.d2h_bytes = if returns { 4 } else { 0 };
            news.push(Tracked::Step { service: SERVICE, step: other });
            news.push(content(1, end + 1));
        }
        news.push(finished(stream(1, 100, &[141, 151])));
        one(news)
    };
    assert_eq!(ranks(false).confidence, Some(Confidence::Estimated), "output rank");
    let unclear = ranks(true);
    assert_eq!(unclear.confidence, Some(Confidence::Bounded));
    let prefill =
        unclear.stage_bounds["prefill_s"].map(|seconds| Duration::from_secs_f64(seconds).as_millis());
    assert_eq!(prefill, [34, 35], "whichever of the two it was");
    assert!(!unclear.stages.contains_key("prefill_s"), "a bound is no stage");
}

#[test]
fn probes_are_counted_and_their_steps_stay() {
    let mut probe = at_once(1, 100, 130);
    probe.probe = true;
    let (records, health) = run(vec![read(1, 100), step(ENGINE, 105, 120), finished(probe)]);
    assert!(records.is_empty());
    assert_eq!(health.requests["probe"], 1);
    // The probe is still in flight when the request is read: its step is queue, and nothing is exact by being alone.
    let mut probe = at_once(1, 90, 145);
    probe.probe = true;
    let (records, _) = run(vec![
        read(1, 90),
        read(2, 100),
        step(ENGINE, 95, 120),
        step(ENGINE, 121, 140),
        content(2, 141),
        finished(probe),
        step(ENGINE, 142, 150),
        content(2, 151),
        finished(stream(2, 100, &[141, 151])),
    ]);
    assert_eq!(records[0].confidence, Some(Confidence::Estimated));
    assert_eq!(records[0].stages.get("queue_s"), Some(&0.020));
}

#[test]
fn began_before_the_agent() {
    let mut exchange = stream(1, 100, &[141, 151]);
    exchange.first_byte_in_ns = None;
    exchange.last_byte_in_ns = None;
    exchange.read_done_ns = None;
    exchange.flags = vec![Flag::MidStream];
    let (records, health) = run(vec![
        step(ENGINE, 105, 140),
        content(1, 141),
        step(ENGINE, 141, 150),
        content(1, 151),
        finished(exchange),
    ]);
    let record = &records[0];
    assert!(record.e2e_s.is_none() && record.stages.is_empty() && record.confidence.is_none());
    assert!(record.ttft_s.is_none() && record.ts.is_none());
    assert_eq!((record.chunks, record.tbt_p50_s), (Some(2), Some(0.010)));
    assert_eq!(
        (record.flags.as_slice(), health.ignored["content_of_unknown_request"]),
        (&[Flag::MidStream][..], 2)
    );
}

#[test]
fn a_stream_without_usage_counts_chunks() {
    let mut exchange = stream(1, 100, &[141, 151, 161]);
    exchange.output_tokens = None;
    let record = one(vec![read(1, 100), finished(exchange)]);
    assert_eq!((record.output_tokens, record.tokens_source.as_deref()), (None, Some("chunks")));
    assert_eq!(record.tpot_s, Some(0.010));
}

#[test]
fn gaps_of_interleaved_choices_are_not_token_gaps() {
    let mut exchange = stream(1, 100, &[141, 142, 151, 152]);
    exchange.interleaved = true;
    let mut news = vec![read(1, 100), step(ENGINE, 105, 140), step(ENGINE, 142, 150)];
    news.push(finished(exchange));
    let record = one(news);
    assert!(record.tpot_s.is_none() && record.tbt_p50_s.is_none() && record.steps.is_none());
    assert_eq!(record.confidence, Some(Confidence::Estimated));
    assert_eq!(record.stages.get("decode_s"), Some(&0.010));
}

#[test]
fn content_that_was_missed() {
    let mut exchange = stream(1, 100, &[151, 161]);
    exchange.flags = vec![Flag::Gap];
    exchange.first_token_ns = None;
    let mut news = vec![read(1, 100), step(ENGINE, 105, 140), step(ENGINE, 142, 150), step(ENGINE, 152, 160)];
    news.push(finished(exchange));
    let record = one(news);
    assert_eq!((record.confidence, record.steps), (Some(Confidence::Estimated), None));
    assert!(record.stages.contains_key("forward_s") && !record.stages.contains_key("prefill_s"));
    assert!(record.stage_bounds.contains_key("forward_s"));
}

/// Events that may be missing make neither a gap between tokens nor a count; the way from first to last stays.
#[test]
fn gaps_between_events_of_which_some_were_missed() {
    let mut exchange = stream(1, 100, &[141, 151, 161]);
    exchange.flags = vec![Flag::Gap];
    exchange.content_missed = true;
    let record = one(vec![read(1, 100), finished(exchange.clone())]);
    assert_eq!((record.ttft_s, record.tpot_s), (Some(0.042), Some(0.010)));
    assert_eq!((record.chunks, record.tbt_p50_s, record.tbt_max_s), (Some(3), None, None));
    assert!(record.tbt_gaps_s.is_empty());
    exchange.end_missed = true;
    let record = one(vec![read(1, 100), finished(exchange.clone())]);
    assert_eq!((record.ttft_s, record.tpot_s), (Some(0.042), None), "the last one may be missing");
    exchange.end_missed = false;
    exchange.output_tokens = None;
    let record = one(vec![read(1, 100), finished(exchange)]);
    assert_eq!((record.tpot_s, record.tokens_source), (None, None), "nothing to count by");
}

#[test]
fn memory_calls_within_the_forward() {
    let call = |begin: u64, end: u64| {
        let header = Header {
            abi: wire::ABI,
            kind: Kind::Memory as u16,
            len: 0,
            time_ns: end * MS,
            tgid: ENGINE,
            tid: ENGINE,
        };
        let memory = wire::memory::Call {
            header,
            enter_ns: begin * MS,
            context: 0,
            bytes: 1,
            address: 1,
            other: 0,
            row: 0,
            class: 0,
            flags: 0,
            result: 0,
        };
        Tracked::Memory { service: SERVICE, memory }
    };
    let mut news = alone();
    news.splice(3..3, [call(101, 104), call(104, 109), call(130, 133), call(131, 132)]);
    let (records, health) = run(news);
    assert_eq!(records[0].alloc_wait_s, Some(0.007), "clipped to the forward, overlaps once");
    assert!(health.limits.is_empty());
}

#[test]
fn negative_intervals_are_zero_flagged_and_counted() {
    let (records, health) = run(vec![read(1, 100), finished(at_once(1, 100, 99))]);
    assert_eq!(records[0].flags, [Flag::ClockAdjusted]);
    assert_eq!(health.requests["clock_adjusted"], 1);
    assert_eq!(records[0].e2e_s, Some(0.0));
}

#[test]
fn the_end_leaves_nothing_behind() {
    let (records, health) = run(vec![
        read(1, 100),
        read(2, 100),
        Tracked::End { time_ns: 200 * MS },
        finished(stream(1, 100, &[141])),
    ]);
    assert_eq!(health.limits["requests_unfinished_at_end"], 2);
    assert!(records[0].confidence.is_none());
}

/// The same news give the same bytes.
#[test]
fn replays_to_the_same_bytes() {
    let plan = simulator::Plan { clients: 16, requests: 200, streaming: 80, abort: 10, ..simulator::PLAN };
    let json = || {
        let (records, _) = run(simulator::simulate(plan).news);
        serde_json::to_string(&records).expect("records are plain values")
    };
    assert_eq!(json(), json());
}
