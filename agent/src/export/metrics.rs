//! The one declaration of every metric: registration, the values' code and the tests read these rows.

/// What a metric is, with the buckets of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Whole numbers, or seconds.
    Gauge,
    /// With these buckets.
    Histogram(Buckets),
}

/// A family of bucket boundaries; of times, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buckets {
    /// Whole requests and their stages: 1 ms to 5 min.
    Request,
    /// Time to the first token: the boundaries of the semantic conventions for generative AI.
    FirstToken,
    /// Time between tokens, and per token: 1 ms to 5 s.
    Token,
    /// Calls of the CUDA driver: factor 2 from 10 µs to 10 s.
    Driver,
    /// Tokens of a request: factor 4 from 1 to a million.
    Tokens,
    /// Requests in a step: 1 to 1024.
    Batch,
    /// Tokens per second: 1 to 100,000.
    Rate,
}

/// Unit of a metric; its name has it before `_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number.
    None,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// How the code names it.
    pub id: Id,
    /// Name as exposed.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it means; the exposition adds the full stop.
    pub help: &'static str,
}

/// Labels of a model's requests.
const REQUEST: &[&str] =
    &["model_name", "model_version", "streaming", "input_range", "output_range", "batch_size"];
/// Labels of a model.
const MODEL: &[&str] = &["model_name", "model_version"];

macro_rules! metrics {
    ($($id:ident $name:literal $kind:expr, $unit:ident, $labels:expr, $help:literal;)+) => {
        /// A metric, as the code names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "the row of the table has the text")]
        pub enum Id { $($id,)+ }

        /// All metrics, in the order of [`Id`].
        pub const METRICS: &[Metric] = &[$(Metric {
            id: Id::$id, name: $name, kind: $kind, unit: Unit::$unit, labels: $labels, help: $help,
        },)+];
    };
}

use Buckets::{Batch, Driver, FirstToken, Rate, Request, Token, Tokens};
use Kind::{Counter, Gauge, Histogram};

metrics! {
    RequestDuration "inference_request_duration_seconds" Histogram(Request), Seconds, REQUEST,
        "From the first request byte to the last response byte written, network delivery not included";
    Ttft "inference_ttft_seconds" Histogram(FirstToken), Seconds, REQUEST,
        "From the first request byte to the first content-bearing event written, streaming requests only";
    Tbt "inference_tbt_seconds" Histogram(Token), Seconds, REQUEST,
        "Gaps between consecutive content-bearing events of a streaming request";
    Tpot "inference_tpot_seconds" Histogram(Token), Seconds, REQUEST,
        "Time per output token after the first, streaming requests with a known number of tokens only";
    StageDuration "inference_stage_duration_seconds" Histogram(Request), Seconds,
        &[
            "model_name", "model_version", "streaming", "input_range", "output_range", "batch_size", "stage",
            "confidence",
        ],
        "Time of a request in a stage; the stages of a request add up to its duration";
    Delivery "inference_delivery_seconds" Histogram(Request), Seconds, REQUEST,
        "From the last response byte written to its acknowledgement by the client, where that was seen";
    ClientDeadline "inference_client_deadline_seconds" Gauge, Seconds, &["service"],
        "After how long the clients of a service give up, estimated when several closed before any answer after the same time; as of the last one that did";
    ClientDeadlineSamples "inference_client_deadline_samples" Gauge, None, &["service"],
        "Requests that the estimate of the deadline of clients rests on";
    Requests "inference_requests_total" Counter, None, MODEL,
        "Finished requests, whatever their outcome";
    RequestErrors "inference_request_errors_total" Counter, None, &["model_name", "model_version", "class"],
        "Finished requests whose outcome is known and not ok, by outcome";
    InputTokens "inference_input_tokens_total" Counter, None, &["model_name", "model_version", "source"],
        "Prompt tokens, as far as the answers tell";
    OutputTokens "inference_output_tokens_total" Counter, None, &["model_name", "model_version", "source"],
        "Completion tokens, as far as the answers tell";
    RequestInputTokens "inference_request_input_tokens" Histogram(Tokens), None, MODEL,
        "Prompt tokens of a request, as far as its answer tells";
    RequestOutputTokens "inference_request_output_tokens" Histogram(Tokens), None, MODEL,
        "Completion tokens of a request, as far as its answer tells";
    ServiceInfo "inference_service_info" Gauge, None, &["service", "engine", "engine_version", "gpu_model"],
        "Always 1; the inference server behind a service, as its command line, libraries and files tell, and the model of each kind of GPU that it works on";
    ServiceCpu "inference_service_cpu_seconds_total" Counter, Seconds, &["service"],
        "CPU time of the processes of a service since they started; what one used after the last look before its end is missing";
    ServiceMemory "inference_service_memory_bytes" Gauge, Bytes, &["service"],
        "Resident memory of the processes of a service; what they share counts for each";
    ServiceBytes "inference_service_network_bytes_total" Counter, Bytes, &["service", "dir"],
        "Bytes that the processes of a service read from (in) and wrote to (out) TCP connections, those between its own processes left out";
    Connections "inference_connections_active" Gauge, None, &["service"],
        "Open connections that a service accepted";
    PrefillRate "inference_prefill_tokens_per_second" Histogram(Rate), None, MODEL,
        "Prompt tokens of a request by the time of its prefill, where that is not bounded only; tokens that a cache had count as well";
    DecodeRate "inference_decode_tokens_per_second" Histogram(Rate), None, MODEL,
        "Completion tokens of a request after the first by the time of its decode, where that is not bounded only";
    BatchSize "inference_batch_size" Histogram(Batch), None, &["model_name"],
        "Mean number of requests in the steps of a request, its own included";
    StepBatch "inference_step_batch_size" Histogram(Batch), None, &["service"],
        "Requests in a step of an engine, steps without any left out; told when no request can claim the step any more";
    InFlight "inference_requests_in_flight" Gauge, None, &["service"],
        "Requests that a service has begun to read and not finished to answer";
    QueueLength "inference_queue_length" Gauge, None, &["service", "confidence"],
        "Requests in flight that wait for the engine: exact where none can, estimated where from those that have written nothing as many are taken off as are in their first steps on average, bounded where it is the most that can";
    FindingActive "inference_finding_active" Gauge, None, &["rule", "service", "model_name"],
        "A finding goes on: its rule, its service, and its model, which is absent where it is of the whole service";
    CudaLaunches "cuda_launches_total" Counter, None, &["workload", "kind"],
        "Calls of the CUDA driver that launch a kernel or a graph; captured ones went into a graph instead of to the GPU";
    CudaSyncWait "cuda_sync_wait_seconds" Histogram(Driver), Seconds, &["workload"],
        "Time a thread waited in the CUDA driver for the result of work";
    CudaAlloc "cuda_alloc_seconds" Histogram(Driver), Seconds, &["workload"],
        "Time of a call that allocates memory of the device, or memory of the host that it can reach";
    CudaAllocFailures "cuda_alloc_failures_total" Counter, None, &["workload", "class"],
        "Failed allocations, by cause: exhausted_self, exhausted_others (what other processes hold), fragmented (enough was free), unknown (out of memory, and the numbers do not tell why), error (any other code); counted up to 3 s later, when it is known how much was free";
    CudaAllocRetryStorms "cuda_alloc_retry_storms_total" Counter, None, &["workload", "outcome"],
        "Failed allocations that were tried again after memory was given back, by whether the last try succeeded";
    CudaModuleLoad "cuda_module_load_seconds" Histogram(Driver), Seconds, &["workload"],
        "Time of a call that loads, compiles or links kernels";
    CudaGraphInstantiate "cuda_graph_instantiate_seconds" Histogram(Driver), Seconds, &["workload"],
        "Time of a call that makes a graph executable";
    CudaCopyBytes "cuda_copy_bytes_total" Counter, Bytes, &["workload", "kind"],
        "Bytes that calls of the CUDA driver copy, by direction; other is device to device, a prefetch, or not told by the call";
    GpuInfo "gpu_info" Gauge, None,
        &["device", "index", "model", "architecture", "mig", "parent", "driver_version"],
        "Always 1; a GPU or an instance of one: mig is enabled, disabled or instance, parent the GPU of an instance";
    GpuUtilization "gpu_utilization_ratio" Gauge, None, &["device"],
        "Share of the driver's last sampling period in which any kernel ran, however few multiprocessors it used";
    GpuMemoryTotal "gpu_memory_total_bytes" Gauge, Bytes, &["device"],
        "Memory of a device: used, free, and the driver's own";
    GpuMemoryUsed "gpu_memory_used_bytes" Gauge, Bytes, &["device"],
        "Memory of a device that processes hold";
    GpuMemoryFree "gpu_memory_free_bytes" Gauge, Bytes, &["device"],
        "Memory of a device that nobody holds";
    GpuProcessMemory "gpu_process_memory_bytes" Gauge, Bytes, &["device", "role", "workload", "kind"],
        "Memory of GPU processes by kind, as their calls tell: device, pool, vmm and array are held; pool_cached is what pools keep, at most; managed may lie in the host's memory, host does; imported is held by another process; overhead is what NVML shows beyond what is held, kept and managed: contexts, kernels, and what was allocated unseen";
    GpuTemperature "gpu_temperature_celsius" Gauge, None, &["device"],
        "Temperature of the chip";
    GpuPower "gpu_power_watts" Gauge, None, &["device"],
        "Power that a device draws";
    GpuClock "gpu_clock_hertz" Gauge, None, &["device", "clock"],
        "Clock of the multiprocessors (sm) and of the memory";
    GpuThrottle "gpu_throttle_active" Gauge, None, &["device", "reason"],
        "1 while this holds the clocks of a device back; being idle is not among the reasons";
    GpuXid "gpu_xid_errors_total" Counter, None, &["device", "xid"],
        "Errors (XID) that the driver reported of a device; several within a second can be counted as the last of them";
    GpuProcessActive "gpu_process_active_seconds_total" Counter, Seconds, &["device", "role", "workload", "inferred"],
        "Time from the first launch of a step to its result, overlaps of one process counted once: an upper bound of the time in which it kept the device busy";
    GpuContentionOverlap "gpu_contention_overlap_seconds_total" Counter, Seconds, &["device", "victim", "aggressor", "inferred"],
        "Time in which processes of both workloads had work on the device; each is counted as the victim of the other";
    GpuContentionInflation "gpu_contention_inflation_ratio" Gauge, None, &["device", "victim", "aggressor", "inferred"],
        "Median time of the victim's steps while the other had work on the device over that of like steps alone; absent without enough of both";
    NvmlState "stagelens_nvml_state" Gauge, None, &["state"],
        "1 for the state in which NVML is: off, on, unavailable, released";
    NvmlCalls "stagelens_nvml_calls_total" Counter, None, &["function"],
        "Calls of NVML that returned";
    NvmlErrors "stagelens_nvml_errors_total" Counter, None, &["function", "error"],
        "Calls of NVML that failed";
    NvmlSeconds "stagelens_nvml_call_seconds_total" Counter, Seconds, &["function"],
        "Time in calls of NVML, which take a lock in the driver";
    NvmlHanging "stagelens_nvml_hanging_seconds" Gauge, Seconds, &[],
        "Age of the call of NVML that does not return; 0 when none hangs";
    NvmlDropped "stagelens_nvml_observations_dropped_total" Counter, None, &[],
        "Observations of NVML that the pipeline did not take in time";
    BuildInfo "stagelens_build_info" Gauge, None, &["version", "abi"],
        "Always 1; version of the agent and of its records";
    Events "stagelens_events_total" Counter, None, &["state"],
        "Records taken from the kernel and from the agent's own observations: seen = decoded + failed";
    EventsFailed "stagelens_events_failed_total" Counter, None, &["reason"],
        "Records that could not be decoded";
    EventsIgnored "stagelens_events_ignored_total" Counter, None, &["reason"],
        "Events that were understood and not used";
    Limits "stagelens_limits_total" Counter, None, &["table"],
        "What a full table of the agent forgot or refused";
    Exchanges "stagelens_exchanges_total" Counter, None, &["kind"],
        "Exchanges that ended, by how well the steps of the GPU behind them are known; probe is no request, nested is a part of one";
    EventsDropped "stagelens_events_dropped_total" Counter, None, &["reason"],
        "Records lost in the kernel because the ring buffer was full";
    KernelEvents "stagelens_kernel_events_total" Counter, None, &["counter"],
        "Counters of the programs in the kernel, other than dropped records";
    EventLag "stagelens_event_lag_seconds" Gauge, Seconds, &[],
        "Age of the oldest record taken in the last interval, when it was taken";
    RingSize "stagelens_ring_size_bytes" Gauge, Bytes, &[],
        "Size of the ring buffer";
    Ready "stagelens_ready" Gauge, None, &[],
        "1 when the programs are attached, the first discovery pass is done and the pipeline runs";
    Services "stagelens_services" Gauge, None, &[],
        "Services that are watched";
    ScanPasses "stagelens_scan_passes_total" Counter, None, &[],
        "Looks at all processes";
    ScanSeconds "stagelens_scan_last_pass_seconds" Gauge, Seconds, &[],
        "How long the last look at all processes took";
    ScanDropped "stagelens_scan_dropped_total" Counter, None, &["what"],
        "Hints and observations of discovery that came faster than they were taken; the next look makes up for them";
    Probes "stagelens_probes" Gauge, None, &["program", "state", "cost_class"],
        "Programs on their targets, by state and by what one hit costs";
    Coverage "stagelens_coverage_processes" Gauge, None, &["service", "state"],
        "Processes that use a GPU, by whether their calls are seen: seen, unknown (none came yet), blind (NVML shows work and no call comes)";
    InnerPlaces "stagelens_inner_functions" Gauge, None, &["state"],
        "Functions of drivers without a name whose address a process was given: attached to, or not (refused)";
    RequestsIncomplete "stagelens_requests_incomplete_total" Counter, None, &["reason"],
        "Finished requests of which something is missing or guessed; one request can count for several reasons";
    OlderConnections "stagelens_older_connections" Gauge, None, &["service"],
        "Connections that a service had accepted before it was watched, as found so far; the first request on each is known in part only (mid_stream)";
    TlsConnections "stagelens_tls_connections_total" Counter, None, &["service", "state"],
        "Connections that speak TLS: seen, linked to their plaintext (again after a contradiction), opaque (nobody decrypts them in sight), contradicted (a link was wrong and was cut), unframed (linked, and its records could not be told apart)";
    TlsUnlinkedBytes "stagelens_tls_unlinked_bytes_total" Counter, Bytes, &["service"],
        "Plaintext of which the connection is not known; it was dropped, and its requests are not seen";
    Recording "stagelens_recording_state" Gauge, None, &["state"],
        "1 for the state in which the recording is: off, recording, full, failed";
    RecordingBytes "stagelens_recording_written_bytes_total" Counter, Bytes, &[],
        "Bytes written to the recording";
    RecordingRecords "stagelens_recording_records_total" Counter, None, &[],
        "Records written to the recording";
    RecordingErrors "stagelens_recording_errors_total" Counter, None, &[],
        "Errors that ended the recording";
    ApiFollowers "stagelens_api_followers" Gauge, None, &[],
        "Clients that follow finished requests at this moment";
    ApiMissed "stagelens_api_follower_missed_total" Counter, None, &[],
        "Finished requests that a follower was too slow to be given";
    Series "stagelens_series" Gauge, None, &["family"],
        "Label sets of a metric family whose labels come from targets";
    SeriesOverflow "stagelens_series_overflow_total" Counter, None, &["family"],
        "Values that went to the series other because their family had its maximum of label sets";
    ProcessCpu "stagelens_process_cpu_seconds_total" Counter, Seconds, &[],
        "CPU time of the agent";
    ProcessRss "stagelens_process_resident_memory_bytes" Gauge, Bytes, &[],
        "Resident memory of the agent";
    Uptime "stagelens_uptime_seconds" Gauge, Seconds, &[],
        "Time since the agent started";
}

impl Id {
    /// Its row.
    pub fn metric(self) -> &'static Metric {
        &METRICS[self as usize]
    }
}

impl Metric {
    /// The name without what the exposition adds: `_total` of a counter, and the unit.
    pub fn base_name(&self) -> &'static str {
        let name = match self.kind {
            Counter => self.name.trim_end_matches("_total"),
            Gauge | Histogram(_) => self.name,
        };
        match self.unit {
            Unit::None => name,
            Unit::Seconds => name.trim_end_matches("_seconds"),
            Unit::Bytes => name.trim_end_matches("_bytes"),
        }
    }
}

impl Buckets {
    /// Its boundaries.
    pub fn boundaries(self) -> Vec<f64> {
        match self {
            Request => vec![
                0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0,
                80.0, 160.0, 300.0,
            ],
            FirstToken => vec![
                0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
                30.0, 60.0,
            ],
            Token => vec![
                0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0,
                2.5, 5.0,
            ],
            Tokens => (0..11).map(|n| f64::from(1_u32 << (2 * n))).collect(),
            Batch => (0..11).map(|n| f64::from(1_u32 << n)).collect(),
            Rate => (0..6).flat_map(|n| [1.0, 2.0, 5.0].map(|m| m * 10_f64.powi(n))).collect(),
            Driver => (0..21).map(|n| 10e-6 * f64::from(1_u32 << n)).collect(),
        }
    }

    /// Whether an operator's own boundaries are added: only for times of requests.
    pub fn takes_extra(self) -> bool {
        !matches!(self, Driver | Tokens | Batch | Rate)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_their_ids_and_no_name_comes_twice() {
        let mut names = BTreeSet::new();
        for (n, metric) in METRICS.iter().enumerate() {
            assert_eq!(metric.id as usize, n, "{}", metric.name);
            assert!(names.insert(metric.name), "{} is declared twice", metric.name);
        }
    }

    #[test]
    fn names_say_the_kind_and_the_unit() {
        for metric in METRICS {
            let name = metric.name;
            assert_eq!(name.ends_with("_total"), metric.kind == Counter, "{name}");
            let stem = name.trim_end_matches("_total");
            assert_eq!(stem.ends_with("_seconds"), metric.unit == Unit::Seconds, "{name}");
            assert_eq!(stem.ends_with("_bytes"), metric.unit == Unit::Bytes, "{name}");
            let prefixes = ["inference_", "cuda_", "gpu_", "stagelens_"];
            assert!(prefixes.iter().any(|prefix| name.starts_with(prefix)), "{name}");
            assert!(!metric.help.ends_with('.'), "{name}: the exposition adds the full stop");
        }
    }

    #[test]
    fn buckets_rise() {
        for buckets in [Request, FirstToken, Token, Driver, Tokens, Batch, Rate] {
            assert!(buckets.boundaries().is_sorted_by(|a, b| a < b), "{buckets:?}");
        }
    }
}
