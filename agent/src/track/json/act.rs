//! What members of a body are good for.

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
    /// The text so far, or what is new of it: see [`super::growth`].
    Growth,
    /// Its tokens, a number each.
    Ids,
    /// An output of a model that names its outputs itself: text is content, and numbers are where there is no text.
    Tensor,
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
    /// A count that others add up to: it is kept, and not needed.
    Count,
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
            Self::Tensor => Self::Content,
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
                | Self::Count
        )
    }

    /// The string's value is kept, as far as it is not too long.
    pub(super) fn keeps_text(self) -> bool {
        matches!(self, Self::Model | Self::Version)
    }

    /// The string's value is one of a closed list of words, or masked.
    pub(super) fn is_word(self) -> bool {
        matches!(self, Self::Word | Self::Finish | Self::Reason)
    }

    /// May be found by its name alone, after a gap.
    pub(super) fn is_telling(self) -> bool {
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
