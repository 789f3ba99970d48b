//! How runtimes find the driver's functions: by name, at run time. What they are told is compared with what is attached to.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, row};

pub(super) const ROWS: &[Row] = &[
    Row {
        object: Loc::Arg(1),
        required: false,
        ..row(
            "cuGetProcAddress",
            Class::Resolve,
            &[legacy("cuGetProcAddress")],
            "CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)",
        )
    },
    Row {
        object: Loc::Arg(1),
        bytes: Loc::Arg(4),
        required: false,
        ..row(
            "cuGetProcAddress_v2",
            Class::Resolve,
            &[legacy("cuGetProcAddress_v2")],
            "CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags, \
             CUdriverProcAddressQueryResult *symbolStatus)",
        )
    },
];
