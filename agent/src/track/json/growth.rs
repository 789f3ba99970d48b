//! Answers whose events repeat the text so far, or bring only what is new: one engine does either, as it was started,
//! and does not say which.
//!
//! The text itself says nothing, since a masked one must tell the same: what tells are lengths and counts.

/// Choices that are followed.
const MAX_CHOICES: usize = 16;
/// No token has more bytes (the longest are blanks of an indentation).
const MAX_TOKEN: u64 = 256;
/// A text so far has at least a byte for so many of its tokens.
const TOKENS_OF_A_BYTE: u64 = 4;

/// What an event holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Unknown,
    /// Everything so far.
    SoFar,
    /// What is new.
    New,
}

/// What one event says of its choice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Length of its text, bytes.
    pub text: Option<u64>,
    /// Number of its tokens, where they are listed.
    pub ids: u64,
    /// Tokens of the choice up to now.
    pub tokens: Option<u64>,
}

impl Seen {
    /// What grows: the text, or the tokens of an answer that has none.
    fn amount(self) -> u64 {
        self.text.unwrap_or(self.ids)
    }
}

/// What is kept of a choice's last event; larger numbers than these have are as good as the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Before {
    amount: u32,
    tokens: Option<u32>,
}

impl Before {
    fn of(seen: Seen, before: Self) -> Self {
        let amount = if seen.amount() > 0 { small(seen.amount()) } else { before.amount };
        Self { amount, tokens: seen.tokens.map(small).or(before.tokens) }
    }

    fn amount(self) -> u64 {
        self.amount.into()
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The choices of one stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Growth {
    mode: Mode,
    before: [Before; MAX_CHOICES],
    /// An event may have brought something new that was not counted.
    pub doubts: bool,
    /// The last one did, or may have.
    pub ends_in_doubt: bool,
}

impl Default for Growth {
    fn default() -> Self {
        Self {
            mode: Mode::Unknown,
            before: [Before::default(); MAX_CHOICES],
            doubts: false,
            ends_in_doubt: false,
        }
    }
}

impl Growth {
    /// Takes the event of a choice, which is its last if it `ends`: whether it brought something new.
    pub(super) fn take(&mut self, choice: Option<u64>, seen: Seen, ends: bool) -> bool {
        let choice = usize::try_from(choice.unwrap_or(0)).unwrap_or(usize::MAX);
        let Some(slot) = self.before.get_mut(choice) else { return seen.amount() > 0 };
        let before = *slot;
        *slot = Before::of(seen, before);
        if seen.amount() == 0 {
            return false;
        }
        let by = seen.tokens.zip(before.tokens).map(|(now, before)| now.saturating_sub(before.into()));
        self.learn(before, seen, by);
        let grown = seen.amount() > before.amount();
        let is_new = grown || self.mode == Mode::New;
        let is_doubtful = !is_new && !ends && self.mode == Mode::Unknown && by.is_some_and(|by| by > 0);
        self.doubts |= is_doubtful;
        self.ends_in_doubt = is_doubtful || (self.ends_in_doubt && !is_new);
        is_new
    }

    /// The first choice's text, of so many bytes and going on, is longer than what was known of it.
    pub(super) fn outgrows(&self, len: u64) -> bool {
        len > 0 && (self.mode == Mode::New || len > self.before[0].amount())
    }

    /// `by`: how many tokens it has more than the event before.
    fn learn(&mut self, before: Before, seen: Seen, by: Option<u64>) {
        let tokens = seen.tokens.unwrap_or(0);
        let is_short = seen.text.is_some_and(|text| text.saturating_mul(TOKENS_OF_A_BYTE) < tokens);
        let lists_some = seen.ids > 0 && seen.ids < tokens;
        // What was written is never taken back.
        if seen.amount() < before.amount() {
            self.mode = Mode::New;
        }
        if self.mode != Mode::Unknown {
            return;
        }
        if is_short || lists_some {
            self.mode = Mode::New;
        } else if by.is_some_and(|by| {
            let lists_all = seen.ids > 0 && seen.ids == tokens && tokens > by;
            lists_all || seen.text.unwrap_or(0) > MAX_TOKEN.saturating_mul(by.max(1))
        }) {
            self.mode = Mode::SoFar;
            (self.doubts, self.ends_in_doubt) = (false, false);
        }
    }
}
