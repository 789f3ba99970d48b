//! Memory calls, and what came of those that failed.

use wire::{cookie::Class, memory::Call};

use super::{label, seconds};
use crate::{
    export::{json, metrics::Id, prometheus::Metrics},
    memory::{Incident, allocates},
};

/// How long it took, if it allocates. Whether it failed is counted once it is known why.
pub(super) fn call(metrics: &Metrics, service: &str, call: &Call) {
    if Class::from_u8(call.class).and_then(allocates).is_some() {
        let took = call.header.time_ns.saturating_sub(call.enter_ns);
        metrics.observe(Id::CudaAlloc, &[label(Some(service))], seconds(took));
    }
}

pub(super) fn incident(metrics: &Metrics, service: &str, incident: &Incident) {
    let workload = label(Some(service));
    match incident {
        Incident::Failure(failure) => {
            metrics.add(Id::CudaAllocFailures, &[workload, &json::name(failure.class)], 1);
        }
        Incident::Storm(storm) => {
            let outcome = if storm.succeeded { "succeeded" } else { "failed" };
            metrics.add(Id::CudaAllocRetryStorms, &[workload, outcome], 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::{Header, Kind};

    use super::*;
    use crate::{
        export::prometheus::{Format, Settings},
        memory::Storm,
    };

    #[test]
    fn calls_that_allocate_take_time_and_retries_are_counted_by_their_end() {
        let metrics = Metrics::new(&Settings { max_series: 100, ..Settings::default() });
        let of = |class: Class, result: u32| Call {
            header: Header {
                abi: wire::ABI,
                kind: Kind::MemoryCall as u16,
                len: 72,
                time_ns: 1_500_000_000,
                tgid: 1,
                tid: 1,
            },
            enter_ns: 1_000_000_000,
            context: 0,
            bytes: 0,
            address: 0,
            other: 0,
            row: 0,
            class: class as u8,
            flags: 0,
            result,
        };
        for (class, result) in
            [(Class::Alloc, 0), (Class::AllocPool, 2), (Class::Free, 0), (Class::MapRange, 0)]
        {
            call(&metrics, "s", &of(class, result));
        }
        let storm = Storm {
            t_ns: 1,
            pid: 1,
            tid: 1,
            requested_bytes: 1,
            retries: 1,
            frees: 1,
            freed_bytes: 1,
            duration_s: 0.5,
            succeeded: false,
        };
        incident(&metrics, "s", &Incident::Storm(storm));
        let text = metrics.encode(Format::Prometheus).unwrap();
        for line in [
            r#"cuda_alloc_seconds_count{workload="s"} 2"#,
            r#"cuda_alloc_seconds_sum{workload="s"} 1.0"#,
            r#"cuda_alloc_retry_storms_total{workload="s",outcome="failed"} 1"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }
}
