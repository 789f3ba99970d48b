//! Names of JSON members that mean something, or that are kept because they say nothing about anybody.

use crate::track::mask::Narrow;

/// A member's name, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::track) enum Key {
    /// Any other.
    Other,
    Choices,
    CompletionTokens,
    Content,
    Delta,
    Error,
    FinishReason,
    FunctionCall,
    IncludeUsage,
    Index,
    MaxCompletionTokens,
    MaxTokens,
    Message,
    Model,
    Object,
    PromptTokens,
    Reasoning,
    ReasoningContent,
    Refusal,
    Stream,
    StreamOptions,
    Text,
    ToolCalls,
    TotalTokens,
    Usage,
}

/// Kept names, sorted, and what they mean. Beside those that are read, the commonest structural ones.
const KEYS: &[(&[u8], Key)] = &[
    (b"choices", Key::Choices),
    (b"code", Key::Other),
    (b"completion_tokens", Key::CompletionTokens),
    (b"content", Key::Content),
    (b"created", Key::Other),
    (b"delta", Key::Delta),
    (b"error", Key::Error),
    (b"finish_reason", Key::FinishReason),
    (b"function", Key::Other),
    (b"function_call", Key::FunctionCall),
    (b"id", Key::Other),
    (b"include_usage", Key::IncludeUsage),
    (b"index", Key::Index),
    (b"input", Key::Other),
    (b"logprobs", Key::Other),
    (b"max_completion_tokens", Key::MaxCompletionTokens),
    (b"max_tokens", Key::MaxTokens),
    (b"message", Key::Message),
    (b"messages", Key::Other),
    (b"model", Key::Model),
    (b"object", Key::Object),
    (b"prompt", Key::Other),
    (b"prompt_tokens", Key::PromptTokens),
    (b"reasoning", Key::Reasoning),
    (b"reasoning_content", Key::ReasoningContent),
    (b"refusal", Key::Refusal),
    (b"role", Key::Other),
    (b"seed", Key::Other),
    (b"stop", Key::Other),
    (b"stream", Key::Stream),
    (b"stream_options", Key::StreamOptions),
    (b"temperature", Key::Other),
    (b"text", Key::Text),
    (b"tool_calls", Key::ToolCalls),
    (b"tools", Key::Other),
    (b"top_p", Key::Other),
    (b"total_tokens", Key::TotalTokens),
    (b"type", Key::Other),
    (b"usage", Key::Usage),
];

const NAMES: [&[u8]; KEYS.len()] = {
    let mut names = [KEYS[0].0; KEYS.len()];
    let mut i = 0;
    while i < KEYS.len() {
        names[i] = KEYS[i].0;
        i += 1;
    }
    names
};

impl Key {
    /// What a whole name means; `None` when it is not a kept one.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        NAMES.binary_search(&name).ok().map(|i| KEYS[i].1)
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
        Self { narrow: Narrow::new(&NAMES), known: true }
    }

    /// Adds a byte; false as soon as it is none of the kept names.
    pub(super) fn push(&mut self, b: u8) -> bool {
        self.known = self.known && self.narrow.push(&NAMES, b);
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
        self.narrow.exact(&NAMES).map(|i| KEYS[i].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found() {
        assert!(NAMES.is_sorted());
        for (name, key) in KEYS {
            let mut found = KeyMatch::new();
            assert!(name.iter().all(|b| found.push(*b)));
            assert_eq!((found.key(), Key::of(name)), (Some(*key), Some(*key)));
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
}
