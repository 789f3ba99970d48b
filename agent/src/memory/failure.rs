//! Why an allocation failed, with the numbers that say so.

use serde::{Deserialize, Serialize};

use super::{book::Kind, sight::Source};

/// Why an allocation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// What the process itself holds leaves no room: it holds what is missing, and no less than all others; or neither
    /// would have been enough alone.
    ExhaustedSelf,
    /// What other processes hold leaves no room: they hold what is missing, and more than the process itself, or it alone
    /// does not.
    ExhaustedOthers,
    /// As much as was asked for was free, before and after, and not in one piece.
    Fragmented,
    /// Out of memory, for a reason that the numbers at hand do not tell.
    Unknown,
    /// Not for want of memory: any other error of the driver.
    Error,
}

/// A process that held memory of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// What it held, bytes.
    pub bytes: u64,
    /// Its name, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
}

/// An allocation that failed. What is not known is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// When the call returned, `CLOCK_MONOTONIC` ns.
    pub t_ns: u64,
    /// The process.
    pub pid: u32,
    /// Function of the driver.
    pub function: String,
    /// What was to be allocated.
    pub kind: Kind,
    /// Why it failed.
    pub class: FailureClass,
    /// The driver's code (`CUresult`).
    pub result: u32,
    /// How much was asked for.
    pub requested_bytes: u64,
    /// UUID of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Free on the device at that instant: as told by `free_source`, corrected by what watched processes took and gave
    /// back in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// All memory of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Who told how much was free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_source: Option<Source>,
    /// How long before or after the failure that was, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_age_s: Option<f64>,
    /// What the process itself held on the device: the most that its calls, or NVML, tell.
    pub own_bytes: u64,
    /// What others held there, as far as known.
    pub others_bytes: u64,
    /// The largest of those others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
    /// Largest allocation of the process that succeeded within a minute before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_success_bytes: Option<u64>,
    /// Smallest that failed within the same minute, this one included.
    pub smallest_failure_bytes: u64,
    /// Calls of the process were not seen from its beginning, or not all are kept: what it held is a lower bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) const OUT_OF_MEMORY: u32 = 2;

impl Failure {
    /// Decides on the class by the numbers. `is_fragmented`: that enough was free is sure.
    pub(super) fn classify(&mut self, is_fragmented: bool) {
        self.class =
            if self.result == OUT_OF_MEMORY { self.cause(is_fragmented) } else { FailureClass::Error };
    }

    fn cause(&self, is_fragmented: bool) -> FailureClass {
        if self.kind == Kind::Host {
            // Of the host's memory nothing is known here.
            return FailureClass::Unknown;
        }
        if self.total_bytes.is_some_and(|total| self.requested_bytes > total) {
            return FailureClass::ExhaustedSelf;
        }
        let Some(free) = self.free_bytes else { return FailureClass::Unknown };
        if free >= self.requested_bytes {
            return if is_fragmented { FailureClass::Fragmented } else { FailureClass::Unknown };
        }
        let missing = self.requested_bytes - free;
        let (own, others) = (self.own_bytes, self.others_bytes);
        if others >= missing && (others > own || own < missing) {
            FailureClass::ExhaustedOthers
        } else if own.saturating_add(others) >= missing {
            FailureClass::ExhaustedSelf
        } else {
            FailureClass::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_decide() {
        use FailureClass::{Error, ExhaustedOthers, ExhaustedSelf, Fragmented, Unknown};
        let cases = [
            // asked, free, own, others
            (2, Some(4), 4, 0, 2, Fragmented),
            (4, Some(4), 4, 0, 2, Fragmented),
            (5, Some(4), 4, 0, 2, ExhaustedSelf),
            (5, Some(4), 1, 3, 2, ExhaustedOthers),
            (5, Some(4), 0, 1, 2, ExhaustedOthers),
            // A small neighbour is not to blame for what is missing.
            (5, Some(4), 3, 1, 2, ExhaustedSelf),
            (7, Some(1), 4, 3, 2, ExhaustedSelf),
            (5, Some(1), 0, 0, 2, Unknown),
            (5, None, 4, 4, 2, Unknown),
            (9, None, 0, 8, 2, ExhaustedSelf),
            (2, Some(4), 4, 0, 201, Error),
        ];
        for (asked, free, own, others, result, want) in cases {
            let mut failure = Failure {
                t_ns: 0,
                pid: 1,
                function: "cuMemAlloc".into(),
                kind: Kind::Device,
                class: Unknown,
                result,
                requested_bytes: asked,
                device: None,
                free_bytes: free,
                total_bytes: Some(8),
                free_source: None,
                free_age_s: None,
                own_bytes: own,
                others_bytes: others,
                holders: Vec::new(),
                largest_success_bytes: None,
                smallest_failure_bytes: asked,
                partial: false,
            };
            failure.classify(true);
            assert_eq!(failure.class, want, "{asked} of {free:?}, own {own}, others {others}");
            failure.classify(false);
            let unsure = if want == Fragmented { Unknown } else { want };
            assert_eq!(failure.class, unsure, "{asked} of {free:?} by one look");
        }
    }
}
