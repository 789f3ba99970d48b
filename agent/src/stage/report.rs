//! A request that is over to its record.

use std::time::{Duration, UNIX_EPOCH};

use super::{Partition, Stage, Stamps, bounds, partition};
use crate::{
    health::Health,
    request::{
        Ended, Inner, RequestRecord,
        record::{Arrival, Confidence, Flag},
    },
    track::{Exchange, ServiceId},
};

/// Names and the wall clock, which the tracker knows.
pub trait Names {
    /// Name of a service, as exported.
    fn service_name(&self, service: ServiceId) -> &str;
    /// Name of a process.
    fn comm(&self, pid: u32) -> Option<&str>;
    /// Container of a process.
    fn container(&self, pid: u32) -> Option<&str>;
    /// Wall clock at a monotonic time, ns since the Unix epoch.
    fn wall_ns(&self, mono_ns: u64) -> Option<u64>;
}

/// The record of a request. Counts what had to be adjusted.
pub fn report(ended: Ended, names: &impl Names, health: &mut Health) -> RequestRecord {
    let Ended { exchange, assignment, deadline, inner } = ended;
    let stamps = stamps(&exchange, &assignment);
    let mut record = RequestRecord {
        ts: exchange.first_byte_in_ns.and_then(|t| names.wall_ns(t)).map(rfc3339),
        comm: names.comm(exchange.pid).unwrap_or_default().to_owned(),
        service: exchange.service.map(|s| names.service_name(s).to_owned()).unwrap_or_default(),
        container: names.container(exchange.pid).map(str::to_owned),
        confidence: assignment.confidence,
        steps: assignment.steps,
        batch_size_mean: assignment.batch_mean,
        gpu_active_s: assignment.gpu_active_ns.map(seconds),
        alloc_wait_s: assignment.alloc_wait_ns.map(seconds),
        engine_pid: assignment.engine_pid,
        copy_wait_s: assignment.copy_wait_ns.map(seconds),
        host_gap_s: assignment.host_gap_ns.map(seconds),
        sat_out_s: assignment.sat_out_ns.map(seconds),
        client_deadline_s: deadline.map(|deadline| seconds(deadline.wait_ns)),
        client_deadline_samples: deadline.map(|deadline| deadline.samples),
        sampled: true,
        ..RequestRecord::default()
    };
    behind(&mut record, inner, names);
    delivery(&mut record, &exchange);
    stream_times(&mut record, &exchange);
    wire(&mut record, exchange);
    if let Some(stamps) = stamps {
        let partition = partition(&stamps);
        if partition.adjusted {
            health.count("clock_adjusted");
            record.flags.push(Flag::ClockAdjusted);
        }
        stages(&mut record, &partition);
        rates(&mut record, &partition);
        let not_exact = assignment.range.filter(|_| assignment.confidence != Some(Confidence::Exact));
        let late = inner.filter(|_| assignment.queue_from_proxy).and_then(|inner| inner.first_byte_in_ns);
        let unseen = late.map_or(0, |came| came.saturating_sub(stamps.read));
        let known = not_exact.map(|range| earlier_queue(bounds(&stamps, &range), unseen));
        record.stage_bounds = known
            .or_else(|| Some(around(&stamps, &inner?)).filter(|_| assignment.forward.is_none()))
            .unwrap_or_default()
            .into_iter()
            .map(|(stage, ns)| (stage.key().to_owned(), ns.map(seconds)))
            .collect();
    }
    record.flags.sort_unstable();
    record.flags.dedup();
    record
}

fn stamps(exchange: &Exchange, assignment: &crate::request::Assignment) -> Option<Stamps> {
    Some(Stamps {
        first_in: exchange.first_byte_in_ns?,
        last_in: exchange.last_byte_in_ns?,
        read: exchange.read_done_ns?,
        timed: exchange.arrival.is_some_and(|source| source != Arrival::Read),
        last_out: exchange.last_byte_out_ns?,
        blocked: exchange.blocked_ns,
        forward: assignment.forward,
    })
}

fn stages(record: &mut RequestRecord, partition: &Partition) {
    record.e2e_s = Some(seconds(partition.e2e));
    record.stages =
        partition.stages.iter().map(|(stage, ns)| (stage.key().to_owned(), seconds(*ns))).collect();
}

/// Tokens by the time that they took. A count of chunks is none of tokens.
fn rates(record: &mut RequestRecord, partition: &Partition) {
    let counted = record.tokens_source.as_deref().is_some_and(|source| source != "chunks");
    let of = |stage: Stage, tokens: Option<u64>| {
        let ns = partition.stages.iter().find(|s| s.0 == stage).map(|s| s.1).filter(|ns| *ns > 0)?;
        tokens.filter(|tokens| counted && *tokens > 0).map(|tokens| tokens as f64 / seconds(ns))
    };
    record.prefill_tokens_per_s = of(Stage::Prefill, record.input_tokens);
    record.decode_tokens_per_s = of(Stage::Decode, record.output_tokens.map(|n| n.saturating_sub(1)));
}

fn delivery(record: &mut RequestRecord, exchange: &Exchange) {
    let Some(delivery) = exchange.delivery else { return };
    record.t_acked_ns = Some(delivery.acked_ns);
    record.delivery_s = exchange.last_byte_out_ns.map(|t| seconds(delivery.acked_ns.saturating_sub(t)));
    record.srtt_s = delivery.srtt_us.map(|us| f64::from(us) / 1e6);
    record.retransmits = delivery.retransmits;
}

/// Where a request went behind the server that the client talked to.
fn behind(record: &mut RequestRecord, inner: Option<Inner>, names: &impl Names) {
    let Some(inner) = inner else { return };
    record.inner_count = Some(inner.count);
    record.inner_service = inner.service.map(|service| names.service_name(service).to_owned());
    record.inner_pid = Some(inner.pid);
    record.inner_port = inner.local_port;
    record.t_inner_first_byte_in_ns = inner.first_byte_in_ns;
    record.t_inner_read_done_ns = inner.read_done_ns;
    record.t_inner_first_token_ns = inner.first_token_ns;
    record.t_inner_last_byte_out_ns = inner.last_byte_out_ns;
}

/// The queue may have begun so much earlier, with the reading of a proxy; what was taken for preprocessing then was not.
fn earlier_queue(mut bounds: Vec<(Stage, [u64; 2])>, unseen: u64) -> Vec<(Stage, [u64; 2])> {
    for (stage, [least, most]) in &mut bounds {
        match stage {
            Stage::Preprocess => *least = least.saturating_sub(unseen),
            Stage::Queue => *most = most.saturating_add(unseen),
            _ => {}
        }
    }
    bounds
}

/// Bounds of the time before and behind the last server in a chain, of whose steps nothing is known: the others' time
/// is surely pre- and postprocessing.
fn around(stamps: &Stamps, inner: &Inner) -> Vec<(Stage, [u64; 2])> {
    let (Some(read), Some(last_out)) = (inner.read_done_ns, inner.last_byte_out_ns) else {
        return Vec::new();
    };
    let most = stamps.last_out.saturating_sub(stamps.read);
    let before = read.saturating_sub(stamps.read).min(most);
    let behind = stamps.last_out.saturating_sub(last_out).min(most);
    vec![
        (Stage::Preprocess, [before, most - behind]),
        (Stage::Postprocess, [behind.saturating_sub(stamps.blocked), most - before]),
    ]
}

/// What a stream's content events tell.
fn stream_times(record: &mut RequestRecord, exchange: &Exchange) {
    record.output_tokens = exchange.output_tokens;
    record.tokens_source = exchange.tokens_source.map(str::to_owned);
    // Events that nobody could read are not none.
    let is_unread = exchange.flags.contains(&Flag::Opaque) && exchange.content_total == 0;
    if exchange.streaming == Some(true) && !is_unread {
        record.chunks = Some(exchange.content_total);
    }
    let Some(first) = exchange.first_token_ns else { return };
    record.ttft_s = exchange.first_byte_in_ns.map(|t| seconds(first.saturating_sub(t)));
    if exchange.output_tokens.is_none() && exchange.content_total > 0 && !exchange.content_missed {
        record.tokens_source = Some("chunks".to_owned());
    }
    let all = exchange.content.len() as u64 == exchange.content_total;
    if exchange.interleaved || !all {
        return;
    }
    token_gaps(record, exchange, first);
}

fn token_gaps(record: &mut RequestRecord, exchange: &Exchange, first: u64) {
    let counted = Some(exchange.content_total).filter(|_| !exchange.content_missed);
    let gaps = exchange.output_tokens.or(counted).and_then(|tokens| tokens.checked_sub(1)).filter(|n| *n > 0);
    let last = exchange.content.last().filter(|_| !exchange.end_missed);
    if let (Some(last), Some(gaps)) = (last, gaps) {
        record.tpot_s = Some(seconds(last.time_ns.saturating_sub(first)) / gaps as f64);
    }
    // What lies between two events that follow each other is known only if they do.
    if exchange.content_missed {
        return;
    }
    let mut gaps: Vec<u64> =
        exchange.content.windows(2).map(|w| w[1].time_ns.saturating_sub(w[0].time_ns)).collect();
    if gaps.is_empty() {
        return;
    }
    record.tbt_gaps_s = gaps.iter().map(|&ns| seconds(ns)).collect();
    gaps.sort_unstable();
    record.tbt_p50_s = Some(seconds(gaps[(gaps.len() - 1) / 2]));
    record.tbt_max_s = gaps.last().copied().map(seconds);
}

/// What is copied from the exchange as it is.
fn wire(record: &mut RequestRecord, exchange: Exchange) {
    record.pid = exchange.pid;
    record.local_port = exchange.local_port;
    record.peer = exchange.peer;
    record.protocol = exchange.protocol;
    record.method = exchange.method;
    record.path = exchange.path;
    record.model = exchange.model;
    record.model_version = exchange.model_version;
    record.api = exchange.api;
    record.streaming = exchange.streaming;
    record.status = exchange.status;
    record.outcome = exchange.outcome;
    record.finish_reason = exchange.finish_reason;
    record.t_accept_ns = exchange.accept_ns;
    record.t_first_byte_in_ns = exchange.first_byte_in_ns;
    record.t_last_byte_in_ns = exchange.last_byte_in_ns;
    record.arrival = exchange.arrival;
    record.t_read_done_ns = exchange.read_done_ns;
    record.t_first_byte_out_ns = exchange.first_byte_out_ns;
    record.t_first_token_ns = exchange.first_token_ns;
    record.t_last_byte_out_ns = exchange.last_byte_out_ns;
    record.t_close_ns = exchange.close_ns;
    record.bytes_in = exchange.bytes_in;
    record.body_bytes_in = exchange.head_bytes_in.map(|head| exchange.bytes_in.saturating_sub(head));
    record.bytes_out = exchange.bytes_out;
    record.input_tokens = exchange.input_tokens;
    record.request_id = exchange.request_id;
    record.trace_id = exchange.trace_id;
    record.flags = exchange.flags;
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn rfc3339(wall_ns: u64) -> String {
    humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(wall_ns)).to_string()
}
