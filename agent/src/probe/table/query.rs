//! Calls that ask whether work is done.
//!
//! Each costs two traps, at entry and return, also where it is called in a loop: about 1.5 microseconds on the machine
//! where it was measured, in which a loop that waits would have asked again.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, per_thread, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        object: Loc::Arg(0),
        ..row(
            "cuEventQuery",
            Class::QueryEvent,
            &[legacy("cuEventQuery")],
            "CUresult cuEventQuery(CUevent hEvent)",
        )
    },
    Row {
        stream: Loc::Arg(0),
        ..row(
            "cuStreamQuery",
            Class::QueryStream,
            &[legacy("cuStreamQuery"), per_thread("cuStreamQuery_ptsz")],
            "CUresult cuStreamQuery(CUstream hStream)",
        )
    },
];
