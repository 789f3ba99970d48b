//! Between which times the ends of a request's forward must lie.

use super::{
    super::{service::Service, step::StepLog},
    Question, Range,
};

/// What A1 and A2 say.
pub(super) fn range(q: Question<'_>, log: &StepLog, low: usize, known_first: Option<usize>) -> Option<Range> {
    let by_end = log.ended_by(q.end);
    let by_first = q.times.first().map_or(by_end, |t| log.ended_by(*t));
    let by_last = match q.times.last() {
        Some(t) if q.whole() && q.extra_tokens() == Some(0) => log.ended_by(*t),
        _ => by_end,
    };
    if by_first <= low {
        return None;
    }
    let first_launch = match known_first {
        Some(i) => [log.get(i).begin; 2],
        None => [earliest(log, low..by_first).max(q.read), latest(log, low..by_first)],
    };
    let each = if q.whole() { q.times.len().saturating_sub(1) } else { 0 };
    let result = |i: usize| log.get(i.min(by_last - 1)).end;
    Some(Range {
        first_launch,
        first_result: q.exchange.first_token_ns.map(|_| [log.get(low).end, log.get(by_first - 1).end]),
        last_result: [result(low + each), result(by_last - 1)],
        queue: first_launch.map(|t| log.busy_ns(q.read, t)),
    })
}

/// What they say of whichever engine of the service it was at. `None` where one of them does not tell.
pub(super) fn hull(q: Question<'_>, service: &Service) -> Option<Range> {
    let of = |pid: u32| {
        let log = &service.processes.get(&pid)?.log;
        let complete = log.complete_since(q.read);
        range(q, log, log.begun_after(q.read), None).filter(|_| complete)
    };
    let ranges: Vec<Range> = service.engines(q.read, q.end).into_iter().map(of).collect::<Option<_>>()?;
    ranges.into_iter().reduce(|a, b| Range {
        first_launch: around(a.first_launch, b.first_launch),
        first_result: a.first_result.zip(b.first_result).map(|(a, b)| around(a, b)),
        last_result: around(a.last_result, b.last_result),
        queue: around(a.queue, b.queue),
    })
}

fn around(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [a[0].min(b[0]), a[1].max(b[1])]
}

/// How many steps at either end of a range are looked at for the extreme begin: steps are sorted by their ends, and
/// more than this many are never in flight.
const IN_FLIGHT: usize = 16;

fn earliest(log: &StepLog, range: std::ops::Range<usize>) -> u64 {
    log.range(range).take(IN_FLIGHT).map(|s| s.begin).min().unwrap_or_default()
}

fn latest(log: &StepLog, range: std::ops::Range<usize>) -> u64 {
    log.range(range).rev().take(IN_FLIGHT).map(|s| s.begin).max().unwrap_or_default()
}
