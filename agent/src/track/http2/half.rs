//! What is known of one direction of an HTTP/2 connection.

use super::{frame::Frames, hpack};

/// A header block that is not complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// `None`: it is no use, but the table needs it.
    pub stream: Option<u32>,
    /// The stream ends with it.
    pub end: bool,
    /// When its first byte went.
    pub begun_ns: u64,
}

/// One direction.
#[derive(Debug)]
pub(super) struct Half {
    pub frames: Frames,
    pub headers: hpack::Reader,
    pub block: Option<Pending>,
    /// Requests may have been lost: their numbers will tell.
    pub suspect: bool,
    /// Next byte; `None` before the first.
    pub expected: Option<u64>,
    /// When the first byte of the current frame went.
    pub begun_ns: u64,
    /// Bytes of the frame that were counted.
    pub counted: u32,
    /// Framing was lost inside a body of this stream, in this call.
    pub inside: Option<u32>,
}

impl Half {
    /// With nothing seen yet.
    pub(super) fn new(frames: Frames, expected: Option<u64>) -> Self {
        Self {
            frames,
            headers: hpack::Reader::default(),
            block: None,
            suspect: false,
            expected,
            begun_ns: 0,
            counted: 0,
            inside: None,
        }
    }

    /// Header blocks are missing, or parts of one.
    pub(super) fn lose_headers(&mut self) {
        self.headers.lose();
        self.headers.end();
        self.block = None;
        self.suspect = false;
    }
}
