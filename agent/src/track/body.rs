//! The reader of a message's body, by its content type.

use super::{
    http1::head::Content,
    json::{Facts, Lexer},
    mask::mask_all,
    sse::Sse,
};

/// Reads and masks the bytes of one body.
#[derive(Debug, Default)]
pub(super) enum Body {
    /// Nothing can be read in it: all of it is masked.
    #[default]
    Opaque,
    /// JSON, or something that will prove to be none.
    Json(Box<Lexer>),
    /// Server-sent events.
    Events(Box<Sse>),
}

impl Body {
    /// By content type.
    pub(super) fn new(content: Content) -> Self {
        match content {
            Content::Opaque => Self::Opaque,
            Content::Events => Self::Events(Box::new(Sse::new())),
            Content::Unknown | Content::JsonLines | Content::Other => Self::Json(Box::new(Lexer::new())),
        }
    }

    /// By first bytes, for one whose head was not seen.
    pub(super) fn guess(bytes: &[u8]) -> Self {
        if Sse::begins(bytes) { Self::Events(Box::new(Sse::new())) } else { Self::Opaque }
    }

    /// Reads and masks the next bytes; the number of content-bearing events that ended in them.
    pub(super) fn feed(&mut self, bytes: &mut [u8]) -> u64 {
        match self {
            Self::Opaque => mask_all(bytes),
            Self::Json(lexer) => lexer.feed(bytes),
            Self::Events(events) => return events.feed(bytes),
        }
        0
    }

    /// An unknown number of bytes is missing. True when events may have been lost with them.
    pub(super) fn gap(&mut self) -> bool {
        match self {
            Self::Opaque => {}
            Self::Json(lexer) => lexer.gap(),
            Self::Events(events) => events.gap(),
        }
        matches!(self, Self::Events(_))
    }

    /// Framing was found again after a gap, and the body goes on with these bytes.
    pub(super) fn resume(&mut self, bytes: &[u8]) {
        if let Self::Events(events) = self
            && Sse::begins(bytes)
        {
            events.resume();
        }
    }

    /// What it told so far.
    pub(super) fn facts(&self) -> Option<&Facts> {
        match self {
            Self::Opaque => None,
            Self::Json(lexer) => Some(lexer.facts()),
            Self::Events(events) => Some(events.facts()),
        }
    }

    /// What its facts do not tell is not there.
    pub(super) fn readable(&self) -> bool {
        match self {
            Self::Opaque => false,
            Self::Json(lexer) => !lexer.failed() && !lexer.is_lost(),
            Self::Events(_) => true,
        }
    }

    /// It ends in a gap: what its facts do not tell may have been there.
    pub(super) fn ends_lost(&self) -> bool {
        matches!(self, Self::Json(lexer) if lexer.is_lost())
    }

    /// The end marker of a stream of events was seen.
    pub(super) fn done(&self) -> bool {
        matches!(self, Self::Events(events) if events.done())
    }
}
