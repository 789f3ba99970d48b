//! Allocations and frees.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        bytes: Loc::Arg(1),
        object: Loc::Arg(0),
        ..row(
            "cuMemAlloc",
            Class::Alloc,
            &[legacy("cuMemAlloc_v2")],
            "CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes)",
        )
    },
    Row {
        object: Loc::Arg(0),
        ..row("cuMemFree", Class::Free, &[legacy("cuMemFree_v2")], "CUresult cuMemFree_v2(CUdeviceptr dptr)")
    },
];
