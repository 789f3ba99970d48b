//! The reader of a message's body, by its content type and by the API it belongs to.

use super::{
    grpc::Messages,
    http1::{
        Side,
        head::{Content, Headers},
    },
    json::{Facts, Grammar, Lexer},
    lines::Lines,
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
    Json(Box<Json>),
    /// Server-sent events.
    Events(Box<Sse>),
    /// Newline-separated JSON.
    Lines(Box<Lines>),
    /// gRPC messages.
    Messages(Box<Messages>),
}

/// A JSON document, which may have binary data behind it.
#[derive(Debug)]
pub(super) struct Json {
    lexer: Lexer,
    /// Bytes to the end of the document, where the head says it.
    left: Option<u64>,
}

impl Json {
    fn feed(&mut self, bytes: &mut [u8], last: bool) {
        let len = self
            .left
            .map_or(bytes.len(), |left| usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len()));
        let (json, binary) = bytes.split_at_mut(len);
        self.lexer.feed(json, self.left.map_or(last, |left| left == json.len() as u64));
        mask_all(binary);
        if let Some(left) = &mut self.left {
            *left -= len as u64;
        }
    }

    fn gap(&mut self) {
        self.lexer.gap();
        if let Some(left) = &mut self.left {
            // Where the binary data begins is lost with it.
            *left = 0;
        }
    }
}

impl Body {
    /// By what the head says.
    pub(super) fn new(headers: &Headers, grammar: Grammar, side: Side) -> Self {
        match headers.content {
            Content::Opaque => Self::Opaque,
            Content::Events => Self::Events(Box::new(Sse::new(grammar))),
            Content::Grpc(method) => Self::Messages(Box::new(Messages::new(method, side == Side::Response))),
            Content::JsonLines => Self::Lines(Box::new(Lines::new(grammar))),
            Content::Unknown | Content::Other => {
                Self::Json(Box::new(Json { lexer: Lexer::new(grammar), left: headers.json_len }))
            }
        }
    }

    /// By first bytes, for one whose head was not seen.
    pub(super) fn guess(bytes: &[u8], grammar: Grammar) -> Self {
        if Sse::begins(bytes) { Self::Events(Box::new(Sse::new(grammar))) } else { Self::Opaque }
    }

    /// Reads and masks the next bytes, `last` when the body is known to end with them; the number of content-bearing
    /// events that ended in them.
    pub(super) fn feed(&mut self, bytes: &mut [u8], last: bool) -> u64 {
        match self {
            Self::Opaque => mask_all(bytes),
            Self::Json(json) => json.feed(bytes, last),
            Self::Events(events) => return events.feed(bytes),
            Self::Lines(lines) => return lines.feed(bytes),
            Self::Messages(messages) => return messages.feed(bytes),
        }
        0
    }

    /// It is a stream of events.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Events(_) | Self::Lines(_))
    }

    /// So many bytes are missing, or an unknown number. True when events may have been lost with them.
    pub(super) fn gap(&mut self, len: Option<u64>) -> bool {
        match self {
            Self::Opaque => {}
            Self::Json(json) => json.gap(),
            Self::Events(events) => events.gap(),
            Self::Lines(lines) => lines.gap(),
            Self::Messages(messages) => return messages.gap(len),
        }
        self.is_stream()
    }

    /// An event of a stream is being read that has new content, whatever else it may hold.
    pub(super) fn in_content(&self) -> bool {
        self.is_stream() && self.facts().is_some_and(Facts::in_content)
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
            Self::Json(json) => Some(json.lexer.facts()),
            Self::Events(events) => Some(events.facts()),
            Self::Lines(lines) => Some(lines.facts()),
            Self::Messages(messages) => Some(messages.facts()),
        }
    }

    /// What its facts do not tell is not there.
    pub(super) fn readable(&self) -> bool {
        match self {
            Self::Opaque => false,
            Self::Json(json) => !json.lexer.failed() && !json.lexer.is_lost(),
            Self::Events(_) | Self::Lines(_) | Self::Messages(_) => true,
        }
    }

    /// The same, and none of it was missed.
    pub(super) fn whole(&self) -> bool {
        matches!(self, Self::Json(json) if !json.lexer.failed() && !json.lexer.has_gap())
    }

    /// It is JSON of which some was missed, perhaps the model's name.
    pub(super) fn lacks_model(&self) -> bool {
        matches!(self, Self::Json(json)
            if json.lexer.has_gap() && !json.lexer.failed() && json.lexer.facts().model.is_none())
    }

    /// It ends in a gap: what its facts do not tell may have been there.
    pub(super) fn ends_lost(&self) -> bool {
        matches!(self, Self::Json(json) if json.lexer.is_lost())
    }

    /// The end marker of a stream of events was seen.
    pub(super) fn done(&self) -> bool {
        match self {
            Self::Opaque | Self::Json(_) | Self::Messages(_) => false,
            Self::Events(events) => events.done(),
            Self::Lines(lines) => lines.facts().ended,
        }
    }

    /// gRPC messages that were complete so far.
    pub(super) fn messages(&self) -> u64 {
        if let Self::Messages(messages) = self { messages.whole() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_data_behind_a_document_is_neither_read_nor_kept() {
        let json = br#"{"model_name":"m","outputs":[{"name":"o","datatype":"BYTES"}]}"#;
        let bytes = [&json[..], b"{\"model_name\":\"secret\"}"].concat();
        let headers = Headers { json_len: Some(json.len() as u64), ..Headers::default() };
        for at in 0..bytes.len() {
            let mut body = Body::new(&headers, Grammar::KSERVE.answer(), Side::Response);
            let (mut a, mut b) = (bytes[..at].to_vec(), bytes[at..].to_vec());
            body.feed(&mut a, false);
            body.feed(&mut b, true);
            assert_eq!(body.facts().unwrap().model.as_deref(), Some("m"));
            assert!([a, b].concat()[json.len()..].iter().all(|b| *b == b'x'));
        }
    }
}
