//! An outer exchange and those that belong to it, as one request.

use crate::{
    request::{
        assign::{Assignment, Forward},
        record::{Confidence, Flag},
        requests::{Ended, Inner},
    },
    track::Exchange,
};

/// In this time a process hands on an answer that it has: a scheduling slice or two.
const PASSING_ON_NS: u64 = 20_000_000;

/// An exchange that belongs to another one.
#[derive(Debug)]
pub(super) struct Part {
    /// With what belongs to it in turn.
    pub(super) ended: Box<Ended>,
    /// Nothing else could be the one that it belongs to.
    pub(super) certain: bool,
}

/// Joins them. Times, status and outcome stay the outer one's; what it does not tell is taken from the one that
/// answered it.
pub(super) fn merge(mut outer: Box<Ended>, mut parts: Vec<Part>) -> Box<Ended> {
    parts.sort_by_key(|part| part.ended.exchange.id);
    let count = parts.iter().map(|part| 1 + part.ended.inner.as_ref().map_or(0, |inner| inner.count)).sum();
    let is_guess = |part: &Part| !part.certain || part.ended.exchange.flags.contains(&Flag::NestedGuessed);
    let Some(main) = parts.iter().rev().max_by_key(|part| rank(&part.ended.exchange)) else { return outer };
    outer.inner = Some(inner(&main.ended, count));
    // Nothing is taken of what an engine asked before it worked itself, so nothing is guessed of it.
    let is_own_work = works_after(&outer, &main.ended.exchange);
    let has_source = !is_own_work && is_source(&outer.exchange, &main.ended.exchange);
    let guessed = !(has_source || is_own_work) || parts.iter().any(is_guess);
    let failed = |part: &&Part| part.ended.exchange.status.is_some_and(|status| status >= 400);
    let worked: Vec<&Part> = parts.iter().filter(|part| !failed(part)).collect();
    let worked = if worked.is_empty() { vec![main] } else { worked };
    // What it was split into is of one kind; what else was asked for it has tokens of its own.
    let alike = worked.iter().filter(|part| part.ended.exchange.api == main.ended.exchange.api);
    let alike: Vec<&Exchange> = alike.map(|part| &part.ended.exchange).collect();
    let mut is_late = false;
    if has_source {
        is_late =
            fill_tokens(&mut outer.exchange, &alike) && comes_late(&outer.exchange, &main.ended.exchange);
        fill(&mut outer.exchange, &main.ended.exchange);
    }
    let assignments = worked.into_iter().map(|part| part.ended.assignment.clone());
    let theirs = assignments.reduce(|one, other| join(one, &other)).unwrap_or_default();
    let is_contested = outer.assignment.work_ns().is_some() && theirs.work_ns().is_some();
    outer.assignment = forward_of(std::mem::take(&mut outer.assignment), theirs);
    if guessed || is_contested || is_late {
        outer.exchange.flags.push(Flag::NestedGuessed);
    }
    if guessed || is_contested {
        let confidence = &mut outer.assignment.confidence;
        *confidence = confidence.map(|confidence| confidence.max(Confidence::Estimated));
    }
    outer
}

/// Whether an outer answer can have come from an inner one, as far as their times and models tell. One that was complete
/// before the outer stream began, which then went on for longer than it takes to pass a whole answer on, was asked for
/// something else, as whether the request may be answered at all.
fn is_source(outer: &Exchange, inner: &Exchange) -> bool {
    let last = outer.content.last().map(|event| event.time_ns);
    let streamed = outer.first_token_ns.zip(last).filter(|(first, last)| last - first > PASSING_ON_NS);
    let is_before = streamed.zip(inner.last_byte_out_ns).is_some_and(|((first, _), inner)| inner < first);
    !is_before && !is_of_another_model(outer, inner)
}

/// The outer process went to the GPU for it after the inner answer was complete: that was not what it answered.
fn works_after(outer: &Ended, inner: &Exchange) -> bool {
    let own = outer.assignment.forward.map(|forward| forward.first_launch);
    own.zip(inner.last_byte_out_ns).is_some_and(|(launch, inner)| inner < launch)
}

/// An outer answer that comes whole, and later than one is handed on, may have been worked at since: whose tokens the
/// inner one told is a guess.
fn comes_late(outer: &Exchange, inner: &Exchange) -> bool {
    let between = outer.first_byte_out_ns.zip(inner.last_byte_out_ns);
    outer.content.is_empty()
        && between.is_some_and(|(outer, inner)| outer.saturating_sub(inner) > PASSING_ON_NS)
}

/// Counts that only the inner answer states are not the outer one's if another model gave it. A proxy may rename a model,
/// but then it leaves the largest length as it is.
fn is_of_another_model(outer: &Exchange, inner: &Exchange) -> bool {
    let lacks = |of: fn(&Exchange) -> Option<u64>| of(outer).is_none() && of(inner).is_some();
    let is_other = outer.model.is_some() && inner.model.is_some() && outer.model != inner.model;
    let is_alike = outer.max_tokens.is_some() && outer.max_tokens == inner.max_tokens;
    is_other && !is_alike && (lacks(|e| e.input_tokens) || lacks(|e| e.output_tokens))
}

/// Which of several is the one that answered: one with content, then one that succeeded, then the first.
fn rank(exchange: &Exchange) -> (bool, bool, u64) {
    let succeeded = exchange.status.is_some_and(|status| status < 400);
    (exchange.content_total > 0, succeeded, exchange.output_tokens.unwrap_or_default())
}

/// Tokens are those of all parts, if all of them tell. True when any were taken.
fn fill_tokens(outer: &mut Exchange, parts: &[&Exchange]) -> bool {
    let is_told = outer.output_tokens.is_some() || outer.input_tokens.is_some();
    let sum = |of: fn(&Exchange) -> Option<u64>| parts.iter().map(|part| of(part)).sum::<Option<u64>>();
    outer.input_tokens = outer.input_tokens.or_else(|| sum(|part| part.input_tokens));
    outer.output_tokens = outer.output_tokens.or_else(|| sum(|part| part.output_tokens));
    let is_taken = !is_told && (outer.output_tokens.is_some() || outer.input_tokens.is_some());
    if is_taken {
        outer.tokens_source = parts.first().and_then(|part| part.tokens_source);
    }
    is_taken
}

fn fill(outer: &mut Exchange, inner: &Exchange) {
    fn or<T: Clone>(to: &mut Option<T>, from: Option<&T>) {
        if to.is_none() {
            *to = from.cloned();
        }
    }
    or(&mut outer.model, inner.model.as_ref());
    or(&mut outer.model_version, inner.model_version.as_ref());
    or(&mut outer.streaming, inner.streaming.as_ref());
    or(&mut outer.finish_reason, inner.finish_reason.as_ref());
    or(&mut outer.max_tokens, inner.max_tokens.as_ref());
    or(&mut outer.request_id, inner.request_id.as_ref());
    or(&mut outer.trace_id, inner.trace_id.as_ref());
}

/// What is told of the innermost one.
fn inner(main: &Ended, count: u64) -> Inner {
    if let Some(deeper) = &main.inner {
        return Inner { count, ..*deeper };
    }
    let exchange = &main.exchange;
    Inner {
        count,
        service: exchange.service,
        pid: exchange.pid,
        local_port: exchange.local_port,
        first_byte_in_ns: exchange.first_byte_in_ns,
        read_done_ns: exchange.read_done_ns,
        first_token_ns: exchange.first_token_ns,
        last_byte_out_ns: exchange.last_byte_out_ns,
    }
}

/// Whose work the forward is: that of the process which had the GPU. An engine asks others too, as what watches over
/// its answers; a router finds its way with a small model of its own. So of two the one that had it for longer.
fn forward_of(own: Assignment, theirs: Assignment) -> Assignment {
    if own.work_ns() > theirs.work_ns() { own } else { theirs }
}

/// The steps of both. Counts add up only where they are not of the same time: requests that run side by side share
/// steps.
fn join(one: Assignment, other: &Assignment) -> Assignment {
    let (Some(a), Some(b)) = (one.forward, other.forward) else {
        return if one.forward.is_some() { one } else { other.clone() };
    };
    let apart = a.last_result <= b.first_launch || b.last_result <= a.first_launch;
    let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).filter(|_| apart).map(|(a, b)| a + b);
    let early = if a.first_launch <= b.first_launch { a } else { b };
    Assignment {
        confidence: one.confidence.max(other.confidence),
        forward: Some(Forward {
            first_launch: early.first_launch,
            // Several streams have several first results.
            first_result: a.first_result.xor(b.first_result),
            last_result: a.last_result.max(b.last_result),
            queue: early.queue,
        }),
        range: None,
        steps: sum(one.steps, other.steps),
        batch_mean: None,
        gpu_active_ns: sum(one.gpu_active_ns, other.gpu_active_ns),
        alloc_wait_ns: sum(one.alloc_wait_ns, other.alloc_wait_ns),
        engine_pid: one.engine_pid.filter(|pid| other.engine_pid == Some(*pid)),
        copy_wait_ns: sum(one.copy_wait_ns, other.copy_wait_ns),
        // What lies between the two may be anything.
        host_gap_ns: None,
        sat_out_ns: sum(one.sat_out_ns, other.sat_out_ns),
        queue_from_proxy: one.queue_from_proxy || other.queue_from_proxy,
    }
}
