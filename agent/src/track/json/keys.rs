//! Names of JSON members that mean something, or that are kept because they say nothing about anybody.

use super::{reasons::REASONS, rules};
use crate::track::mask::Narrow;

/// A kept member's name: its place in the list. Where it means something, a rule has it in its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u8);

/// Kept names, sorted. Beside those of the rules, the commonest structural ones.
pub(super) const NAMES: &[&[u8]] = &[
    b"arguments",
    b"audio",
    b"cache_creation_input_tokens",
    b"cache_n",
    b"cache_read_input_tokens",
    b"choices",
    b"code",
    b"completion_tokens",
    b"content",
    b"content_block",
    b"created",
    b"data",
    b"delta",
    b"details",
    b"done",
    b"done_reason",
    b"embedding",
    b"embeddings",
    b"error",
    b"eval_count",
    b"finish_reason",
    b"function",
    b"function_call",
    b"generated_text",
    b"generated_tokens",
    b"id",
    b"include_usage",
    b"incomplete_details",
    b"index",
    b"input",
    b"input_ids",
    b"input_length",
    b"input_tokens",
    b"inputs",
    b"logprobs",
    b"max_completion_tokens",
    b"max_new_tokens",
    b"max_output_tokens",
    b"max_tokens",
    b"message",
    b"messages",
    b"meta_info",
    b"model",
    b"model_name",
    b"model_version",
    b"n_predict",
    b"name",
    b"num_predict",
    b"object",
    b"options",
    b"output",
    b"output_ids",
    b"output_tokens",
    b"parameters",
    b"partial_json",
    b"predicted_n",
    b"prompt",
    b"prompt_eval_count",
    b"prompt_n",
    b"prompt_tokens",
    b"reason",
    b"reasoning",
    b"reasoning_content",
    b"refusal",
    b"response",
    b"role",
    b"sampling_params",
    b"seed",
    b"special",
    b"status",
    b"status_code",
    b"stop",
    b"stop_reason",
    b"stop_type",
    b"stream",
    b"stream_options",
    b"summary",
    b"temperature",
    b"text",
    b"thinking",
    b"timings",
    b"token",
    b"tokens_evaluated",
    b"tokens_predicted",
    b"tool_calls",
    b"tools",
    b"top_p",
    b"total_tokens",
    b"transcript",
    b"type",
    b"usage",
];

impl Key {
    /// Any name that is not kept.
    pub(super) const OTHER: Self = Self(u8::MAX);

    /// What a whole name means; `None` when it is not a kept one.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let mut slot = slot(name);
        loop {
            let index = SLOTS[slot];
            // An empty slot has the number of no name.
            if *NAMES.get(usize::from(index))? == name {
                return Some(Self(index));
            }
            slot = (slot + 1) % SLOTS.len();
        }
    }

    fn at(index: usize) -> Self {
        u8::try_from(index).map_or(Self::OTHER, Self)
    }

    /// Its place in [`NAMES`]; `None` for a name that is not kept.
    pub(super) fn index(self) -> Option<usize> {
        (self != Self::OTHER).then_some(usize::from(self.0))
    }
}

/// Places in [`NAMES`], each in its slot or in the next one that was free; more than half of them are empty.
static SLOTS: [u8; 256] = {
    assert!(NAMES.len() < 128);
    let mut slots = [u8::MAX; 256];
    let mut i = 0;
    while i < NAMES.len() {
        let mut at = slot(NAMES[i]);
        while slots[at] != u8::MAX {
            at = (at + 1) % slots.len();
        }
        slots[at] = narrow(i);
        i += 1;
    }
    slots
};

#[expect(clippy::cast_possible_truncation, reason = "the numbers of names, places and rules are small")]
pub(super) const fn narrow(n: usize) -> u8 {
    assert!(n < u8::MAX as usize);
    n as u8
}

/// Where a name is looked for first: by what tells names apart, for little.
const fn slot(name: &[u8]) -> usize {
    match name {
        [] => 0,
        [first, .., last] => {
            let middle = name[name.len() / 2];
            (name.len() * 5 + *first as usize * 9 + *last as usize * 7 + middle as usize * 13) % 256
        }
        [only] => *only as usize,
    }
}

/// Place in [`NAMES`] of the bytes from `begin` to `end`, for the compiler.
pub(super) const fn find(bytes: &[u8], begin: usize, end: usize) -> Option<usize> {
    let mut i = 0;
    while i < NAMES.len() {
        let mut at = 0;
        while at < NAMES[i].len() && begin + at < end && NAMES[i][at] == bytes[begin + at] {
            at += 1;
        }
        if at == NAMES[i].len() && begin + at == end {
            return Some(i);
        }
        i += 1;
    }
    None
}

/// Values of the APIs' `type`, `object` and `status` that mean something, sorted; any other value is masked.
const WORDS: &[(&[u8], Word)] = &[
    (b"cancelled", Word::Status("cancelled")),
    (b"chat.completion", Word::Kind),
    (b"chat.completion.chunk", Word::Kind),
    (b"completed", Word::Status("completed")),
    (b"error", Word::Error),
    (b"failed", Word::Status("failed")),
    (b"incomplete", Word::Status("incomplete")),
    (b"list", Word::Kind),
    (b"message_stop", Word::Ended),
    (b"response.completed", Word::Ended),
    (b"response.failed", Word::Ended),
    (b"response.incomplete", Word::Ended),
    (b"text_completion", Word::Kind),
];

const WORD_NAMES: [&[u8]; WORDS.len()] = {
    let mut names = [WORDS[0].0; WORDS.len()];
    let mut i = 0;
    while i < WORDS.len() {
        names[i] = WORDS[i].0;
        i += 1;
    }
    names
};

/// What a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The answer is an error.
    Error,
    /// What kind of document it is.
    Kind,
    /// The stream is over.
    Ended,
    /// How the answer ended.
    Status(&'static str),
}

impl Word {
    /// What the word at this place of the list says.
    pub(super) fn at(index: usize) -> Self {
        WORDS[index].1
    }
}

/// A word as it is read, of either list.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordMatch {
    narrow: Narrow,
    list: &'static [&'static [u8]],
}

impl WordMatch {
    /// `reason`: why an answer ended.
    pub(super) fn new(reason: bool) -> Self {
        let list = if reason { REASONS } else { &WORD_NAMES };
        Self { narrow: Narrow::new(list), list }
    }

    /// Adds a byte; false when no word goes on like that.
    pub(super) fn push(&mut self, b: u8) -> bool {
        self.narrow.push(self.list, b)
    }

    /// No byte was added yet.
    pub(super) fn is_new(self) -> bool {
        self.narrow.is_new()
    }

    /// Place of the word that consists of exactly the bytes so far.
    pub(super) fn index(self) -> Option<usize> {
        self.narrow.exact(self.list)
    }

    /// Place of a whole word.
    pub(super) fn find(self, word: &[u8]) -> Option<usize> {
        self.list.iter().position(|listed| *listed == word)
    }
}

/// A name as it is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyMatch {
    narrow: Narrow,
    known: bool,
}

impl KeyMatch {
    pub(super) fn new() -> Self {
        Self { narrow: Narrow::new(NAMES), known: true }
    }

    /// Adds a byte; false as soon as it is none of the kept names.
    pub(super) fn push(&mut self, b: u8) -> bool {
        self.known = self.known && self.narrow.push(NAMES, b);
        self.known
    }

    /// No byte was added yet.
    pub(super) fn is_new(self) -> bool {
        self.known && self.narrow.is_new()
    }

    /// It is none of the kept names.
    pub(super) fn fail(&mut self) {
        self.known = false;
    }

    pub(super) fn known(self) -> bool {
        self.known
    }

    /// What the whole name means; `None` when it is not a kept one.
    pub(super) fn key(self) -> Option<Key> {
        if !self.known {
            return None;
        }
        self.narrow.exact(NAMES).map(Key::at)
    }
}

const _: () = assert!(NAMES.len() < u8::MAX as usize && rules::COUNT < u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found() {
        assert!(NAMES.is_sorted() && WORD_NAMES.is_sorted());
        for (at, name) in NAMES.iter().enumerate() {
            let mut found = KeyMatch::new();
            assert!(name.iter().all(|b| found.push(*b)));
            assert_eq!((found.key(), Key::of(name)), (Some(Key::at(at)), Some(Key::at(at))));
        }
        for (reason, list) in [(false, &WORD_NAMES[..]), (true, REASONS)] {
            for (at, name) in list.iter().enumerate() {
                let mut found = WordMatch::new(reason);
                assert_eq!(found.find(name), Some(at));
                assert!(name.iter().all(|b| found.push(*b)));
                assert_eq!(found.index(), Some(at));
            }
        }
    }

    #[test]
    fn prefixes_and_extensions_are_not_found() {
        for name in ["mode", "models", "", "xx", "stream_"] {
            let mut found = KeyMatch::new();
            name.bytes().for_each(|b| {
                found.push(b);
            });
            assert_eq!((found.key(), Key::of(name.as_bytes())), (None, None), "{name}");
        }
    }

    #[test]
    fn a_masked_name_or_word_is_none() {
        let has_mask = |names: &[&[u8]]| names.iter().any(|name| name.starts_with(b"x"));
        assert!(!has_mask(NAMES) && !has_mask(&WORD_NAMES));
    }
}
