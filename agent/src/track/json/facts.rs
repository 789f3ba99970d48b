//! What a body told.

use super::{
    act::{Act, Engine, Source},
    growth::{Growth, Seen},
    keys::Word,
    reasons::{OTHER, REASONS, is_filter},
};

/// Facts of a request's or an answer's body; over all events, when the answer is a stream.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state in disguise")]
pub(in crate::track) struct Facts {
    pub model: Option<String>,
    pub version: Option<String>,
    pub stream: Option<bool>,
    pub max_tokens: Option<u64>,
    pub include_usage: Option<bool>,
    finish_reason: Option<&'static str>,
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
    /// Of text that events may repeat.
    growth: Growth,
    /// The last usage was that of one choice, as some engines state it beside each piece of text.
    usage_of_choice: bool,
    /// How far outside the first known object the model's and the flag's objects are; larger is nearer the root.
    model_origin: Origin,
    stream_origin: Origin,
}

/// The document that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state in disguise")]
struct Document {
    content: bool,
    /// Whether its token is none of the text.
    special: Option<bool>,
    index: Option<u64>,
    /// Of a text that it may repeat.
    seen: Seen,
    /// It says why the answer ended.
    finished: bool,
    /// Numbers among outputs whose names mean nothing.
    numbers: bool,
    /// Text among them, be it empty.
    text: bool,
    /// It has choices.
    choices: bool,
    /// It has a usage.
    usage: bool,
    /// Some of it is missing.
    gap: bool,
}

impl Document {
    fn has_content(&self) -> bool {
        (self.content && self.special != Some(true)) || (self.numbers && !self.text)
    }
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

    /// It was found in an object inside of one that many levels outside; of a larger number, in any but the root.
    fn is_inside(self, outwards: u32) -> bool {
        matches!(self, Self::Outwards(found) if found.saturating_add(1) < outwards)
    }
}

impl Facts {
    /// Something is missing here, of a list of tokens if so.
    pub(super) fn gap(&mut self, in_ids: bool) {
        // More of the body follows, so that what was found after the last gap was not found in its root.
        self.outgrow(u32::MAX);
        self.document.gap = true;
        if in_ids {
            self.document.seen.ids = 0;
        }
    }

    /// What is read now is so many levels outside: what was found far inside was not found in the root.
    pub(super) fn outgrow(&mut self, outwards: u32) {
        if self.stream_origin.is_inside(outwards) {
            (self.stream, self.stream_origin) = (None, Origin::Nowhere);
        }
        if self.model_origin.is_inside(outwards) {
            self.forget_model();
        }
    }

    /// The model's name that was found after a gap is none.
    pub(super) fn forget_model(&mut self) {
        if self.model_origin != Origin::Root {
            (self.model, self.model_origin) = (None, Origin::Nowhere);
        }
    }

    /// The model's name is the one that was found so many levels outside, after a gap.
    pub(super) fn model_is_of(&self, outwards: u32) -> bool {
        self.model_origin == Origin::Outwards(outwards)
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

    /// The last one counts, but a filtered choice is not forgotten for another one's end. `None`: it is not listed.
    pub(super) fn set_finish_reason(&mut self, index: Option<usize>) {
        let listed = index.and_then(|index| std::str::from_utf8(REASONS[index]).ok());
        let reason = listed.unwrap_or(OTHER);
        if reason == "none" {
            return;
        }
        self.document.finished = true;
        if !self.finish_reason.is_some_and(is_filter) {
            self.finish_reason = Some(reason);
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
            Act::Output(source) => {
                match source {
                    Source::MetaInfo => self.document.seen.tokens = Some(value),
                    Source::Usage => self.document.usage = true,
                    _ => {}
                }
                better(&mut self.output, source, value);
            }
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
            Act::Special => self.document.special = Some(yes),
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
        self.document.seen.text = Some(len);
    }

    /// The text has so many bytes and goes on where some of it is missing.
    pub(super) fn text_goes_on(&mut self, len: u64) {
        if self.last_index.is_none() && self.growth.outgrows(len) {
            self.mark_content();
        }
    }

    /// A token is listed.
    pub(super) fn add_id(&mut self) {
        self.document.seen.ids += 1;
    }

    /// An output is a number, or numbers.
    pub(super) fn mark_numbers(&mut self) {
        self.document.numbers = true;
    }

    /// An output is text.
    pub(super) fn mark_text(&mut self) {
        self.document.text = true;
    }

    pub(super) fn enter_choice(&mut self) {
        self.document.choices = true;
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
        // Whose text it is may be missing.
        let is_somebodys = document.gap && document.index.is_none() && self.last_index.is_some();
        let grown = !is_somebodys && self.growth.take(document.index, document.seen, document.finished);
        let content = document.has_content() || grown;
        self.any_content |= content;
        if document.usage {
            self.usage_of_choice = document.choices;
        }
        // One engine numbers its tokens by the same name.
        if content
            && self.engine != Some(Engine::Tgi)
            && let Some(index) = document.index
        {
            self.choose(index);
        }
        content
    }

    /// The event that is being read has new content, whatever else it may hold.
    pub(in crate::track) fn in_content(&self) -> bool {
        let token_is_known = self.engine != Some(Engine::Tgi) || self.document.special.is_some();
        let mut so_far = self.clone();
        so_far.document.text = true;
        token_is_known && so_far.end_event()
    }

    /// An event may have had new content that was not counted; and the last one may, or some behind the last that was.
    pub(in crate::track) fn doubts(&self) -> (bool, bool) {
        (self.growth.doubts, self.growth.ends_in_doubt)
    }

    /// There was content at all.
    pub(in crate::track) fn has_content(&self) -> bool {
        let seen = self.document.seen;
        self.any_content || self.document.has_content() || seen.text.unwrap_or(0) > 0 || seen.ids > 0
    }

    /// Why the answer ended, in the API's own word; `None` while it does not say that it did.
    pub(in crate::track) fn finish_reason(&self) -> Option<&str> {
        self.finish_reason.or(self.status)
    }

    /// Prompt tokens, those from a cache included.
    pub(in crate::track) fn input_tokens(&self) -> Option<u64> {
        let (source, count) = self.input.filter(|(source, _)| self.counts_all(*source))?;
        let cached = self.cached.iter().flatten().filter(|(of, _)| *of == source).map(|(_, count)| *count);
        Some(cached.fold(count, u64::saturating_add))
    }

    /// Tokens of the answer.
    pub(in crate::track) fn output_tokens(&self) -> Option<u64> {
        self.output_of_all().map(|(_, count)| count)
    }

    fn output_of_all(&self) -> Option<(Source, u64)> {
        let of_one = |source| source == Source::Usage && self.usage_of_choice && self.interleaved;
        self.output.filter(|(source, _)| self.counts_all(*source) && !of_one(*source))
    }

    /// Where the counts came from: that of the answer's, else that of the prompt's.
    pub(in crate::track) fn tokens_source(&self) -> Option<&'static str> {
        let input = || self.input.filter(|(source, _)| self.counts_all(*source));
        self.output_of_all().or_else(input).map(|(source, _)| source.name())
    }

    /// A count of one choice is not one of the whole answer.
    fn counts_all(&self, source: Source) -> bool {
        !source.per_choice() || (self.items <= 1 && !self.interleaved)
    }
}

fn better(count: &mut Option<(Source, u64)>, source: Source, value: u64) {
    if count.is_none_or(|(before, _)| source >= before) {
        *count = Some((source, value));
    }
}

fn unescape(raw: &[u8]) -> Option<String> {
    if !raw.contains(&b'\\') {
        return std::str::from_utf8(raw).ok().map(str::to_owned);
    }
    serde_json::from_slice(&[b"\"", raw, b"\""].concat()).ok()
}
