//! What the members of a body mean, by their path: one row for each. Only values that a row names are kept.
//!
//! A path is made of names and `[]` for the elements of an array. A row holds for the APIs and the sides that its
//! set has; two rows with one path must differ in theirs.

use super::{Key, keys::NAMES};

/// Which APIs a body may belong to, and which side it comes from: what can be read in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::track) struct Grammar(u16);

const OPENAI: u16 = 1;
const EMBED: u16 = 1 << 1;
const RESPONSES: u16 = 1 << 2;
const ANTHROPIC: u16 = 1 << 3;
const OLLAMA: u16 = 1 << 4;
const KSERVE: u16 = 1 << 5;
const TGI: u16 = 1 << 6;
const SGLANG: u16 = 1 << 7;
const LLAMA: u16 = 1 << 8;
/// Requests.
const Q: u16 = 1 << 14;
/// Answers.
const A: u16 = 1 << 15;

impl Grammar {
    /// What is not JSON.
    pub(in crate::track) const NONE: Self = Self(0);
    /// Chat and text completions.
    pub(in crate::track) const OPENAI: Self = Self(OPENAI);
    /// APIs that produce no tokens, so that `usage` may have a total only.
    pub(in crate::track) const EMBED: Self = Self(OPENAI | EMBED);
    pub(in crate::track) const RESPONSES: Self = Self(RESPONSES);
    pub(in crate::track) const ANTHROPIC: Self = Self(ANTHROPIC);
    pub(in crate::track) const OLLAMA: Self = Self(OLLAMA);
    pub(in crate::track) const KSERVE: Self = Self(KSERVE);
    pub(in crate::track) const TGI: Self = Self(TGI);
    pub(in crate::track) const SGLANG: Self = Self(SGLANG);
    /// Two engines have `/generate`.
    pub(in crate::track) const GENERATE: Self = Self(TGI | SGLANG);
    pub(in crate::track) const LLAMA: Self = Self(LLAMA);
    /// `/completions` without a version is native in one engine.
    pub(in crate::track) const COMPLETIONS: Self = Self(OPENAI | LLAMA);
    /// By shape: for what is not known. Without the APIs whose members mean something else elsewhere.
    pub(in crate::track) const ANY: Self = Self(OPENAI | RESPONSES | ANTHROPIC | OLLAMA | TGI | LLAMA);

    /// Of a request's body.
    pub(in crate::track) const fn request(self) -> Self {
        Self(self.0 | Q)
    }

    /// Of an answer's body.
    pub(in crate::track) const fn answer(self) -> Self {
        Self(self.0 | A)
    }

    /// Of either, in tests.
    #[cfg(test)]
    pub(in crate::track) const fn both(self) -> Self {
        Self(self.0 | A | Q)
    }

    const fn has(self, set: u16) -> bool {
        self.0 & set & !(Q | A) != 0 && self.0 & set & (Q | A) != 0
    }

    /// Every member of the answer that is not named is an output of the model.
    fn any_output(self) -> bool {
        self.0 == KSERVE | A
    }
}

/// Where a token count came from; a later one is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::track) enum Source {
    /// `usage.total_tokens` of an API that produces no tokens.
    Total,
    /// The object `timings`.
    Timings,
    /// `tokens_evaluated` and `tokens_predicted`.
    Counts,
    Ollama,
    Details,
    MetaInfo,
    Usage,
}

impl Source {
    /// As in records.
    pub(in crate::track) fn name(self) -> &'static str {
        match self {
            Self::Total | Self::Usage => "usage",
            Self::Timings | Self::Counts => "timings",
            Self::Ollama => "ollama",
            Self::Details => "details",
            Self::MetaInfo => "meta_info",
        }
    }

    /// A count of one choice, not of the whole answer.
    pub(super) fn per_choice(self) -> bool {
        matches!(self, Self::Timings | Self::Counts | Self::Details | Self::MetaInfo)
    }
}

/// An engine that members give away where its path does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::track) enum Engine {
    LlamaCpp,
    Sglang,
    Tgi,
}

/// What a member is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    None,
    Model,
    Version,
    Finish,
    /// The same, by a name too common to be looked for after a gap.
    Reason,
    /// One of a closed list of words.
    Word,
    Error,
    /// A status of an error.
    ErrorCode,
    /// New content, if there is anything in it.
    Content,
    /// Content that events before may have brought, if there is anything in it.
    Whole,
    /// The whole text of a stream that has ended.
    Final,
    /// The text so far: what it has grown by is new.
    Growth,
    /// Whether the event's token is none of the text.
    Special,
    Stream,
    IncludeUsage,
    /// Whether the stream has ended.
    Ended,
    Choice,
    /// The choice's number.
    Index,
    /// The same, in an event of one choice.
    EventIndex,
    /// One of several answers in one document.
    Item,
    MaxTokens,
    Input(Source),
    /// Prompt tokens that the count of the same source leaves out.
    Cached(Source, u8),
    Output(Source),
    Engine(Engine),
}

impl Act {
    /// For a string.
    pub(super) fn on_text(self) -> Self {
        match self {
            Self::Model
            | Self::Version
            | Self::Finish
            | Self::Reason
            | Self::Word
            | Self::Error
            | Self::Content
            | Self::Whole
            | Self::Final
            | Self::Growth => self,
            _ => Self::None,
        }
    }

    /// For a number: it is kept.
    pub(super) fn on_number(self) -> bool {
        matches!(
            self,
            Self::ErrorCode
                | Self::Index
                | Self::EventIndex
                | Self::MaxTokens
                | Self::Input(_)
                | Self::Cached(..)
                | Self::Output(_)
        )
    }

    /// The string's value is kept, as far as it is not too long.
    pub(super) fn keeps_text(self) -> bool {
        matches!(self, Self::Model | Self::Version | Self::Finish | Self::Reason)
    }

    /// May be found by its name alone, after a gap.
    fn is_telling(self) -> bool {
        matches!(
            self,
            Self::Model
                | Self::Version
                | Self::Finish
                | Self::Stream
                | Self::IncludeUsage
                | Self::MaxTokens
                | Self::Input(_)
                | Self::Cached(..)
                | Self::Output(_)
        )
    }
}

struct Rule {
    path: &'static str,
    set: u16,
    act: Act,
}

const fn rule(path: &'static str, set: u16, act: Act) -> Rule {
    Rule { path, set, act }
}

const AI: u16 = OPENAI | RESPONSES | ANTHROPIC | OLLAMA;

/// Sorted by path.
const RULES: &[Rule] = &[
    rule("[]", A | TGI | SGLANG | LLAMA, Act::Item),
    rule("[].content", A | LLAMA, Act::Whole),
    rule("[].details.finish_reason", A | TGI, Act::Finish),
    rule("[].details.generated_tokens", A | TGI, Act::Output(Source::Details)),
    rule("[].details.input_length", A | TGI, Act::Input(Source::Details)),
    rule("[].generated_text", A | TGI, Act::Whole),
    rule("[].meta_info", A | SGLANG, Act::Engine(Engine::Sglang)),
    rule("[].meta_info.completion_tokens", A | SGLANG, Act::Output(Source::MetaInfo)),
    rule("[].meta_info.finish_reason.status_code", A | SGLANG, Act::ErrorCode),
    rule("[].meta_info.finish_reason.type", A | SGLANG, Act::Reason),
    rule("[].meta_info.prompt_tokens", A | SGLANG, Act::Input(Source::MetaInfo)),
    rule("[].text", A | SGLANG, Act::Whole),
    rule("choices[]", A | OPENAI, Act::Choice),
    rule("choices[].delta.content", A | OPENAI, Act::Content),
    rule("choices[].delta.function_call", A | OPENAI, Act::Content),
    rule("choices[].delta.reasoning", A | OPENAI, Act::Content),
    rule("choices[].delta.reasoning_content", A | OPENAI, Act::Content),
    rule("choices[].delta.refusal", A | OPENAI, Act::Content),
    rule("choices[].delta.tool_calls", A | OPENAI, Act::Content),
    rule("choices[].finish_reason", A | OPENAI, Act::Finish),
    rule("choices[].index", A | OPENAI, Act::Index),
    rule("choices[].message.content", A | OPENAI, Act::Content),
    rule("choices[].message.function_call", A | OPENAI, Act::Content),
    rule("choices[].message.reasoning", A | OPENAI, Act::Content),
    rule("choices[].message.reasoning_content", A | OPENAI, Act::Content),
    rule("choices[].message.refusal", A | OPENAI, Act::Content),
    rule("choices[].message.tool_calls", A | OPENAI, Act::Content),
    rule("choices[].text", A | OPENAI, Act::Content),
    rule("content", A | LLAMA, Act::Content),
    rule("content[].name", A | ANTHROPIC, Act::Whole),
    rule("content[].text", A | ANTHROPIC, Act::Whole),
    rule("content[].thinking", A | ANTHROPIC, Act::Whole),
    rule("content_block.name", A | ANTHROPIC, Act::Whole),
    rule("content_block.text", A | ANTHROPIC, Act::Whole),
    rule("delta", A | RESPONSES, Act::Content),
    rule("delta.partial_json", A | ANTHROPIC, Act::Content),
    rule("delta.stop_reason", A | ANTHROPIC, Act::Finish),
    rule("delta.text", A | ANTHROPIC, Act::Content),
    rule("delta.thinking", A | ANTHROPIC, Act::Content),
    rule("details.finish_reason", A | TGI, Act::Finish),
    rule("details.generated_tokens", A | TGI, Act::Output(Source::Details)),
    rule("details.input_length", A | TGI, Act::Input(Source::Details)),
    rule("done", A | OLLAMA, Act::Ended),
    rule("done_reason", A | OLLAMA, Act::Finish),
    rule("error", A | AI | KSERVE | TGI | SGLANG | LLAMA, Act::Error),
    rule("eval_count", A | OLLAMA, Act::Output(Source::Ollama)),
    rule("generated_text", A | TGI, Act::Final),
    rule("id", A | KSERVE, Act::None),
    rule("incomplete_details.reason", A | RESPONSES, Act::Reason),
    rule("index", A | SGLANG | LLAMA, Act::EventIndex),
    rule("input_ids", Q | SGLANG, Act::Engine(Engine::Sglang)),
    rule("inputs", Q | TGI, Act::Engine(Engine::Tgi)),
    rule("max_completion_tokens", Q | OPENAI, Act::MaxTokens),
    rule("max_output_tokens", Q | RESPONSES, Act::MaxTokens),
    rule("max_tokens", Q | OPENAI | ANTHROPIC | KSERVE, Act::MaxTokens),
    rule("message.content", A | OLLAMA, Act::Content),
    rule("message.model", A | ANTHROPIC, Act::Model),
    rule("message.thinking", A | OLLAMA, Act::Content),
    rule("message.tool_calls", A | OLLAMA, Act::Content),
    rule("message.usage.cache_creation_input_tokens", A | ANTHROPIC, Act::Cached(Source::Usage, 0)),
    rule("message.usage.cache_read_input_tokens", A | ANTHROPIC, Act::Cached(Source::Usage, 1)),
    rule("message.usage.input_tokens", A | ANTHROPIC, Act::Input(Source::Usage)),
    rule("message.usage.output_tokens", A | ANTHROPIC, Act::Output(Source::Usage)),
    rule("meta_info", A | SGLANG, Act::Engine(Engine::Sglang)),
    rule("meta_info.completion_tokens", A | SGLANG, Act::Output(Source::MetaInfo)),
    rule("meta_info.finish_reason.status_code", A | SGLANG, Act::ErrorCode),
    rule("meta_info.finish_reason.type", A | SGLANG, Act::Reason),
    rule("meta_info.prompt_tokens", A | SGLANG, Act::Input(Source::MetaInfo)),
    rule("model", Q | A | AI | LLAMA, Act::Model),
    rule("model_name", A | KSERVE, Act::Model),
    rule("model_version", A | KSERVE, Act::Version),
    rule("n_predict", Q | LLAMA, Act::MaxTokens),
    rule("object", A | OPENAI, Act::Word),
    rule("options.num_predict", Q | OLLAMA, Act::MaxTokens),
    rule("output[].arguments", A | RESPONSES, Act::Whole),
    rule("output[].content[].refusal", A | RESPONSES, Act::Whole),
    rule("output[].content[].text", A | RESPONSES, Act::Whole),
    rule("output[].name", A | RESPONSES, Act::Whole),
    rule("output[].summary[].text", A | RESPONSES, Act::Whole),
    rule("parameters", A | KSERVE, Act::None),
    rule("parameters.max_new_tokens", Q | TGI, Act::MaxTokens),
    rule("prompt_eval_count", A | OLLAMA, Act::Input(Source::Ollama)),
    rule("response", A | OLLAMA, Act::Content),
    rule("response.error", A | RESPONSES, Act::Error),
    rule("response.incomplete_details.reason", A | RESPONSES, Act::Reason),
    rule("response.model", A | RESPONSES, Act::Model),
    rule("response.output[].arguments", A | RESPONSES, Act::Whole),
    rule("response.output[].content[].refusal", A | RESPONSES, Act::Whole),
    rule("response.output[].content[].text", A | RESPONSES, Act::Whole),
    rule("response.output[].name", A | RESPONSES, Act::Whole),
    rule("response.output[].summary[].text", A | RESPONSES, Act::Whole),
    rule("response.status", A | RESPONSES, Act::Word),
    rule("response.usage.input_tokens", A | RESPONSES, Act::Input(Source::Usage)),
    rule("response.usage.output_tokens", A | RESPONSES, Act::Output(Source::Usage)),
    rule("sampling_params", Q | SGLANG, Act::Engine(Engine::Sglang)),
    rule("sampling_params.max_new_tokens", Q | SGLANG, Act::MaxTokens),
    rule("status", A | RESPONSES, Act::Word),
    rule("stop", A | LLAMA, Act::Ended),
    rule("stop_reason", A | ANTHROPIC, Act::Finish),
    rule("stop_type", A | LLAMA, Act::Finish),
    rule("stream", Q | AI | TGI | SGLANG | LLAMA, Act::Stream),
    rule("stream_options.include_usage", Q | OPENAI, Act::IncludeUsage),
    rule("text", A | SGLANG, Act::Growth),
    rule("text", A | RESPONSES, Act::Whole),
    rule("thinking", A | OLLAMA, Act::Content),
    rule("timings.cache_n", A | OPENAI | LLAMA, Act::Cached(Source::Timings, 0)),
    rule("timings.predicted_n", A | OPENAI | LLAMA, Act::Output(Source::Timings)),
    rule("timings.prompt_n", A | OPENAI | LLAMA, Act::Input(Source::Timings)),
    rule("token", A | TGI, Act::Engine(Engine::Tgi)),
    rule("token.special", A | TGI, Act::Special),
    rule("token.text", A | TGI, Act::Content),
    rule("tokens_evaluated", A | LLAMA, Act::Input(Source::Counts)),
    rule("tokens_predicted", A | LLAMA, Act::Output(Source::Counts)),
    rule("type", A | RESPONSES | ANTHROPIC, Act::Word),
    rule("usage.cache_creation_input_tokens", A | ANTHROPIC, Act::Cached(Source::Usage, 0)),
    rule("usage.cache_read_input_tokens", A | ANTHROPIC, Act::Cached(Source::Usage, 1)),
    rule("usage.completion_tokens", A | OPENAI, Act::Output(Source::Usage)),
    rule("usage.input_tokens", A | RESPONSES | ANTHROPIC, Act::Input(Source::Usage)),
    rule("usage.output_tokens", A | RESPONSES | ANTHROPIC, Act::Output(Source::Usage)),
    rule("usage.prompt_tokens", A | OPENAI, Act::Input(Source::Usage)),
    rule("usage.total_tokens", A | EMBED, Act::Input(Source::Total)),
];

pub(super) const COUNT: usize = RULES.len();

/// Path of a rule.
#[cfg(test)]
pub(super) fn path(index: usize) -> &'static str {
    RULES[index].path
}

/// The rules whose paths begin with the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    low: u8,
    high: u8,
    /// Length of what they begin with.
    at: u8,
}

/// What is known of a value's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It leads nowhere.
    Other,
    /// A part of the rules begins with it.
    Path(Prefix),
    /// Entered in the middle, after a gap: may be any object.
    Unknown,
}

/// The document itself.
pub(super) const ROOT: Place = Place::Path(Prefix { low: 0, high: narrow(COUNT), at: 0 });

/// The rules of each name as a member of the root.
const AT_ROOT: [Prefix; NAMES.len()] = {
    let mut all = [Prefix { low: 0, high: 0, at: 0 }; NAMES.len()];
    let mut i = 0;
    while i < NAMES.len() {
        let (mut low, mut high) = (0, 0);
        let mut j = 0;
        while j < COUNT {
            if is_next(RULES[j].path.as_bytes(), 0, b"", NAMES[i]) {
                low = if high == 0 { j } else { low };
                high = j + 1;
            }
            j += 1;
        }
        all[i] = Prefix { low: narrow(low), high: narrow(high), at: narrow(NAMES[i].len()) };
        i += 1;
    }
    all
};

#[expect(clippy::cast_possible_truncation, reason = "the number of rules and the length of paths are small")]
const fn narrow(n: usize) -> u8 {
    assert!(n < u8::MAX as usize);
    n as u8
}

/// From `at` on, the path goes on with `between` and `name`, and there the name ends.
const fn is_next(path: &[u8], at: usize, between: &[u8], name: &[u8]) -> bool {
    let (middle, end) = (at + between.len(), at + between.len() + name.len());
    if path.len() < end || (path.len() > end && path[end] != b'.' && path[end] != b'[') {
        return false;
    }
    let mut i = at;
    while i < end {
        let expected = if i < middle { between[i - at] } else { name[i - middle] };
        if path[i] != expected {
            return false;
        }
        i += 1;
    }
    true
}

impl Prefix {
    fn next(self, between: &[u8], name: &[u8]) -> Self {
        let at = usize::from(self.at);
        let fits = |i: &u8| is_next(RULES[usize::from(*i)].path.as_bytes(), at, between, name);
        let low = (self.low..self.high).find(fits).unwrap_or(self.high);
        let high = low + narrow((low..self.high).take_while(fits).count());
        Self { low, high, at: narrow(at + between.len() + name.len()) }
    }

    fn rules(self) -> &'static [Rule] {
        &RULES[usize::from(self.low)..usize::from(self.high)]
    }

    /// What its value is good for; `None` if no rule of the grammar is about it.
    fn act(self, grammar: Grammar) -> Option<Act> {
        let whole = |rule: &&Rule| rule.path.len() == usize::from(self.at);
        self.rules().iter().take_while(whole).find(|rule| grammar.has(rule.set)).map(|rule| rule.act)
    }

    fn place(self) -> Place {
        if self.low < self.high { Place::Path(self) } else { Place::Other }
    }
}

/// What a member of an object is: where it leads, and what it is good for.
pub(super) fn member(parent: Place, key: Key, grammar: Grammar) -> (Place, Act) {
    match (parent, key.index()) {
        (Place::Other, _) => (Place::Other, Act::None),
        (Place::Unknown, index) => index.map_or((Place::Other, Act::None), |i| anywhere(NAMES[i], grammar)),
        (ROOT, index) => {
            let found = index.map(|i| AT_ROOT[i]);
            let other = if grammar.any_output() { Act::Content } else { Act::None };
            (found.map_or(Place::Other, Prefix::place), found.and_then(|f| f.act(grammar)).unwrap_or(other))
        }
        (Place::Path(prefix), Some(i)) => {
            let found = prefix.next(b".", NAMES[i]);
            (found.place(), found.act(grammar).unwrap_or(Act::None))
        }
        (Place::Path(_), None) => (Place::Other, Act::None),
    }
}

/// What an element of an array is.
pub(super) fn element(parent: Place, grammar: Grammar) -> (Place, Act) {
    let Place::Path(prefix) = parent else { return (Place::Other, Act::None) };
    let found = prefix.next(b"", b"[]");
    (found.place(), found.act(grammar).unwrap_or(Act::None))
}

/// What a member of some object may be, by its name alone.
fn anywhere(name: &[u8], grammar: Grammar) -> (Place, Act) {
    let mut act = Act::None;
    let mut place = Place::Other;
    for rule in RULES.iter().filter(|rule| grammar.has(rule.set)) {
        let path = rule.path.as_bytes();
        let Some(end) = end_of(path, name) else { continue };
        if end == path.len() && act == Act::None && rule.act.is_telling() {
            act = rule.act;
        }
        if end < path.len() && place == Place::Other {
            let all = Prefix { low: 0, high: narrow(COUNT), at: 0 };
            place = all.next(b"", &path[..end]).place();
        }
    }
    (place, act)
}

/// Where a name ends in a path.
fn end_of(path: &[u8], name: &[u8]) -> Option<usize> {
    (0..path.len()).find_map(|at| {
        let begins = at == 0 || path[at - 1] == b'.';
        (begins && is_next(path, at, b"", name)).then_some(at + name.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_sorted_and_their_names_are_kept() {
        assert!(RULES.is_sorted_by_key(|rule| rule.path));
        for rule in RULES {
            for name in rule.path.split('.').map(|part| part.trim_end_matches("[]")).filter(|n| !n.is_empty())
            {
                assert!(Key::of(name.as_bytes()).is_some(), "{name} of {}", rule.path);
            }
            assert!(rule.set & (Q | A) != 0 && rule.set & !(Q | A) != 0, "{}", rule.path);
        }
    }

    #[test]
    fn no_two_rules_say_different_things() {
        for (i, a) in RULES.iter().enumerate() {
            for b in RULES[i + 1..].iter().filter(|b| b.path == a.path) {
                assert!(!Grammar(a.set).has(b.set), "{}", a.path);
            }
        }
    }

    #[test]
    fn every_path_is_found_step_by_step() {
        for rule in RULES {
            let grammar = Grammar(rule.set);
            let (mut place, mut act) = (ROOT, Act::None);
            for part in rule.path.split('.') {
                let name = part.trim_end_matches("[]");
                if !name.is_empty() {
                    (place, act) = member(place, Key::of(name.as_bytes()).unwrap(), grammar);
                }
                if part.ends_with("[]") {
                    (place, act) = element(place, grammar);
                }
            }
            assert_eq!(act, rule.act, "{}", rule.path);
        }
    }
}
