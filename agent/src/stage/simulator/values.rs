//! What is told of a simulated request and its steps, and what was true.

use wire::{Header, Kind, cuda};

use super::{FRONT, Request, Step, Truth, US};
use crate::{
    request::record::Outcome,
    track::{ContentEvent, Exchange, ExchangeId, ServiceId},
};

/// What happened to a request, from the steps that really held it.
pub(in crate::stage) fn truth(request: &Request, steps: &[Step]) -> Truth {
    let missed = (request.abort_after.min(request.tokens)..request.tokens).count();
    let own: Vec<&Step> = request.steps[..request.steps.len() - missed].iter().map(|s| &steps[*s]).collect();
    let first = own[0].begin;
    // Steps are in order of both begin and end.
    let mut covered = request.read;
    let mut queue = 0;
    let start = steps.partition_point(|s| s.end <= request.read);
    for step in &steps[start..request.steps[0]] {
        let from = step.begin.max(covered);
        queue += step.end.min(first).saturating_sub(from);
        covered = covered.max(step.end.min(first));
    }
    let after_first = &request.steps[request.first_token_step..own.len()];
    let pauses = after_first.windows(2).filter(|pair| pair[1] - pair[0] > 8);
    let sat_out = pauses.map(|pair| steps[pair[1]].begin.saturating_sub(steps[pair[0]].end)).sum();
    Truth {
        sat_out,
        first_launch: first,
        first_result: own[request.first_token_step].end,
        last_result: own[own.len() - 1].end,
        queue,
        steps: own.len() as u64,
        batch_mean: own.iter().map(|s| s.members.len()).sum::<usize>() as f64 / own.len() as f64,
    }
}

/// The exchange of a request that is over.
pub(in crate::stage) fn exchange(id: usize, request: &Request, end: u64) -> Exchange {
    let content: Vec<_> = if request.streaming { request.writes.clone() } else { Vec::new() }
        .into_iter()
        .map(|time_ns| ContentEvent { time_ns, tid: FRONT })
        .collect();
    Exchange {
        id: Some(ExchangeId(id as u64)),
        service: Some(ServiceId(0)),
        pid: FRONT,
        reader_tid: FRONT,
        streaming: Some(request.streaming),
        outcome: Some(if request.abort_after == u64::MAX { Outcome::Ok } else { Outcome::ClientDisconnect }),
        first_byte_in_ns: Some(request.read - 30 * US),
        last_byte_in_ns: Some(request.read),
        read_done_ns: Some(request.read),
        first_token_ns: content.first().map(|e| e.time_ns),
        last_byte_out_ns: Some(end),
        content_total: content.len() as u64,
        content,
        output_tokens: (request.abort_after == u64::MAX).then_some(request.counted),
        ..Exchange::default()
    }
}

/// A marker record with one graph launch.
pub(in crate::stage) fn marker(pid: u32, tid: u32, begin: u64, end: u64) -> cuda::Step {
    let len = 0;
    cuda::Step {
        header: Header { abi: wire::ABI, kind: Kind::Step as u16, len, time_ns: end, tgid: pid, tid },
        work: cuda::Work { graphs: 1, copies: 1, d2h_bytes: 4, ..cuda::Work::default() },
        enter_ns: end - 1,
        first_ns: begin,
        last_ns: begin,
        stream: 1,
        event: 0,
        graph: 0,
        row: 0,
        flags: 0,
        result: 0,
        context: 0,
    }
}
