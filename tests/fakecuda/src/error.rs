//! Result codes.

use std::ffi::{CStr, c_char};

use crate::abi::{Out, give};

/// A result code that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Error(u32);

macro_rules! errors {
    ($($name:ident = $code:literal $text:literal;)+) => {
        impl Error {
            $(#[doc = $text] pub const $name: Self = Self($code);)+

            /// Name as in `cuda.h`, and what it means.
            const fn texts(self) -> Option<(&'static CStr, &'static CStr)> {
                match self.0 {
                    0 => Some((c"CUDA_SUCCESS", c"no error")),
                    $($code => Some((
                        as_c(concat!("CUDA_ERROR_", stringify!($name), "\0")),
                        as_c(concat!($text, "\0")),
                    )),)+
                    _ => None,
                }
            }
        }
    };
}

errors! {
    INVALID_VALUE = 1 "invalid argument";
    OUT_OF_MEMORY = 2 "out of memory";
    NOT_INITIALIZED = 3 "initialization error";
    INVALID_DEVICE = 101 "invalid device ordinal";
    INVALID_CONTEXT = 201 "invalid device context";
    INVALID_HANDLE = 400 "invalid resource handle";
    ILLEGAL_STATE = 401 "the operation cannot be performed in the present state";
    NOT_FOUND = 500 "named symbol not found";
    NOT_READY = 600 "device not ready";
    ILLEGAL_ADDRESS = 700 "an illegal memory access was encountered";
    LAUNCH_FAILED = 719 "unspecified launch failure";
    STREAM_CAPTURE_UNSUPPORTED = 900 "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901 "operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902 "operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903 "capture was not ended in the same stream as it began";
    STREAM_CAPTURE_ISOLATION = 905 "dependency created on uncaptured work in another stream";
    CAPTURED_EVENT = 907 "operation not permitted on an event last recorded in a capturing stream";
    UNKNOWN = 999 "unknown error";
}

const fn as_c(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the macro adds the one NUL"),
    }
}

impl Error {
    /// The error of that number; scripts may give any.
    pub(crate) const fn from_code(code: u32) -> Self {
        Self(code)
    }

    /// The number that the caller sees.
    pub const fn code(self) -> u32 {
        self.0
    }

    /// `CUDA_ERROR_…`, or the bare number where this library has no name for it.
    pub(crate) fn name(self) -> String {
        self.texts().map_or_else(|| self.0.to_string(), |(name, _)| name.to_string_lossy().into_owned())
    }
}

export! {
    /// Name of a result code.
    fn cuGetErrorName(error: u32, text: Out<'_, *const c_char>) {
        let (name, _) = Error(error).texts().ok_or(Error::INVALID_VALUE)?;
        give(text, name.as_ptr())
    }

    /// Sentence for a result code.
    fn cuGetErrorString(error: u32, text: Out<'_, *const c_char>) {
        let (_, sentence) = Error(error).texts().ok_or(Error::INVALID_VALUE)?;
        give(text, sentence.as_ptr())
    }
}
