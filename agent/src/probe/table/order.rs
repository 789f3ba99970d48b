//! Edges between streams: events recorded, and streams that wait for them.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, per_thread, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        ..row(
            "cuEventRecord",
            Class::EventRecord,
            &[legacy("cuEventRecord"), per_thread("cuEventRecord_ptsz")],
            "CUresult cuEventRecord(CUevent hEvent, CUstream hStream)",
        )
    },
    Row {
        stream: Loc::Arg(1),
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuEventRecordWithFlags",
            Class::EventRecord,
            &[legacy("cuEventRecordWithFlags"), per_thread("cuEventRecordWithFlags_ptsz")],
            "CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned flags)",
        )
    },
    Row {
        stream: Loc::Arg(0),
        object: Loc::Arg(1),
        ..row(
            "cuStreamWaitEvent",
            Class::WaitEvent,
            &[legacy("cuStreamWaitEvent"), per_thread("cuStreamWaitEvent_ptsz")],
            "CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned flags)",
        )
    },
];
