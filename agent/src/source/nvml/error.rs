//! What each error of NVML means for whoever asked.

use nvml_wrapper::error::NvmlError;
use thiserror::Error;

use crate::decode::Refusal;

/// Why NVML cannot be used although it must be.
#[derive(Debug, Error)]
pub enum NvmlUnavailable {
    /// It answered with this, or nothing is there to answer.
    #[error("NVML cannot be used, and gpu.nvml = \"on\" asks for it: {0}")]
    Refused(String),
    /// It has not answered.
    #[error("NVML has not started within {seconds} s, and gpu.nvml = \"on\" asks for it")]
    Silent {
        /// How long it was waited for.
        seconds: u64,
    },
    /// There is no thread to ask it.
    #[error("cannot start the thread that asks NVML")]
    Thread(#[source] std::io::Error),
}

/// What to do after a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consequence {
    /// This number does not exist here: never ask this device for it again.
    Never(Refusal),
    /// There is none: for a list, it is empty.
    Nothing,
    /// This device is gone, the others are not.
    Lost,
    /// NVML itself is gone: close it and try again later.
    Closed,
    /// Nobody knows, or a device that is no more: try again next time.
    Retry,
}

pub(super) fn consequence(error: &NvmlError) -> Consequence {
    use NvmlError::{
        DriverNotLoaded, FailedToLoadSymbol, FunctionNotFound, GpuLost, LibRmVersionMismatch,
        LibloadingError, LibraryNotFound, NoData, NoPermission, NotFound, NotSupported, OperatingSystem,
        ResetRequired, UnexpectedVariant, Uninitialized,
    };
    match error {
        // A driver that is older than the function.
        // Version 25 is a struct that this driver does not know in the form it is asked for.
        NotSupported | FailedToLoadSymbol(_) | FunctionNotFound | UnexpectedVariant(25) => {
            Consequence::Never(Refusal::NotSupported)
        }
        // The latter: a cgroup that does not let this process at the device.
        NoPermission | OperatingSystem => Consequence::Never(Refusal::NoPermission),
        NotFound | NoData => Consequence::Nothing,
        GpuLost | ResetRequired => Consequence::Lost,
        Uninitialized | DriverNotLoaded | LibraryNotFound | LibloadingError(_) | LibRmVersionMismatch => {
            Consequence::Closed
        }
        _ => Consequence::Retry,
    }
}

/// Why a device cannot be reached, for people.
pub(super) fn loss(error: &NvmlError) -> &'static str {
    match error {
        NvmlError::ResetRequired => "it must be reset before it can be used again",
        _ => "it has fallen off the bus or cannot be reached for another reason",
    }
}

/// The error as a metric label: a closed set.
pub(super) fn label(error: &NvmlError) -> &'static str {
    match error {
        NvmlError::Uninitialized => "uninitialized",
        NvmlError::InvalidArg => "invalid_argument",
        NvmlError::NotSupported => "not_supported",
        NvmlError::NoPermission => "no_permission",
        NvmlError::NotFound => "not_found",
        NvmlError::InsufficientSize(_) => "insufficient_size",
        NvmlError::InsufficientPower => "insufficient_power",
        NvmlError::DriverNotLoaded => "driver_not_loaded",
        NvmlError::Timeout => "timeout",
        NvmlError::IrqIssue => "irq_issue",
        NvmlError::LibraryNotFound | NvmlError::LibloadingError(_) => "library_not_found",
        NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => "function_not_found",
        NvmlError::CorruptedInfoROM => "corrupted_inforom",
        NvmlError::GpuLost => "gpu_lost",
        NvmlError::ResetRequired => "reset_required",
        NvmlError::OperatingSystem => "operating_system",
        NvmlError::LibRmVersionMismatch => "driver_library_mismatch",
        NvmlError::InUse => "in_use",
        NvmlError::InsufficientMemory => "memory",
        NvmlError::NoData => "no_data",
        NvmlError::Unknown => "unknown",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_code_has_a_consequence_and_a_label() {
        use Consequence::{Closed, Lost, Never, Nothing, Retry};
        let (unsupported, forbidden) = (Never(Refusal::NotSupported), Never(Refusal::NoPermission));
        let cases = [
            (1, "uninitialized", Closed),
            (2, "invalid_argument", Retry),
            (3, "not_supported", unsupported),
            (4, "no_permission", forbidden),
            (6, "not_found", Nothing),
            (7, "insufficient_size", Retry),
            (8, "insufficient_power", Retry),
            (9, "driver_not_loaded", Closed),
            (10, "timeout", Retry),
            (11, "irq_issue", Retry),
            (12, "library_not_found", Closed),
            (13, "function_not_found", unsupported),
            (14, "corrupted_inforom", Retry),
            (15, "gpu_lost", Lost),
            (16, "reset_required", Lost),
            (17, "operating_system", forbidden),
            (18, "driver_library_mismatch", Closed),
            (19, "in_use", Retry),
            (20, "memory", Retry),
            (21, "no_data", Nothing),
            (25, "other", unsupported),
            (26, "other", Retry),
            (999, "unknown", Retry),
        ];
        for (code, name, what) in cases {
            let error = NvmlError::from(code);
            assert_eq!((label(&error), consequence(&error)), (name, what), "{code}");
        }
        let missing = NvmlError::FailedToLoadSymbol(String::new());
        assert_eq!((label(&missing), consequence(&missing)), ("function_not_found", unsupported));
    }
}
