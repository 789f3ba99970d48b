//! What a body told.

use super::{
    act::{Act, Engine, Source},
    keys::Word,
};

/// Choices whose text is followed where each event repeats it.
const MAX_TEXTS: usize = 16;

/// What stands for a finish reason that is none.
const OTHER: &str = "other";

/// Facts of a request's or an answer's body; over all events, when the answer is a stream.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state in disguise")]
pub(in crate::track) struct Facts {
    pub model: Option<String>,
    pub version: Option<String>,
    pub stream: Option<bool>,
    pub max_tokens: Option<u64>,
    pub include_usage: Option<bool>,
    finish_reason: Option<String>,
    status: Option<&'static str>,
    /// There is an error object or text at the top.
    pub error: bool,
    /// The answer itself says that it is over.
    pub ended: bool,
    /// Content of more than one choice.
    pub interleaved: bool,
    /// The engine whose members were there.
    pub engine: Option<Engine>,
    input: Option<(Source, u64)>,
    cached: [Option<(Source, u64)>; 2],
    output: Option<(Source, u64)>,
    /// Answers in one document.
    items: u64,
    /// There was content in documents before this one.
    any_content: bool,
    document: Document,
    choice: Choice,
    last_index: Option<u64>,
    /// Lengths of the texts that events repeat, by choice.
    texts: [u64; MAX_TEXTS],
    /// They do not repeat it after all.
    texts_are_new: bool,
    /// How far outside the first known object the model's and the flag's objects are; larger is nearer the root.
    model_origin: Origin,
    stream_origin: Origin,
}

/// The document that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Document {
    content: bool,
    /// Its token is none of the text.
    special: bool,
    index: Option<u64>,
    /// Length of the text so far.
    text: u64,
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

    pub(super) fn set_version(&mut self, raw: &[u8]) {
        if self.version.as_ref().is_none_or(|version| version.as_bytes() != raw) {
            self.version = unescape(raw);
        }
    }

    /// The last one counts, but a filtered choice is not forgotten for another one's end.
    pub(super) fn set_finish_reason(&mut self, raw: &[u8]) {
        let none = raw.is_empty() || raw == b"none";
        if !none && !self.finish_reason.as_deref().is_some_and(is_filter) {
            self.finish_reason =
                unescape(raw).map(|reason| if is_word(&reason) { reason } else { OTHER.to_owned() });
        }
    }

    pub(super) fn set_word(&mut self, word: Word) {
        match word {
            Word::Error => self.error = true,
            Word::Kind => {}
            Word::Ended => self.ended = true,
            Word::Status(status) => self.status = Some(status),
        }
    }

    pub(super) fn set_number(&mut self, act: Act, value: u64) {
        match act {
            Act::MaxTokens => self.max_tokens = Some(value),
            Act::Input(source) => better(&mut self.input, source, value),
            Act::Cached(source, part) => better(&mut self.cached[usize::from(part)], source, value),
            Act::Output(source) => better(&mut self.output, source, value),
            Act::Index => self.choice.index = value,
            Act::EventIndex => self.document.index = Some(value),
            Act::ErrorCode => self.error |= value >= 400,
            _ => {}
        }
    }

    pub(super) fn set_flag(&mut self, act: Act, yes: bool) {
        match act {
            Act::IncludeUsage => self.include_usage = Some(yes),
            Act::Ended => self.ended |= yes,
            Act::Special => self.document.special = yes,
            _ => {}
        }
    }

    /// What follows from a member's mere presence.
    pub(super) fn seen(&mut self, act: Act) {
        match act {
            Act::Engine(engine) => self.engine = Some(engine),
            Act::Output(Source::Counts) => self.engine = Some(Engine::LlamaCpp),
            _ => {}
        }
    }

    pub(super) fn mark_content(&mut self) {
        self.document.content = true;
        self.choice.content = true;
    }

    /// Content that is not new.
    pub(super) fn mark_any_content(&mut self) {
        self.any_content = true;
    }

    /// The text so far has so many bytes.
    pub(super) fn grow(&mut self, len: u64) {
        self.engine.get_or_insert(Engine::Sglang);
        self.document.text = len;
    }

    pub(super) fn enter_choice(&mut self) {
        self.choice = Choice::default();
    }

    pub(super) fn leave_choice(&mut self) {
        if self.choice.content {
            self.choose(self.choice.index);
        }
    }

    pub(super) fn add_item(&mut self) {
        self.items += 1;
    }

    fn choose(&mut self, index: u64) {
        self.interleaved |= self.last_index.is_some_and(|last| last != index);
        self.last_index = Some(index);
    }

    /// An event is over: whether it had new content.
    pub(in crate::track) fn end_event(&mut self) -> bool {
        let document = std::mem::take(&mut self.document);
        let grown = self.grown(&document);
        let content = (document.content && !document.special) || grown;
        self.any_content |= content;
        // One engine numbers its tokens by the same name.
        if content
            && self.engine != Some(Engine::Tgi)
            && let Some(index) = document.index
        {
            self.choose(index);
        }
        content
    }

    fn grown(&mut self, document: &Document) -> bool {
        if document.text == 0 {
            return false;
        }
        let index = usize::try_from(document.index.unwrap_or(0)).unwrap_or(usize::MAX);
        let Some(before) = self.texts.get_mut(index) else { return true };
        let before = std::mem::replace(before, document.text);
        // A text never gets shorter.
        self.texts_are_new |= document.text < before;
        self.texts_are_new || document.text > before
    }

    /// There was content at all.
    pub(in crate::track) fn has_content(&self) -> bool {
        let document = &self.document;
        self.any_content || (document.content && !document.special) || document.text > 0
    }

    /// Why the answer ended, in the API's own word; `None` while it does not say that it did.
    pub(in crate::track) fn finish_reason(&self) -> Option<&str> {
        self.finish_reason.as_deref().or(self.status)
    }

    /// Prompt tokens, those from a cache included.
    pub(in crate::track) fn input_tokens(&self) -> Option<u64> {
        let (source, count) = self.input.filter(|(source, _)| self.counts_all(*source))?;
        let cached = self.cached.iter().flatten().filter(|(of, _)| *of == source).map(|(_, count)| *count);
        Some(cached.fold(count, u64::saturating_add))
    }

    /// Tokens of the answer.
    pub(in crate::track) fn output_tokens(&self) -> Option<u64> {
        self.output.filter(|(source, _)| self.counts_all(*source)).map(|(_, count)| count)
    }

    /// Where the counts came from: that of the answer's, else that of the prompt's.
    pub(in crate::track) fn tokens_source(&self) -> Option<&'static str> {
        [self.output, self.input]
            .into_iter()
            .flatten()
            .find(|(s, _)| self.counts_all(*s))
            .map(|(s, _)| s.name())
    }

    /// A count of one choice is not one of the whole answer.
    fn counts_all(&self, source: Source) -> bool {
        !source.per_choice() || (self.items <= 1 && !self.interleaved)
    }
}

/// The model's own filter cut the answer.
pub(in crate::track) fn is_filter(finish_reason: &str) -> bool {
    matches!(finish_reason, "content_filter" | "refusal")
}

fn better(count: &mut Option<(Source, u64)>, source: Source, value: u64) {
    if count.is_none_or(|(before, _)| source >= before) {
        *count = Some((source, value));
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
