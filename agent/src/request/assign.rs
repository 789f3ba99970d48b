//! Which steps were a request's.
//!
//! Known of a request: when it was read, when each content event of its answer was written and by which thread, and
//! how many tokens it had. Known of the engine: its steps, each from first launch to result on the host. Nothing
//! says which step holds which request. What may be assumed of every engine:
//!
//! - A1. A step that began before the request was read does not hold it.
//! - A2. An event is written after the result it shows: the step ends before the event.
//! - A3. A step gives a request at most one event, and an event needs at least one step.
//!
//! The cases, strongest first. `exact` is only ever said where the answer follows from these; where something more is
//! assumed, the answer is `estimated`, and its bounds say how far off it can be.
//!
//! **Alone** (case 2 of the design; tried first, because it does not depend on threads). No other request was in
//! flight in the service between the read and the end, and one process had steps. By A1 and A2 the request's steps are
//! among the `k` that began after the read and ended before its last event. With `n` events: if `k = n`, A3 leaves
//! one assignment; a step between the last event and the end of the answer counts when `usage` has just one token more
//! than there were events. If `k > n` there are steps without an event: prompt in chunks, tokens without text, a step ahead
//! that was thrown away. When only one of them ended before the first event, and `usage` counts as many tokens as
//! there are steps up to the end of the answer, each step gave one token and the assignment is known too. Otherwise
//! the first launch is known (the first step after the read) and the rest is aligned as in case 3. An answer that is
//! not a stream has no events: all steps between read and last byte are its own, unless the engine may still be busy
//! with a request whose client has gone. An engine that was seen to run steps while no request was there (dummies,
//! probes, background work: `Service::strays`) may have run one between the read and the first own step too: then the
//! first launch is not known by this, and answers at once are `exact` only with as many steps as tokens.
//!
//! **One thread** (case 1). The thread that read the request made the waits and wrote the events. One thread does one
//! thing after the other, so a step between two writes belongs to the exchange whose write follows, *provided* the
//! thread works on one request at a time. That is checked: the thread was never seen to write for two exchanges between
//! two steps, nor for one while another was unfinished; each event has exactly one step between it and the one before;
//! and either one step precedes the first event (whatever waits in the queue) or no other request was in flight at
//! all; otherwise, and for answers that came at once, it is `estimated`. Two things are assumed of such a thread: that it writes a result before it waits for the next one, and, as
//! long as it was not seen to batch, that it does not. (The first requests of a thread that batches and cuts
//! prompts into chunks can be called `exact` with a first launch that is too late.)
//!
//! **Aligned** (case 3). Under continuous batching each running request is in each step, so the request's events
//! follow consecutive steps: `event i <- step s + i`. Many starts `s` satisfy A1 and A2 (any that is early enough);
//! the latest for which *all* events come after their steps is nearly always right, because one quick write among the
//! events pins the whole sequence, where the latest step before *each* event goes wrong with each slow write.
//! This is put as a shortest path (`align`): the cost of an event is minus the log-density of its lag (result to write)
//! under the distribution learned from this service's own requests, and passing over a step costs something too, so
//! a prefill that the engine ran by itself, or a preemption, does not shift the rest. Before anything is learned
//! short lags are the likely ones, which is the latest start; once learned, the distribution decides where several
//! starts are possible, even when every lag is longer than a step. Always `estimated`. A path whose lags do not look
//! like this service's teaches nothing, and the number of its steps is not told.
//! Where `usage` counts one token more than there are events, either the last one had no text (end of sequence), and the
//! end of the answer counts as its event, or one event had two: the cheaper of both is taken. Where it counts more,
//! several tokens came in one event: steps passed over cost less, and their number is told only where it is that of
//! the tokens. Where no path exists (more events than steps), the latest steps before the first and the last event are
//! taken. The first launch is the begin of the first-token step; earlier chunks of its
//! prompt cannot be told from steps without it, except while no other request was there.
//!
//! **Bounded** (case 4). Everything else: what A1 and A2 say of the first launch, first and last result; of an answer at
//! once with known tokens what they, the lags and one more assumption say (`whole`), and the likeliest steps, which
//! count in the batch sizes.
//!
//! Of several GPU processes one is the engine: ranks that run each step together count once (`ranks`), replicas and
//! engines of other models are told apart by token times and by the model (`replicas`). With more than one active nothing
//! is `exact` but the single thread; where nothing tells, the bounds are those of all of them.

mod cases;
mod pause;
mod range;
mod whole;

use self::{
    cases::{known_first, place},
    pause::sat_out_ns,
    range::{hull, range},
    whole::window,
};
use super::{
    align::Scratch,
    live::Live,
    record::{Confidence, Flag},
    replicas::Seek,
    service::{Choice, Process, Service},
    step::StepLog,
};
use crate::track::Exchange;

/// Events from which an aligned request teaches its service's lags.
const TEACHES: usize = 16;
/// Lags learned of one request.
const LESSONS: usize = 32;

/// When a request's forward began and ended, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// First launch of its first step.
    pub first_launch: u64,
    /// Result of the step that gave the first content event; `None` when that cannot be told.
    pub first_result: Option<u64>,
    /// Result of its last step.
    pub last_result: u64,
    /// How long the engine was busy with steps without it between its read and its first launch.
    pub queue: u64,
}

/// Between which times the ends of [`Forward`] must lie, ns: `[least, most]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First launch of its first step.
    pub first_launch: [u64; 2],
    /// Result of the step that gave the first content event, for streams.
    pub first_result: Option<[u64; 2]>,
    /// Result of its last step.
    pub last_result: [u64; 2],
    /// How long the engine was busy between the read and either end of `first_launch`.
    pub queue: [u64; 2],
}

/// What is known of a request's steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignment {
    /// How sure it is; `None` when there was nothing to assign.
    pub confidence: Option<Confidence>,
    /// The forward, where it is known or estimated.
    pub forward: Option<Forward>,
    /// Bounds of the forward, where it is not exact.
    pub range: Option<Range>,
    /// Number of steps.
    pub steps: Option<u64>,
    /// Mean number of requests in them.
    pub batch_mean: Option<f64>,
    /// Union of its steps' intervals, ns.
    pub gpu_active_ns: Option<u64>,
    /// Time in memory calls of the engine during the forward, ns.
    pub alloc_wait_ns: Option<u64>,
    /// The process whose steps these are.
    pub engine_pid: Option<u32>,
    /// Time in waits of the engine for mere copies during the forward, ns.
    pub copy_wait_ns: Option<u64>,
    /// Time during the forward in which the engine had no step in flight, ns.
    pub host_gap_ns: Option<u64>,
    /// Time after its first token in which the engine ran many steps without it, ns; `None` where there was none, or
    /// its steps are not known one by one.
    pub sat_out_ns: Option<u64>,
    /// Its queue is counted from when it came from a proxy, which had read it before.
    pub queue_from_proxy: bool,
}

impl Assignment {
    /// Counts the queue from an earlier read.
    pub(crate) fn queue_from(&mut self, read: u64, log: &StepLog) {
        if let Some(forward) = &mut self.forward {
            forward.queue = log.busy_ns(read, forward.first_launch);
        }
        if let Some(range) = &mut self.range {
            range.queue = range.first_launch.map(|launch| log.busy_ns(read, launch));
        }
    }

    /// From the first launch to the last result of the steps that are the request's, or of those that may be; `None` if
    /// there are none.
    pub(crate) fn work_ns(&self) -> Option<u64> {
        let of_forward = self.forward.map(|forward| forward.last_result.saturating_sub(forward.first_launch));
        let most = |range: Range| range.last_result[1].saturating_sub(range.first_launch[0]);
        of_forward.or_else(|| self.range.map(most))
    }
}

/// A request to place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    /// The exchange.
    pub(crate) exchange: &'a Exchange,
    /// What was noted while it ran.
    pub(crate) live: &'a Live,
    /// Last request byte read.
    pub(crate) read: u64,
    /// Last response byte written.
    pub(crate) end: u64,
    /// Times of its content events, sorted; empty unless it streams.
    pub(crate) times: &'a [u64],
}

impl Question<'_> {
    /// Tokens that had no event of their own.
    fn extra_tokens(&self) -> Option<u64> {
        self.exchange.output_tokens.map(|t| t.saturating_sub(self.times.len() as u64))
    }

    /// All its content events are known, and they are of one choice.
    fn whole(&self) -> bool {
        let kept = self.exchange.content_total == self.exchange.content.len() as u64;
        kept && !self.exchange.interleaved && !self.exchange.flags.contains(&Flag::Gap)
    }
}

/// Steps found for a request, as indices of its engine's log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed {
    confidence: Confidence,
    own: Vec<usize>,
    /// Where in `own` the step of the first event is.
    first_event: Option<usize>,
    /// The number of steps is known as well as they are.
    counted: bool,
    /// Events follow its steps one by one.
    one_each: bool,
}

impl Placed {
    fn exact(steps: std::ops::Range<usize>, first_event: Option<usize>) -> Self {
        let own = steps.collect();
        Self { confidence: Confidence::Exact, own, first_event, counted: true, one_each: true }
    }
}

/// The answer, and the steps behind it.
#[derive(Debug)]
pub(crate) struct Found {
    /// What to tell.
    pub(crate) assignment: Assignment,
    /// The engine.
    pub(crate) pid: u32,
    /// Its steps' indices in the engine's log: the likely ones where only bounds are known, empty when not even that.
    pub(crate) own: Vec<usize>,
    /// Where among them the step of its first content is.
    pub(crate) first_event: Option<usize>,
    /// First launch, or the likely one, ns.
    pub(crate) first_launch: Option<u64>,
}

/// Places a request.
pub(crate) fn assign(q: Question<'_>, service: &mut Service, scratch: &mut Scratch) -> Found {
    let seek = Seek { read: q.read, times: q.times, model: q.exchange.model.as_deref() };
    let engine = match service.engine_of(q.exchange.pid, q.end, seek) {
        Choice::One(engine) => engine,
        Choice::Idle if !service.processes.is_empty() => return no_steps(),
        Choice::Idle => return bounded(None, 0),
        Choice::Several => return bounded(hull(q, service), 0),
    };
    service.was_at(seek.model, engine.pid);
    let process = &service.processes[&engine.pid];
    let log = &process.log;
    if !log.complete_since(q.read) {
        return bounded(None, engine.pid);
    }
    let low = log.begun_after(q.read);
    let placed = place(q, engine, service, low, scratch);
    let known_first = known_first(q, service, log, low);
    if bursts(q, log, low, placed.as_ref()) {
        service.bursts_ns = service.bursts_ns.max(Some(q.end));
    }
    let at_once = q.times.is_empty() && !service.bursts(q.end);
    let window = if at_once { window(q, log, low, &service.lags, known_first) } else { None };
    let range = match &window {
        Some(window) => Some(window.range(q, log)),
        None => range(q, log, low, known_first),
    };
    let Some(placed) = placed else {
        let Some(window) = window else { return bounded(range, engine.pid) };
        let own = window.likely(q, log, &service.lags);
        let first_launch = own.first().map(|first| log.get(*first).begin);
        return Found { own, first_launch, ..bounded(range, engine.pid) };
    };
    let assignment = Assignment { engine_pid: Some(engine.pid), ..describe(q, process, &placed, range) };
    let lessons = lessons(q, log, &placed);
    let weight = if placed.confidence == Confidence::Exact { 2.0 } else { 1.0 };
    if let (Some(from), [_, _, ..]) = (placed.first_event, lessons.as_slice()) {
        service.lags.learn_gaps(&placed.own[from..]);
    }
    service.lags.learn(lessons, weight);
    let first_launch = assignment.forward.map(|forward| forward.first_launch);
    Found { assignment, pid: engine.pid, own: placed.own, first_event: placed.first_event, first_launch }
}

/// It had more tokens than steps: some step gave it several.
fn bursts(q: Question<'_>, log: &StepLog, low: usize, placed: Option<&Placed>) -> bool {
    let most = match placed.map(|placed| (placed.own.first(), placed.own.last())) {
        // A path's ends are the likeliest, not the only ones.
        Some((Some(first), Some(last))) => last + 2 - first,
        _ => log.ended_by(q.end).saturating_sub(low),
    };
    q.exchange.output_tokens.is_some_and(|tokens| tokens > most as u64)
}

fn bounded(range: Option<Range>, pid: u32) -> Found {
    let engine_pid = (pid != 0).then_some(pid);
    let assignment =
        Assignment { confidence: Some(Confidence::Bounded), range, engine_pid, ..Assignment::default() };
    Found { assignment, pid, own: Vec::new(), first_event: None, first_launch: None }
}

/// The service has an engine, and it did nothing that could be for this request. Not `exact`: a process that has not
/// been discovered yet may have.
fn no_steps() -> Found {
    let assignment =
        Assignment { confidence: Some(Confidence::Estimated), steps: Some(0), ..Assignment::default() };
    Found { assignment, pid: 0, own: Vec::new(), first_event: None, first_launch: None }
}

/// What to tell of the steps found.
fn describe(q: Question<'_>, process: &Process, placed: &Placed, range: Option<Range>) -> Assignment {
    let log = &process.log;
    let steps = || placed.own.iter().map(|i| log.get(*i));
    let first_launch = steps().next().map_or(q.read, |s| s.begin).max(q.read);
    let last_result = steps().next_back().map_or(q.read, |s| s.end);
    // Of an answer with more events than are kept, the last step is only known by the end of the answer.
    let kept = q.exchange.content_total <= q.exchange.content.len() as u64 || q.times.is_empty();
    let last_result = if kept { last_result } else { log.get(log.ended_by(q.end).saturating_sub(1)).end };
    // Where the first event was missed, the first one seen says nothing of the prefill.
    let first_event = placed.first_event.filter(|_| q.exchange.first_token_ns.is_some());
    let first_result = first_event.and_then(|i| steps().nth(i)).map(|s| s.end);
    let forward =
        Forward { first_launch, first_result, last_result, queue: log.busy_ns(q.read, first_launch) };
    let exact = placed.confidence == Confidence::Exact;
    let in_turn = placed.first_event.filter(|_| placed.counted && placed.one_each);
    Assignment {
        confidence: Some(placed.confidence),
        forward: Some(forward),
        range: range.filter(|_| !exact),
        steps: placed.counted.then_some(placed.own.len() as u64),
        batch_mean: None,
        gpu_active_ns: placed.counted.then(|| super::busy::union(steps().map(|s| (s.begin, s.end)))),
        alloc_wait_ns: process.memory.within(first_launch, last_result),
        engine_pid: None,
        copy_wait_ns: process.copies.within(first_launch, last_result),
        host_gap_ns: Some(
            last_result.saturating_sub(first_launch).saturating_sub(log.busy_ns(first_launch, last_result)),
        ),
        sat_out_ns: in_turn.and_then(|first| sat_out_ns(placed.own.get(first..)?, log)),
        queue_from_proxy: false,
    }
}

/// Lags that this request teaches: a sample of them, and none when it is not sure enough.
fn lessons(q: Question<'_>, log: &StepLog, placed: &Placed) -> Vec<u64> {
    let n = q.times.len();
    let sure = placed.confidence == Confidence::Exact || n >= TEACHES;
    let Some(start) = placed.first_event.filter(|_| sure && placed.counted && placed.one_each && n > 0)
    else {
        return Vec::new();
    };
    // Where there are more steps than events, a step without an event may lie anywhere among them.
    let aligned = placed.confidence == Confidence::Estimated;
    if !aligned && placed.own.len() - start != n {
        return Vec::new();
    }
    (0..n)
        .step_by(n.div_ceil(LESSONS))
        .map(|i| q.times[i].saturating_sub(log.get(placed.own[start + i]).end))
        .collect()
}
