//! What is watched of a service and of each of its models: one row of the table for every number.

use serde::{Deserialize, Serialize};

use crate::request::RequestRecord;

/// What a number is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Tokens.
    Tokens,
    /// Tokens a second.
    TokensPerSecond,
    /// From 0 to 1.
    Ratio,
    /// How many.
    Count,
    /// Events a second.
    PerSecond,
    /// Hertz.
    Hertz,
}

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident $text:literal $unit:ident,)*) => {
        /// A number of which the distribution is kept.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Feature { $($(#[$doc])* $name,)* }

        impl Feature {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What it is called in a sentence.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What it is measured in.
            pub fn unit(self) -> Unit {
                match self { $(Self::$name => Unit::$unit,)* }
            }
        }
    };
}

features! {
    /// First byte in to last byte out.
    E2e "time of a request" Seconds,
    /// To the first token.
    Ttft "time to first token" Seconds,
    /// Every gap between tokens.
    Tbt "time between tokens" Seconds,
    /// The longest gap of a request.
    TbtMax "longest gap between tokens" Seconds,
    /// Time of a token after the first.
    Tpot "time of an output token" Seconds,
    /// A stage.
    NetworkIn "network in" Seconds,
    /// A stage.
    AcceptWait "wait to be read" Seconds,
    /// A stage.
    Preprocess "preprocessing" Seconds,
    /// A stage.
    Queue "queue" Seconds,
    /// A stage.
    Prefill "prefill" Seconds,
    /// A stage.
    Decode "decode" Seconds,
    /// A stage: where prefill and decode cannot be told apart.
    Forward "forward" Seconds,
    /// A stage.
    Postprocess "postprocessing" Seconds,
    /// A stage.
    NetworkOut "network out" Seconds,
    /// What could not be placed.
    Unattributed "time that could not be placed" Seconds,
    /// To the client's acknowledgement; not part of a request.
    Delivery "delivery" Seconds,
    /// Within the forward: a step was in flight.
    GpuActive "GPU active" Seconds,
    /// Within the forward: in memory calls.
    AllocWait "wait in memory calls" Seconds,
    /// Within the forward: waits for mere copies.
    CopyWait "wait for copies" Seconds,
    /// Within the forward: the GPU waited for the host.
    HostGap "GPU waiting for the host" Seconds,
    /// Within the decode: the engine ran many steps without it.
    SatOut "sitting out steps" Seconds,
    /// While the request went on: kernels loaded or compiled.
    ModuleLoad "loading or compiling kernels" Seconds,
    /// Of the prompt.
    InputTokens "input tokens" Tokens,
    /// Of the answer.
    OutputTokens "output tokens" Tokens,
    /// Of the request's body.
    BodyBytes "size of a request" Bytes,
    /// Prompt by prefill.
    PrefillRate "prefill speed" TokensPerSecond,
    /// Answer by decode.
    DecodeRate "decode speed" TokensPerSecond,
    /// Requests in the steps of a request, on average.
    BatchSize "batch size" Count,
    /// A step of an engine, first launch to result.
    Step "time of a GPU step" Seconds,
    /// Requests at a moment.
    InFlight "requests in flight" Count,
    /// Of those, waiting for an engine.
    Waiting "requests waiting" Count,
    /// A GPU of the service at a moment.
    Utilization "GPU utilization" Ratio,
    /// Likewise.
    SmClock "clock of the GPU" Hertz,
    /// Likewise.
    MemoryUsed "memory of the GPU in use" Ratio,
    /// CPU time of the service's processes by time.
    Cpu "CPU cores in use" Count,
    /// Share of periods in which the container had used up its CPU quota.
    CpuThrottled "CPU periods throttled" Ratio,
}

/// Stages of a request, which add up to [`Feature::E2e`], and the key of each in a record.
pub(super) const STAGES: &[(Feature, &str)] = &[
    (Feature::NetworkIn, "network_in_s"),
    (Feature::AcceptWait, "accept_wait_s"),
    (Feature::Preprocess, "preprocess_s"),
    (Feature::Queue, "queue_s"),
    (Feature::Prefill, "prefill_s"),
    (Feature::Decode, "decode_s"),
    (Feature::Forward, "forward_s"),
    (Feature::Postprocess, "postprocess_s"),
    (Feature::NetworkOut, "network_out_s"),
    (Feature::Unattributed, "unattributed_s"),
];

/// Gives every number that a record tells to `add`.
pub(super) fn of_request(record: &RequestRecord, mut add: impl FnMut(Feature, f64)) {
    for (feature, key) in STAGES {
        if let Some(&seconds) = record.stages.get(*key) {
            add(*feature, seconds);
        }
    }
    let tokens = |count: Option<u64>| count.map(|n| n as f64);
    for (feature, value) in [
        (Feature::E2e, record.e2e_s),
        (Feature::Ttft, record.ttft_s),
        (Feature::TbtMax, record.tbt_max_s),
        (Feature::Tpot, record.tpot_s),
        (Feature::Delivery, record.delivery_s),
        (Feature::GpuActive, record.gpu_active_s),
        (Feature::AllocWait, record.alloc_wait_s),
        (Feature::CopyWait, record.copy_wait_s),
        (Feature::HostGap, record.host_gap_s),
        (Feature::InputTokens, tokens(record.input_tokens)),
        (Feature::OutputTokens, tokens(record.output_tokens)),
        (Feature::BodyBytes, tokens(record.body_bytes_in)),
        (Feature::PrefillRate, record.prefill_tokens_per_s),
        (Feature::DecodeRate, record.decode_tokens_per_s),
        (Feature::BatchSize, record.batch_size_mean),
    ] {
        if let Some(value) = value {
            add(feature, value);
        }
    }
    // Absent where there was none.
    add(Feature::ModuleLoad, record.module_load_s.unwrap_or(0.0));
    add(Feature::SatOut, record.sat_out_s.unwrap_or(0.0));
    record.tbt_gaps_s.iter().for_each(|&gap| add(Feature::Tbt, gap));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_a_record_has_its_row_and_stages_are_those_of_the_record() {
        let stages: std::collections::BTreeMap<String, f64> =
            STAGES.iter().zip(1_u32..).map(|((_, key), n)| ((*key).to_owned(), f64::from(n))).collect();
        let record = RequestRecord {
            e2e_s: Some(55.0),
            stages,
            input_tokens: Some(7),
            tbt_gaps_s: vec![0.1, 0.2],
            ..RequestRecord::default()
        };
        let mut got = Vec::new();
        of_request(&record, |feature, value| got.push((feature, value)));
        let sum: f64 =
            got.iter().filter(|(f, _)| STAGES.iter().any(|(stage, _)| stage == f)).map(|(_, v)| v).sum();
        assert!((sum - 55.0).abs() < 1e-9, "{got:?}");
        assert!(got.contains(&(Feature::InputTokens, 7.0)) && got.contains(&(Feature::ModuleLoad, 0.0)));
        assert_eq!(got.iter().filter(|(f, _)| *f == Feature::Tbt).count(), 2);
    }
}
