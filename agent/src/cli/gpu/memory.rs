//! Memory of processes, in a few lines each.

use super::{add, gib};
use crate::{
    export::json,
    memory::{Failure, ProcessMemory, Source, Storm},
};

/// What every process allocated, and what it could not have.
pub(super) fn lines(memory: &[ProcessMemory]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    if !memory.is_empty() {
        lines.push("memory by calls of processes".into());
    }
    for process in memory {
        lines.push(format!("  {}", held(process)));
        lines.push(format!("    {}", calls(process)));
        lines.extend(process.last_failure.as_ref().map(|last| format!("    {}", failure(last))));
        lines.extend(process.last_storm.as_ref().map(|last| format!("    {}", storm(last))));
    }
    lines
}

fn held(process: &ProcessMemory) -> String {
    let comm = process.comm.as_ref().map(|comm| format!(" {comm}")).unwrap_or_default();
    let device = process.device.as_deref().unwrap_or("device unknown");
    let least = if process.partial { "at least " } else { "" };
    let mut line = format!("{}{comm} on {device}: {least}{}", process.pid, gib(process.held_bytes()));
    for (kind, &bytes) in &process.live_bytes {
        add(&mut line, Some(format!("{} {}", json::name(kind), gib(bytes))));
    }
    let cached = Some(process.pool_cached_bytes).filter(|bytes| *bytes > 0);
    add(&mut line, cached.map(|bytes| format!("kept by pools up to {}", gib(bytes))));
    add(&mut line, Some(format!("peak {}", gib(process.peak_bytes))));
    add(&mut line, process.capped.then(|| "more blocks than are kept".into()));
    line
}

fn calls(process: &ProcessMemory) -> String {
    let counts = &process.counts;
    let mut line = format!(
        "{} allocations ({:.3} s), {} frees ({:.3} s)",
        counts.allocations,
        counts.alloc_ns as f64 / 1e9,
        counts.frees,
        counts.free_ns as f64 / 1e9
    );
    for (class, n) in &process.failures_by_class {
        add(&mut line, Some(format!("{n} failed: {}", json::name(class))));
    }
    let some = |n: u64, what: &str| (n > 0).then(|| format!("{n} {what}"));
    add(&mut line, some(process.retry_storms, "retry storms"));
    add(&mut line, some(counts.unknown_frees, "frees of what was not seen"));
    add(&mut line, some(counts.failed_frees, "frees refused"));
    line
}

fn failure(failure: &Failure) -> String {
    let mut line = format!(
        "last failure: {} of {}, {} ({})",
        failure.function,
        gib(failure.requested_bytes),
        json::name(failure.class),
        failure.result
    );
    let source = match failure.free_source {
        Some(Source::Process) => "asked by a process",
        Some(Source::Nvml) => "NVML",
        None => "",
    };
    let age = failure.free_age_s.unwrap_or_default();
    add(&mut line, failure.free_bytes.map(|free| format!("{} free ({source}, {age:.1} s apart)", gib(free))));
    add(&mut line, Some(format!("own {}, others {}", gib(failure.own_bytes), gib(failure.others_bytes))));
    for holder in &failure.holders {
        let comm = holder.comm.as_ref().map(|comm| format!(" {comm}")).unwrap_or_default();
        add(&mut line, Some(format!("{}{comm} {}", holder.pid, gib(holder.bytes))));
    }
    let largest = failure.largest_success_bytes;
    add(&mut line, largest.map(|bytes| format!("largest that succeeded {}", gib(bytes))));
    add(&mut line, Some(format!("smallest that failed {}", gib(failure.smallest_failure_bytes))));
    line
}

fn storm(storm: &Storm) -> String {
    format!(
        "last retry storm: {}, {} frees of {}, {} retries in {:.3} s, {}",
        gib(storm.requested_bytes),
        storm.frees,
        gib(storm.freed_bytes),
        storm.retries,
        storm.duration_s,
        if storm.succeeded { "succeeded" } else { "failed" }
    )
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::memory::{Counts, FailureClass, Holder, Kind};

    #[test]
    fn a_failure_stands_with_its_numbers() {
        let failure = Failure {
            t_ns: 1,
            pid: 7,
            function: "cuMemAlloc".into(),
            kind: Kind::Device,
            class: FailureClass::ExhaustedOthers,
            result: 2,
            requested_bytes: 3 << 30,
            device: Some("GPU-a".into()),
            free_bytes: Some(1 << 30),
            total_bytes: Some(80 << 30),
            free_source: Some(Source::Nvml),
            free_age_s: Some(0.25),
            own_bytes: 4 << 30,
            others_bytes: 75 << 30,
            holders: vec![Holder { pid: 8, bytes: 75 << 30, comm: Some("python3".into()) }],
            largest_success_bytes: Some(2 << 30),
            smallest_failure_bytes: 3 << 30,
            partial: false,
        };
        let storm = Storm {
            t_ns: 1,
            pid: 7,
            tid: 7,
            requested_bytes: 2 << 30,
            retries: 1,
            frees: 5,
            freed_bytes: 1 << 30,
            duration_s: 0.125,
            succeeded: true,
        };
        let process = ProcessMemory {
            pid: 7,
            comm: Some("vllm".into()),
            device: Some("GPU-a".into()),
            live_bytes: [(Kind::Device, 4 << 30), (Kind::Host, 1 << 30)].into(),
            pool_cached_bytes: 1 << 29,
            peak_bytes: 5 << 30,
            counts: Counts {
                allocations: 9,
                frees: 4,
                failed_frees: 1,
                alloc_ns: 1_500_000,
                ..Counts::default()
            },
            failures_by_class: [(FailureClass::ExhaustedOthers, 2)].into(),
            retry_storms: 1,
            partial: true,
            last_failure: Some(failure),
            last_storm: Some(storm),
            ..ProcessMemory::default()
        };
        let text: String = lines(&[process]).into_iter().map(|line| line + "\n").collect();
        expect![[r"
            memory by calls of processes
              7 vllm on GPU-a: at least 4.0 GiB, device 4.0 GiB, host 1.0 GiB, kept by pools up to 0.5 GiB, peak 5.0 GiB
                9 allocations (0.002 s), 4 frees (0.000 s), 2 failed: exhausted_others, 1 retry storms, 1 frees refused
                last failure: cuMemAlloc of 3.0 GiB, exhausted_others (2), 1.0 GiB free (NVML, 0.2 s apart), own 4.0 GiB, others 75.0 GiB, 8 python3 75.0 GiB, largest that succeeded 2.0 GiB, smallest that failed 3.0 GiB
                last retry storm: 2.0 GiB, 5 frees of 1.0 GiB, 1 retries in 0.125 s, succeeded
        "]]
        .assert_eq(&text);
        assert!(lines(&[]).is_empty());
    }
}
