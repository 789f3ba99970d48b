//! What a body told.

use super::Key;

/// What stands for a finish reason that is none.
const OTHER: &str = "other";

/// Facts of a request's or an answer's body; over all events, when the answer is a stream.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state in disguise")]
pub(in crate::track) struct Facts {
    pub model: Option<String>,
    pub stream: Option<bool>,
    pub max_tokens: Option<u64>,
    pub include_usage: Option<bool>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub finish_reason: Option<String>,
    /// There is an error object or text at the top.
    pub error: bool,
    /// There was content at all.
    pub any_content: bool,
    /// Content of more than one choice.
    pub interleaved: bool,
    /// There is content in the current document.
    content: bool,
    choice: Choice,
    last_index: Option<u64>,
    /// How far outside the first known object the model's and the flag's objects are; larger is nearer the root.
    model_origin: Origin,
    stream_origin: Origin,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Choice {
    index: u64,
    content: bool,
}

/// Where a member of the root was found. Later ones are better.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
enum Origin {
    #[default]
    Nowhere,
    /// After a gap, so many levels outside the first object known after it.
    Outwards(u32),
    /// In the root itself.
    Root,
}

impl Origin {
    fn new(outwards: Option<u32>) -> Self {
        outwards.map_or(Self::Root, Self::Outwards)
    }

    /// After another gap, levels outside are counted from elsewhere.
    fn forget(&mut self) {
        if *self != Self::Root {
            *self = Self::Nowhere;
        }
    }
}

impl Facts {
    pub(super) fn forget_origin(&mut self) {
        self.model_origin.forget();
        self.stream_origin.forget();
    }

    /// `outwards` is `None` in the root.
    pub(super) fn set_model(&mut self, raw: &[u8], outwards: Option<u32>) {
        let origin = Origin::new(outwards);
        if origin < self.model_origin {
            return;
        }
        self.model_origin = origin;
        // Every event of a stream repeats it.
        if self.model.as_ref().is_none_or(|model| model.as_bytes() != raw) {
            self.model = unescape(raw);
        }
    }

    pub(super) fn set_stream(&mut self, stream: bool, outwards: Option<u32>) {
        let origin = Origin::new(outwards);
        if origin >= self.stream_origin {
            self.stream_origin = origin;
            self.stream = Some(stream);
        }
    }

    /// The last one counts, but a filtered choice is not forgotten for another one's end.
    pub(super) fn set_finish_reason(&mut self, raw: &[u8]) {
        if self.finish_reason.as_deref() != Some("content_filter") {
            self.finish_reason =
                unescape(raw).map(|reason| if is_word(&reason) { reason } else { OTHER.to_owned() });
        }
    }

    pub(super) fn set_number(&mut self, key: Key, value: u64) {
        match key {
            Key::MaxTokens | Key::MaxCompletionTokens => self.max_tokens = Some(value),
            Key::PromptTokens => self.input_tokens = Some(value),
            Key::CompletionTokens => self.output_tokens = Some(value),
            Key::Index => self.choice.index = value,
            _ => {}
        }
    }

    pub(super) fn mark_content(&mut self) {
        self.any_content = true;
        self.content = true;
        self.choice.content = true;
    }

    pub(super) fn enter_choice(&mut self) {
        self.choice = Choice::default();
    }

    pub(super) fn leave_choice(&mut self) {
        if self.choice.content {
            let index = self.choice.index;
            self.interleaved |= self.last_index.is_some_and(|last| last != index);
            self.last_index = Some(index);
        }
    }

    /// Whether the document that ends here had content.
    pub(in crate::track) fn take_content(&mut self) -> bool {
        std::mem::take(&mut self.content)
    }
}

/// A reason is one of an engine's few names. Anything else is text of somebody, and text goes nowhere.
fn is_word(reason: &str) -> bool {
    reason.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_')
}

fn unescape(raw: &[u8]) -> Option<String> {
    if !raw.contains(&b'\\') {
        return std::str::from_utf8(raw).ok().map(str::to_owned);
    }
    serde_json::from_slice(&[b"\"", raw, b"\""].concat()).ok()
}
