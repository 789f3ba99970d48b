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
        ..row(
            "cuCtxSynchronize",
            Class::SyncContext,
            &[legacy("cuCtxSynchronize")],
            "CUresult cuCtxSynchronize(void)",
        )
    },
    Row {
        // Of CUDA 13; 0 is the current context.
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuCtxSynchronize_v2",
            Class::SyncContext,
            &[legacy("cuCtxSynchronize_v2")],
            "CUresult cuCtxSynchronize_v2(CUcontext ctx)",
        )
    },
];
