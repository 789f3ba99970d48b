//! Calls that wait for work.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, per_thread, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        stream: Loc::Arg(0),
        ..row(
            "cuStreamSynchronize",
            Class::SyncStream,
            &[legacy("cuStreamSynchronize"), per_thread("cuStreamSynchronize_ptsz")],
            "CUresult cuStreamSynchronize(CUstream hStream)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..row(
            "cuEventSynchronize",
            Class::SyncEvent,
            &[legacy("cuEventSynchronize")],
            "CUresult cuEventSynchronize(CUevent hEvent)",
        )
    },
    Row {
        // CUDA 13 adds `_v2(CUcontext ctx)`; a wait for another context than the current one is counted as one for
        // every stream of the process, as the plain call is.
        ..row(
            "cuCtxSynchronize",
            Class::SyncContext,
            &[legacy("cuCtxSynchronize"), legacy("cuCtxSynchronize_v2")],
            "CUresult cuCtxSynchronize(void)",
        )
    },
];
