//! What the pipeline hands out, as metric values.

mod memory;

use super::{
    json,
    metrics::Id,
    prometheus::{Metrics, OVERFLOW},
    ranges::{Ranges, RequestRanges},
};
use crate::{
    coverage::RareKind,
    pipeline::Output,
    request::{RequestRecord, StepRecord, record::Outcome},
};

/// Label value of what is not known.
const UNKNOWN: &str = "unknown";
/// Longest label value that comes from a target; a longer one is not a name.
const MAX_LABEL: usize = 128;

/// Counts one output.
pub fn output(metrics: &Metrics, output: &Output) {
    match output {
        Output::Request(record) => request(metrics, record),
        Output::Step { service, step } => self::step(metrics, service, step),
        Output::Told(step) => told(metrics, step),
        Output::Counted { service, work, captured } => counted(metrics, service, work, *captured),
        Output::Memory { service, memory } => memory::call(metrics, service, memory),
        Output::Incident { service, incident } => memory::incident(metrics, service, incident),
        Output::Rare { service, rare } => self::rare(metrics, service, rare),
        Output::WantWhole(_) => {}
    }
}

fn request(metrics: &Metrics, record: &RequestRecord) {
    let (model, version) = (label(record.model.as_deref()), label(record.model_version.as_deref()));
    metrics.add(Id::Requests, &[model, version], 1);
    if let Some(class) = record.outcome.and_then(error_class) {
        metrics.add(Id::RequestErrors, &[model, version, &class], 1);
    }
    let source = label(record.tokens_source.as_deref());
    // Chunks stand in for the answer's tokens only.
    let input_source = if source == "chunks" { UNKNOWN } else { source };
    for (id, tokens, source) in [
        (Id::InputTokens, record.input_tokens, input_source),
        (Id::OutputTokens, record.output_tokens, source),
    ] {
        if let Some(tokens) = tokens {
            metrics.add(id, &[model, version, source], tokens);
        }
    }
    for (id, tokens) in
        [(Id::RequestInputTokens, record.input_tokens), (Id::RequestOutputTokens, record.output_tokens)]
    {
        if let Some(tokens) = tokens {
            metrics.observe(id, &[model, version], tokens as f64);
        }
    }
    incomplete(metrics, record);
    deadline(metrics, record);
    let [input, output, batch] = ranges(record, metrics.ranges());
    times(metrics, record, [model, version, streaming(record.streaming), input, output, batch]);
}

/// What compares requests of like size: prompt, answer, batch. A request without tokens is as long as its body.
fn ranges<'a>(record: &RequestRecord, ranges: &'a RequestRanges) -> [&'a str; 3] {
    let of = |ranges: &'a Ranges, value: Option<u64>| match value {
        Some(value) => ranges.of(value),
        None if ranges.is_empty() => "",
        None => UNKNOWN,
    };
    let body = record.body_bytes_in.filter(|_| record.input_tokens.is_none() && is_without_tokens(record));
    let input = match body.filter(|_| !ranges.body.is_empty()) {
        Some(bytes) => ranges.body.of(bytes),
        None => of(&ranges.input, record.input_tokens),
    };
    // Batches are small whole numbers; a mean of them is rounded.
    let batch = match record.batch_size_mean {
        Some(mean) => ranges.batch.of_mean(mean.round()),
        None => of(&ranges.batch, None),
    };
    [input, of(&ranges.output, record.output_tokens), batch]
}

/// Its API has no tokens: what was sent may be an image, a table or a sound.
fn is_without_tokens(record: &RequestRecord) -> bool {
    const APIS: [&str; 4] = ["kserve.infer", "kserve.grpc", "torchserve.predict", "http"];
    record.api.as_deref().is_some_and(|api| APIS.contains(&api))
}

fn times(metrics: &Metrics, record: &RequestRecord, labels: [&str; 6]) {
    let whole = [
        (Id::RequestDuration, record.e2e_s),
        (Id::Ttft, record.ttft_s),
        (Id::Tpot, record.tpot_s),
        (Id::Delivery, record.delivery_s),
    ];
    for (id, seconds) in whole {
        if let Some(seconds) = seconds {
            metrics.observe(id, &labels, seconds);
        }
    }
    work(metrics, record, [labels[0], labels[1]]);
    for &gap in &record.tbt_gaps_s {
        metrics.observe(Id::Tbt, &labels, gap);
    }
    let confidence = record.confidence.map_or(UNKNOWN.to_owned(), json::name);
    let [model, version, streaming, input, output, batch] = labels;
    for (stage, &seconds) in &record.stages {
        let stage = stage.strip_suffix("_s").unwrap_or(stage);
        let labels = [model, version, streaming, input, output, batch, stage, &confidence];
        metrics.observe(Id::StageDuration, &labels, seconds);
    }
}

/// What the engine did for a request.
fn work(metrics: &Metrics, record: &RequestRecord, [model, version]: [&str; 2]) {
    for (id, rate) in
        [(Id::PrefillRate, record.prefill_tokens_per_s), (Id::DecodeRate, record.decode_tokens_per_s)]
    {
        if let Some(rate) = rate {
            metrics.observe(id, &[model, version], rate);
        }
    }
    if let Some(batch) = record.batch_size_mean {
        metrics.observe(Id::BatchSize, &[model], batch);
    }
}

fn deadline(metrics: &Metrics, record: &RequestRecord) {
    let (Some(seconds), Some(samples)) = (record.client_deadline_s, record.client_deadline_samples) else {
        return;
    };
    let service = label(Some(&record.service));
    metrics.set(Id::ClientDeadline, &[service], seconds);
    metrics.set(Id::ClientDeadlineSamples, &[service], samples as f64);
}

fn incomplete(metrics: &Metrics, record: &RequestRecord) {
    for flag in &record.flags {
        metrics.add(Id::RequestsIncomplete, &[&json::name(flag)], 1);
    }
    if matches!(record.outcome, None | Some(Outcome::Unknown)) {
        metrics.add(Id::RequestsIncomplete, &["outcome_unknown"], 1);
    }
}

fn counted(metrics: &Metrics, service: &str, work: &wire::cuda::Work, captured: u64) {
    let workload = label(Some(service));
    let counts = [
        (Id::CudaLaunches, "kernel", work.launches),
        (Id::CudaLaunches, "graph", work.graphs),
        (Id::CudaLaunches, "captured", captured),
        (Id::CudaCopyBytes, "h2d", work.h2d_bytes),
        (Id::CudaCopyBytes, "d2h", work.d2h_bytes),
        (Id::CudaCopyBytes, OVERFLOW, work.other_bytes),
    ];
    for (id, kind, n) in counts {
        if n > 0 {
            metrics.add(id, &[workload, kind], n);
        }
    }
}

fn step(metrics: &Metrics, service: &str, step: &wire::cuda::Step) {
    let waited = step.header.time_ns.saturating_sub(step.enter_ns);
    metrics.observe(Id::CudaSyncWait, &[label(Some(service))], seconds(waited));
}

fn told(metrics: &Metrics, step: &StepRecord) {
    if let Some(batch) = step.batch.filter(|batch| *batch > 0) {
        metrics.observe(Id::StepBatch, &[label(Some(&step.service))], f64::from(batch));
    }
}

fn rare(metrics: &Metrics, service: &str, rare: &wire::rare::Rare) {
    let id = match RareKind::of(rare.class) {
        Some(RareKind::ModuleLoad | RareKind::LibraryLoad | RareKind::Link) => Id::CudaModuleLoad,
        Some(RareKind::GraphInstantiate) => Id::CudaGraphInstantiate,
        // Once in the life of a process.
        Some(RareKind::Init) | None => return,
    };
    let took = rare.header.time_ns.saturating_sub(rare.enter_ns);
    metrics.observe(id, &[label(Some(service))], seconds(took));
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A name from a target as a label value.
pub(super) fn label(name: Option<&str>) -> &str {
    match name {
        None | Some("") => UNKNOWN,
        Some(name) if name.len() > MAX_LABEL => OVERFLOW,
        Some(name) => name,
    }
}

fn streaming(streaming: Option<bool>) -> &'static str {
    match streaming {
        Some(true) => "true",
        Some(false) => "false",
        None => UNKNOWN,
    }
}

/// The outcome as a class of error; `None` for what is no error, or not known to be one.
fn error_class(outcome: Outcome) -> Option<String> {
    (!matches!(outcome, Outcome::Ok | Outcome::Unknown)).then(|| json::name(outcome))
}

#[cfg(test)]
mod tests {
    use wire::{Header, Kind};

    use super::*;
    use crate::{
        export::prometheus::{Format, Settings},
        request::record::Confidence,
    };

    fn expose(outputs: &[Output]) -> String {
        let metrics = Metrics::new(&Settings { max_series: 100, ..Settings::default() });
        for output in outputs {
            super::output(&metrics, output);
        }
        metrics.encode(Format::Prometheus).unwrap()
    }

    #[track_caller]
    fn check(text: &str, want: &[&str]) {
        for line in want {
            assert!(text.lines().any(|l| l == *line), "{line} is not in\n{text}");
        }
    }

    fn record() -> RequestRecord {
        RequestRecord {
            model: Some("m".into()),
            streaming: Some(true),
            outcome: Some(Outcome::Ok),
            e2e_s: Some(0.5),
            ttft_s: Some(0.25),
            tbt_gaps_s: vec![0.01, 0.02],
            delivery_s: Some(0.0625),
            input_tokens: Some(200),
            output_tokens: Some(3),
            tokens_source: Some("usage".into()),
            stages: [("queue_s".to_owned(), 0.125)].into(),
            confidence: Some(Confidence::Exact),
            ..RequestRecord::default()
        }
    }

    #[test]
    fn a_request_is_counted_under_its_labels() {
        let text = expose(&[Output::Request(Box::new(record()))]);
        let labels = r#"model_name="m",model_version="unknown",streaming="true",input_range="128-511""#;
        check(
            &text,
            &[
                r#"inference_requests_total{model_name="m",model_version="unknown"} 1"#,
                r#"inference_input_tokens_total{model_name="m",model_version="unknown",source="usage"} 200"#,
                r#"inference_output_tokens_total{model_name="m",model_version="unknown",source="usage"} 3"#,
                &format!("inference_request_duration_seconds_sum{{{labels}}} 0.5"),
                &format!("inference_ttft_seconds_sum{{{labels}}} 0.25"),
                &format!("inference_tbt_seconds_count{{{labels}}} 2"),
                &format!("inference_delivery_seconds_sum{{{labels}}} 0.0625"),
                &format!(
                    "inference_stage_duration_seconds_sum{{{labels},stage=\"queue\",confidence=\"exact\"}} 0.125"
                ),
            ],
        );
        assert!(!text.contains("inference_request_errors_total"), "{text}");
        assert!(!text.contains("inference_tpot"), "what is not known is absent: {text}");
        assert!(!text.contains("inference_client_deadline"), "no client gave up: {text}");
    }

    #[test]
    fn requests_are_told_apart_by_the_ranges_that_the_operator_wants() {
        let ranges = RequestRanges {
            output: Ranges::new(&[4]),
            batch: Ranges::new(&[2, 8]),
            ..RequestRanges::default()
        };
        let metrics = Metrics::new(&Settings { ranges, ..Settings::default() });
        let image = RequestRecord {
            api: Some("kserve.infer".into()),
            body_bytes_in: Some(200_000),
            e2e_s: Some(0.5),
            batch_size_mean: Some(7.4),
            ..RequestRecord::default()
        };
        for record in [record(), image] {
            output(&metrics, &Output::Request(Box::new(record)));
        }
        let text = metrics.encode(Format::Prometheus).unwrap();
        let e2e = "inference_request_duration_seconds_sum{model_name=";
        check(
            &text,
            &[
                &format!(
                    r#"{e2e}"m",model_version="unknown",streaming="true",input_range="128-511",output_range="0-3",batch_size="unknown"}} 0.5"#
                ),
                &format!(
                    r#"{e2e}"unknown",model_version="unknown",streaming="unknown",input_range="body:131072-1048575",output_range="unknown",batch_size="2-7"}} 0.5"#
                ),
                r#"inference_request_input_tokens_sum{model_name="m",model_version="unknown"} 200.0"#,
                r#"inference_request_output_tokens_count{model_name="m",model_version="unknown"} 1"#,
            ],
        );
    }

    #[test]
    fn what_the_engine_did_is_told_by_model_and_by_step() {
        let record = RequestRecord {
            prefill_tokens_per_s: Some(4000.0),
            decode_tokens_per_s: Some(125.0),
            batch_size_mean: Some(3.5),
            ..record()
        };
        let step = StepRecord {
            service: "s".into(),
            pid: 1,
            t_begin_ns: 1,
            t_end_ns: 2,
            begin_bounded: false,
            kind: None,
            batch: Some(4),
            confidence: Some(Confidence::Estimated),
        };
        let empty = StepRecord { batch: Some(0), ..step.clone() };
        let mut outputs = vec![Output::Request(Box::new(record))];
        outputs.extend([step, empty].map(|step| Output::Told(Box::new(step))));
        let text = expose(&outputs);
        let model = r#"{model_name="m",model_version="unknown"}"#;
        check(
            &text,
            &[
                &format!("inference_prefill_tokens_per_second_sum{model} 4000.0"),
                &format!("inference_decode_tokens_per_second_sum{model} 125.0"),
                r#"inference_batch_size_sum{model_name="m"} 3.5"#,
                r#"inference_step_batch_size_sum{service="s"} 4.0"#,
                r#"inference_step_batch_size_count{service="s"} 1"#,
            ],
        );
    }

    #[test]
    fn the_deadline_of_clients_is_told_by_service() {
        let record = RequestRecord {
            service: "s".into(),
            client_deadline_s: Some(5.0),
            client_deadline_samples: Some(7),
            ..record()
        };
        let text = expose(&[Output::Request(Box::new(record))]);
        let seconds = r#"inference_client_deadline_seconds{service="s"} 5.0"#;
        check(&text, &[seconds, r#"inference_client_deadline_samples{service="s"} 7.0"#]);
    }

    #[test]
    fn every_outcome_but_ok_and_unknown_is_an_error_of_its_own_class() {
        let outcomes = [
            (Outcome::Client4xx, "client_4xx"),
            (Outcome::Server5xx, "server_5xx"),
            (Outcome::Timeout, "timeout"),
            (Outcome::ClientDisconnect, "client_disconnect"),
            (Outcome::Truncated, "truncated"),
            (Outcome::ContentFilter, "content_filter"),
            (Outcome::EmptyOutput, "empty_output"),
            (Outcome::InBandError, "in_band_error"),
        ];
        for (outcome, class) in outcomes {
            let record = RequestRecord { outcome: Some(outcome), ..RequestRecord::default() };
            let text = expose(&[Output::Request(Box::new(record))]);
            let want = format!(
                r#"inference_request_errors_total{{model_name="unknown",model_version="unknown",class="{class}"}} 1"#
            );
            check(&text, &[&want]);
        }
        let record = RequestRecord { outcome: Some(Outcome::Unknown), ..RequestRecord::default() };
        let text = expose(&[Output::Request(Box::new(record))]);
        check(&text, &[r#"stagelens_requests_incomplete_total{reason="outcome_unknown"} 1"#]);
        assert!(!text.contains("inference_request_errors_total"), "{text}");
    }

    #[test]
    fn names_from_a_target_are_bounded() {
        let long = "x".repeat(MAX_LABEL + 1);
        for (name, want) in [(None, UNKNOWN), (Some(""), UNKNOWN), (Some("m"), "m"), (Some(&*long), OVERFLOW)]
        {
            assert_eq!(label(name), want);
        }
    }

    fn header(kind: Kind, time_ns: u64) -> Header {
        Header { abi: wire::ABI, kind: kind as u16, len: 0, time_ns, tgid: 1, tid: 1 }
    }

    #[test]
    fn work_is_counted_by_kind() {
        let work = wire::cuda::Work {
            launches: 5,
            graphs: 1,
            copies: 1,
            h2d_bytes: 64,
            d2h_bytes: 0,
            other_bytes: 8,
        };
        let text = expose(&[Output::Counted { service: "s".into(), work, captured: 3 }]);
        check(
            &text,
            &[
                r#"cuda_launches_total{workload="s",kind="kernel"} 5"#,
                r#"cuda_launches_total{workload="s",kind="graph"} 1"#,
                r#"cuda_launches_total{workload="s",kind="captured"} 3"#,
                r#"cuda_copy_bytes_total{workload="s",kind="h2d"} 64"#,
                r#"cuda_copy_bytes_total{workload="s",kind="other"} 8"#,
            ],
        );
        assert!(!text.contains("d2h"), "{text}");
    }

    #[test]
    fn a_step_is_a_wait_and_counts_nothing() {
        let step = wire::cuda::Step {
            header: header(Kind::Step, 3_000_000_000),
            work: wire::cuda::Work { launches: 5, ..wire::cuda::Work::default() },
            enter_ns: 1_000_000_000,
            first_ns: 0,
            last_ns: 0,
            stream: 0,
            event: 0,
            graph: 0,
            row: 0,
            flags: 0,
            result: 0,
            context: 0,
        };
        let text = expose(&[Output::Step { service: "s".into(), step }]);
        check(&text, &[r#"cuda_sync_wait_seconds_sum{workload="s"} 2.0"#]);
        assert!(!text.contains("cuda_launches_total{"), "{text}");
    }
}
