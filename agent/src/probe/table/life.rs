//! Streams and events that come and go, and captures.
//!
//! `cuThreadExchangeStreamCaptureMode` and the mode of a capture decide what is forbidden meanwhile, not what is
//! captured.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, per_thread, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..row(
            "cuStreamCreate",
            Class::StreamCreate,
            &[legacy("cuStreamCreate")],
            "CUresult cuStreamCreate(CUstream *phStream, unsigned flags)",
        )
    },
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..row(
            "cuStreamCreateWithPriority",
            Class::StreamCreate,
            &[legacy("cuStreamCreateWithPriority")],
            "CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned flags, int priority)",
        )
    },
    Row {
        bytes: Loc::Arg(2),
        object: Loc::Arg(0),
        required: false,
        ..row(
            "cuGreenCtxStreamCreate",
            Class::StreamCreate,
            &[legacy("cuGreenCtxStreamCreate")],
            "CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned flags, int priority)",
        )
    },
    Row {
        stream: Loc::Arg(0),
        ..row(
            "cuStreamDestroy",
            Class::Destroy,
            &[legacy("cuStreamDestroy"), legacy("cuStreamDestroy_v2")],
            "CUresult cuStreamDestroy_v2(CUstream hStream)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..row(
            "cuEventDestroy",
            Class::Destroy,
            &[legacy("cuEventDestroy"), legacy("cuEventDestroy_v2")],
            "CUresult cuEventDestroy_v2(CUevent hEvent)",
        )
    },
    Row {
        stream: Loc::Arg(0),
        ..row(
            "cuStreamBeginCapture",
            Class::CaptureBegin,
            &[
                legacy("cuStreamBeginCapture"),
                per_thread("cuStreamBeginCapture_ptsz"),
                legacy("cuStreamBeginCapture_v2"),
                per_thread("cuStreamBeginCapture_v2_ptsz"),
            ],
            "CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)",
        )
    },
    Row {
        stream: Loc::Arg(0),
        required: false,
        ..row(
            "cuStreamBeginCaptureToGraph",
            Class::CaptureBegin,
            &[legacy("cuStreamBeginCaptureToGraph"), per_thread("cuStreamBeginCaptureToGraph_ptsz")],
            "CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t numDependencies, CUstreamCaptureMode mode)",
        )
    },
    Row {
        stream: Loc::Arg(0),
        ..row(
            "cuStreamEndCapture",
            Class::CaptureEnd,
            &[legacy("cuStreamEndCapture"), per_thread("cuStreamEndCapture_ptsz")],
            "CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)",
        )
    },
];
