//! Hand-made requests among others: what `usage` tells beyond events, and answers at once.

use super::scenarios::{ENGINE, MS, at_once, content, finished, read, run, step, stream};
use crate::{
    request::{RequestRecord, Requests, Settled, StepRecord, record::Confidence, told::StepKind},
    track::{Exchange, Tracked},
};

/// Steps of 10 ms from 100 to 200 ms, with a request 1 in flight all the time whose last event comes at 202 ms.
fn busy(exchange: &Exchange, read_ms: u64, events: &[u64]) -> Vec<Tracked> {
    let id = exchange.id.unwrap().0;
    let mut news = vec![read(1, 95)];
    let ends: Vec<u64> = (110..=200).step_by(10).collect();
    let mut told: Vec<(u64, Tracked)> = ends.iter().map(|end| (*end, step(ENGINE, end - 10, *end))).collect();
    told.extend(ends.iter().map(|end| (end + 2, content(1, end + 2))));
    told.extend(events.iter().map(|ms| (*ms, content(id, *ms))));
    told.push((read_ms, read(id, read_ms)));
    told.push((exchange.last_byte_out_ns.unwrap() / MS, finished(exchange.clone())));
    told.push((204, finished(stream(1, 95, &ends.iter().map(|end| end + 2).collect::<Vec<_>>()))));
    told.sort_by_key(|(ms, _)| *ms);
    news.extend(told.into_iter().map(|(_, news)| news));
    news.push(Tracked::End { time_ns: 300 * MS });
    news
}

fn second(news: Vec<Tracked>) -> RequestRecord {
    run(news).0.into_iter().find(|record| record.t_read_done_ns != Some(95 * MS)).unwrap()
}

fn ms(seconds: f64) -> f64 {
    (seconds * 1e3).round()
}

/// One token more than events: the last one had no text, or one event had two. Lags tell.
#[test]
fn a_token_without_an_event_of_its_own() {
    let with = |events: &[u64], end| Exchange {
        output_tokens: Some(events.len() as u64 + 1),
        last_byte_out_ns: Some(end * MS),
        ..stream(2, 115, events)
    };
    let cases: [(&str, &[u64], u64, f64); 2] = [
        ("no text at the end", &[132, 142, 152], 162, 30.0),
        ("two in the second", &[132, 152, 162], 163, 30.0),
    ];
    for (name, events, end, decode) in cases {
        let record = second(busy(&with(events, end), 115, events));
        assert_eq!((ms(record.stages["prefill_s"]), ms(record.stages["decode_s"])), (10.0, decode), "{name}");
        assert_eq!((record.steps, record.confidence), (Some(4), Some(Confidence::Estimated)), "{name}");
    }
}

/// More events than steps, as where an event is split: the ends are told all the same.
#[test]
fn no_stream_is_without_stages() {
    let events = [132, 133, 134, 142, 143];
    let record = second(busy(&stream(2, 115, &events), 115, &events));
    assert_eq!((ms(record.stages["prefill_s"]), ms(record.stages["decode_s"])), (10.0, 10.0));
    assert_eq!((record.steps, record.confidence), (None, Some(Confidence::Estimated)));
}

/// Its tokens and its end leave few places for an answer at once.
#[test]
fn an_answer_at_once_is_bounded_by_its_tokens() {
    let whole = Exchange { output_tokens: Some(4), ..at_once(2, 115, 182) };
    let record = second(busy(&whole, 115, &[]));
    assert_eq!(record.confidence, Some(Confidence::Bounded));
    // The latest step before its end is that of 170 to 180 ms; without lags learned it may be one of four.
    let [least, most] = record.stage_bounds["forward_s"].map(ms);
    assert!(least <= 40.0 && (40.0..=60.0).contains(&most), "{least} {most}");
    let [least, most] = record.stage_bounds["queue_s"].map(ms);
    assert!(least <= 25.0 && (25.0..=26.0).contains(&most), "{least} {most}");
}

/// What is told of steps: who was in them, for whom they were the first, and what cannot be known.
#[test]
fn steps_are_told_when_nobody_can_claim_them() {
    let told = |news: Vec<Tracked>| -> Vec<StepRecord> {
        let (mut requests, mut health, mut out) =
            (Requests::new(), crate::health::Health::default(), Vec::new());
        for news in news {
            requests.apply(news, &mut health, &mut out);
        }
        let told = |settled| match settled {
            Settled::Told(_, told) => Some(StepRecord::new("chat", told)),
            _ => None,
        };
        out.into_iter().filter_map(told).collect()
    };
    let batches = |steps: &[StepRecord]| steps.iter().map(|step| step.batch).collect::<Vec<_>>();
    let (one, two) = (Some(1), Some(2));
    let steps = told(busy(&stream(2, 115, &[132, 142, 152]), 115, &[132, 142, 152]));
    assert_eq!(batches(&steps), [one, one, two, two, two, one, one, one, one, one]);
    assert_eq!((steps[2].kind, steps[3].kind), (Some(StepKind::Prefill), Some(StepKind::Decode)));
    assert_eq!((steps[2].t_begin_ns, steps[2].t_end_ns), (120 * MS, 130 * MS));
    // An answer at once with unknown tokens may have been in any step from its read to its end.
    let unknown = Exchange { content_total: 0, ..at_once(2, 115, 142) };
    let steps = told(busy(&unknown, 115, &[]));
    assert_eq!(batches(&steps), [one, one, None, None, one, one, one, one, one, one]);
}
