//! The cases, one function each; what they rest on is told in the module above.

use super::{
    super::{
        align::{Problem, Scratch, align},
        record::Confidence,
        service::{Engine, Service},
        step::StepLog,
    },
    Placed, Question,
};

/// The steps of a request by the strongest case that holds; `None` when only bounds are known.
pub(super) fn place(
    q: Question<'_>,
    engine: Engine,
    service: &Service,
    low: usize,
    scratch: &mut Scratch,
) -> Option<Placed> {
    let log = &service.processes[&engine.pid].log;
    let alone = engine.only && q.live.alone();
    if q.times.is_empty() {
        if q.exchange.streaming == Some(true) {
            return None;
        }
        let sure = alone && !service.leftovers(q.read);
        let alone = if sure { alone_at_once(q, log, low, service.strays(q.read)) } else { None };
        return alone.or_else(|| one_thread_at_once(q, service, log, low));
    }
    if q.exchange.interleaved {
        return interleaved(q, log, low);
    }
    let exact = || {
        let found = if alone { alone_in_turn(q, log, low) } else { None };
        found.or_else(|| one_thread(q, service, log, low))
    };
    let exact = if q.whole() { exact() } else { None };
    exact.or_else(|| aligned(q, service, log, low, scratch)).or_else(|| interleaved(q, log, low))
}

/// All steps of `range` began after the read, and the begin of the first is known.
fn sound(q: Question<'_>, log: &StepLog, range: std::ops::Range<usize>) -> bool {
    !range.is_empty() && !log.get(range.start).bounded && log.range(range).all(|s| s.begin >= q.read)
}

/// Alone, and the answer came at once. Where the engine is known to run steps for nobody as well, only their number
/// tells that none is among these.
fn alone_at_once(q: Question<'_>, log: &StepLog, low: usize, strays: bool) -> Option<Placed> {
    let steps = low..log.ended_by(q.end);
    let counted = q.exchange.output_tokens == Some(steps.len() as u64);
    (sound(q, log, steps.clone()) && (counted || !strays)).then(|| Placed::exact(steps, None))
}

/// Alone, and as many steps as events or tokens.
fn alone_in_turn(q: Question<'_>, log: &StepLog, low: usize) -> Option<Placed> {
    let (first, last) = (*q.times.first()?, *q.times.last()?);
    let (by_first, by_last, by_end) = (log.ended_by(first), log.ended_by(last), log.ended_by(q.end));
    let steps = if by_last == low + q.times.len() {
        low..last_own(q, by_last, by_end)?
    } else if by_first == low + 1 && q.exchange.output_tokens == Some((by_end - low) as u64) {
        low..by_end
    } else {
        return None;
    };
    let in_turn = q.times.iter().zip(low..).all(|(t, i)| i < by_last && log.get(i).end <= *t);
    (in_turn && sound(q, log, steps.clone())).then(|| Placed::exact(steps, Some(0)))
}

/// The end of its steps, when `by_last` had ended by the last event and `by_end` by the end of the answer: a step
/// between them was its own if `usage` has a token for it, and is not known to be its own otherwise.
fn last_own(q: Question<'_>, by_last: usize, by_end: usize) -> Option<usize> {
    match (by_end - by_last, q.extra_tokens()) {
        (0, _) | (_, Some(0)) => Some(by_last),
        (1, Some(1)) => Some(by_end),
        _ => None,
    }
}

/// One request at a time on one thread that does everything.
fn one_thread(q: Question<'_>, service: &Service, log: &StepLog, low: usize) -> Option<Placed> {
    let first = q.live.first.filter(|_| q.live.one_thread)?;
    if service.writers.batches(q.live.reader_tid) {
        return None;
    }
    let from = low.max(log.ended_by(first.boundary_ns));
    let by_first = log.ended_by(*q.times.first()?);
    let leading = by_first.checked_sub(from)?;
    let one_each = q.times.windows(2).all(|w| log.ended_by(w[1]) == log.ended_by(w[0]) + 1);
    if leading == 0 || !one_each {
        return None;
    }
    let by_last = by_first + q.times.len() - 1;
    let steps = from..last_own(q, by_last, log.ended_by(q.end))?;
    let steps = on_thread(q, log, &steps).then_some(steps)?;
    let confidence = if leading > 1 && first.company { Confidence::Estimated } else { Confidence::Exact };
    Some(Placed { confidence, ..Placed::exact(steps, Some(leading - 1)) })
}

/// One request at a time on one thread, and the answer came at once: the steps since the write before.
fn one_thread_at_once(q: Question<'_>, service: &Service, log: &StepLog, low: usize) -> Option<Placed> {
    if service.writers.batches(q.live.reader_tid) {
        return None;
    }
    let steps = low.max(log.ended_by(q.live.boundary_ns))..log.ended_by(q.end);
    let steps = on_thread(q, log, &steps).then_some(steps)?;
    Some(Placed { confidence: Confidence::Estimated, ..Placed::exact(steps, None) })
}

/// The steps are sound, and the thread that read the request waited for all of them.
fn on_thread(q: Question<'_>, log: &StepLog, steps: &std::ops::Range<usize>) -> bool {
    sound(q, log, steps.clone()) && log.range(steps.clone()).all(|s| s.tid == q.live.reader_tid)
}

/// Several choices share the steps: the latest step before the first and before the last event.
fn interleaved(q: Question<'_>, log: &StepLog, low: usize) -> Option<Placed> {
    let (first, last) = (log.ended_by(*q.times.first()?), log.ended_by(*q.times.last()?));
    let start = first.checked_sub(1).filter(|s| *s >= low)?;
    let steps = Placed::exact(start..last, Some(0));
    Some(Placed { confidence: Confidence::Estimated, counted: false, ..steps })
}

/// What may be the case where there are more tokens than events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tokens {
    /// Each has its event.
    Each,
    /// The last one had no text, and the end of the answer stands for its event.
    SilentEnd,
    /// Some events hold several.
    Coalesced,
}

/// Mean cost by which an event with two tokens must be the better explanation than a last token without text, nats.
const RARER: f32 = 0.25;

/// The cheapest increasing sequence of steps.
fn aligned(
    q: Question<'_>,
    service: &Service,
    log: &StepLog,
    low: usize,
    scratch: &mut Scratch,
) -> Option<Placed> {
    let mut along = |tokens| {
        let mut times = q.times.to_vec();
        times.extend((tokens == Tokens::SilentEnd).then_some(q.end));
        let coalesced = tokens == Tokens::Coalesced;
        let problem = Problem { log, low, times: &times, lags: &service.lags, coalesced };
        align(problem, scratch).map(|path| (tokens, path))
    };
    let (tokens, path) = match q.extra_tokens().filter(|_| q.whole()) {
        Some(0) => along(Tokens::Each)?,
        Some(1) => match (along(Tokens::SilentEnd), along(Tokens::Coalesced)) {
            (Some(silent), Some(two)) if silent.1.mean_cost <= two.1.mean_cost + RARER => silent,
            (silent, two) => two.or(silent)?,
        },
        None if q.whole() => along(Tokens::Each)?,
        _ => along(Tokens::Coalesced)?,
    };
    let fits = service.lags.plausible(path.mean_cost);
    let known = known_first(q, service, log, low);
    Some(along_path(q, path.own, tokens, fits, known))
}

/// The placement that a path means. Where several tokens in an event are as many as the steps passed over, those were
/// its own too. A path whose lags do not look like this service's is not counted on for more than its ends.
fn along_path(
    q: Question<'_>,
    path: Vec<usize>,
    tokens: Tokens,
    fits: bool,
    known_first: Option<usize>,
) -> Placed {
    let (start, end) = (path[0], path[path.len() - 1] + 1);
    let gapless =
        tokens == Tokens::Coalesced && q.whole() && q.exchange.output_tokens == Some((end - start) as u64);
    let mut own: Vec<usize> = (known_first.unwrap_or(start).min(start)..start).collect();
    let first_event = Some(own.len());
    if gapless {
        own.extend(start..end);
    } else {
        own.extend(path);
    }
    let counted = fits && (gapless || tokens != Tokens::Coalesced);
    Placed { confidence: Confidence::Estimated, own, first_event, counted, one_each: !gapless }
}

/// The first step, where it is known: the request came alone, and began before another came.
pub(super) fn known_first(q: Question<'_>, service: &Service, log: &StepLog, low: usize) -> Option<usize> {
    if !q.live.alone_at_read || service.leftovers(q.read) || service.strays(q.read) || low >= log.len() {
        return None;
    }
    let step = log.get(low);
    (!step.bounded && q.live.joined_ns.is_none_or(|t| step.begin < t)).then_some(low)
}
