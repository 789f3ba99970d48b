//! What asking NVML costs, and whether it hangs.

use std::collections::BTreeMap;

use serde::Serialize;

/// Calls of one function of NVML.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CallHealth {
    /// How many returned.
    pub calls: u64,
    /// Those that failed, by error; `not_supported` once for every device and number that does not exist.
    pub errors: BTreeMap<&'static str, u64>,
    /// Time in all of them, seconds.
    pub seconds: f64,
    /// Time in the longest, seconds.
    pub longest_seconds: f64,
}

/// A call that has not returned for too long. Nothing can end it but the driver.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HangingCall {
    /// The function.
    pub function: &'static str,
    /// How long ago it was called, seconds.
    pub age_seconds: f64,
}

/// The thread that asks NVML.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NvmlHealth {
    /// By function.
    pub calls: BTreeMap<&'static str, CallHealth>,
    /// The call that hangs, if one does: no number of any GPU is new meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hanging: Option<HangingCall>,
    /// Observations that the pipeline did not take in time.
    pub observations_dropped: u64,
}
