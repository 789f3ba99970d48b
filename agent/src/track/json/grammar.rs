//! Which of the rules hold for a body: those of its API and its side.

/// Which APIs a body may belong to, and which side it comes from: what can be read in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::track) struct Grammar(u16);

pub(super) const OPENAI: u16 = 1;
pub(super) const EMBED: u16 = 1 << 1;
pub(super) const RESPONSES: u16 = 1 << 2;
pub(super) const ANTHROPIC: u16 = 1 << 3;
pub(super) const OLLAMA: u16 = 1 << 4;
pub(super) const KSERVE: u16 = 1 << 5;
pub(super) const TGI: u16 = 1 << 6;
pub(super) const SGLANG: u16 = 1 << 7;
pub(super) const LLAMA: u16 = 1 << 8;
/// Requests.
pub(super) const Q: u16 = 1 << 14;
/// Answers.
pub(super) const A: u16 = 1 << 15;

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

    /// Requests of these APIs, and no others, name their model in the body.
    pub(in crate::track) fn has_model(self) -> bool {
        let all =
            [Self::OPENAI, Self::EMBED, Self::RESPONSES, Self::ANTHROPIC, Self::OLLAMA, Self::COMPLETIONS];
        all.contains(&self)
    }

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

    /// A rule with this set holds.
    pub(super) const fn has(self, set: u16) -> bool {
        self.0 & set & !(Q | A) != 0 && self.0 & set & (Q | A) != 0
    }

    /// Every member of the answer that is not named is an output of the model.
    pub(super) fn any_output(self) -> bool {
        self.0 == KSERVE | A
    }
}

impl Grammar {
    #[cfg(test)]
    pub(super) const fn of(set: u16) -> Self {
        Self(set)
    }
}
