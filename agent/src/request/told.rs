//! What is told of a step, once no request can claim it any more.

use serde::{Deserialize, Serialize};

use super::{record::Confidence, step::StepInfo};

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// It gave at least one request its first content.
    Prefill,
    /// It went on with requests.
    Decode,
    /// No request was in it, for all that is known: a prompt's earlier part, a probe, background work, a dummy.
    Other,
}

/// A step of an engine. One flat JSON object a line.
///
/// Times are `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Its service.
    pub service: String,
    /// Its process.
    pub pid: u32,
    /// First launch of its work.
    pub t_begin_ns: u64,
    /// Its result on the host.
    pub t_end_ns: u64,
    /// The first launch was not seen: it was at that time or earlier.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begin_bounded: bool,
    /// What it did; absent where a request may have been in it of which that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<StepKind>,
    /// Requests in it; absent likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// How sure that is: `bounded` where a request is in it by its number of tokens and its end alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
}

impl StepRecord {
    /// The record of a step of a process of a service with this name.
    pub fn new(service: &str, told: Told) -> Self {
        let Told { pid, step } = told;
        let known = step.doubtful == 0;
        let kind = match (step.members, step.firsts) {
            (0, _) => StepKind::Other,
            (_, 0) => StepKind::Decode,
            _ => StepKind::Prefill,
        };
        let confidence = if step.likely > 0 { Confidence::Bounded } else { Confidence::Estimated };
        Self {
            service: service.to_owned(),
            pid,
            t_begin_ns: step.begin,
            t_end_ns: step.end,
            begin_bounded: step.bounded,
            kind: known.then_some(kind),
            batch: known.then_some(step.members),
            confidence: known.then_some(confidence),
        }
    }
}

/// A step that is over in every sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its process.
    pub(crate) pid: u32,
    /// What was found of it.
    pub(crate) step: StepInfo,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_told() {
        let step = StepInfo { begin: 5, end: 9, members: 3, ..StepInfo::default() };
        let doubtful = StepInfo { doubtful: 1, ..step };
        let first = StepInfo { firsts: 1, ..step };
        let likely = StepInfo { likely: 2, ..step };
        let cases = [
            (step, Some(StepKind::Decode), Some(3), Some(Confidence::Estimated)),
            (first, Some(StepKind::Prefill), Some(3), Some(Confidence::Estimated)),
            (likely, Some(StepKind::Decode), Some(3), Some(Confidence::Bounded)),
            (StepInfo { members: 0, ..step }, Some(StepKind::Other), Some(0), Some(Confidence::Estimated)),
            (doubtful, None, None, None),
        ];
        for (step, kind, batch, confidence) in cases {
            let told = StepRecord::new("s", Told { pid: 7, step });
            assert_eq!((told.kind, told.batch, told.confidence), (kind, batch, confidence), "{step:?}");
        }
    }
}
