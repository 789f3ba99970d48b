//! Newline-separated JSON: a document a line, each an event.
//!
//! An event is over with its document, which may be one write before the end of its line. The end of a line is the
//! end of its document even if that is broken, since no string has a line end in it.

use super::json::{Facts, Grammar, Lexer};

/// The state of one stream of lines.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    lexer: Lexer,
}

impl Lines {
    /// At the beginning of a body.
    pub(super) fn new(grammar: Grammar) -> Self {
        Self { lexer: Lexer::new(grammar) }
    }

    /// What the events told so far.
    pub(super) fn facts(&self) -> &Facts {
        self.lexer.facts()
    }

    /// An unknown number of lines is missing here.
    pub(super) fn gap(&mut self) {
        self.lexer.gap();
    }

    /// Reads and masks the next bytes; the number of content-bearing events that ended in them.
    pub(super) fn feed(&mut self, bytes: &mut [u8]) -> u64 {
        let mut events = 0;
        for line in bytes.split_inclusive_mut(|b| *b == b'\n') {
            let ends = line.ends_with(b"\n");
            let len = line.len() - usize::from(ends);
            self.lexer.feed(&mut line[..len], ends);
            if ends || self.lexer.complete() {
                events += u64::from(self.lexer.facts_mut().end_event());
            }
            if ends {
                self.lexer.restart();
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = r#"{"model":"m","message":{"role":"assistant","content":"hi"},"done":false}"#;
    const DONE: &str = r#"{"message":{"content":""},"done":true,"done_reason":"stop","eval_count":2}"#;

    fn feed(pieces: &[&[u8]]) -> (Vec<u64>, Facts, Vec<u8>) {
        let mut lines = Lines::new(Grammar::OLLAMA.answer());
        let (mut events, mut masked) = (Vec::new(), Vec::new());
        for piece in pieces {
            let mut bytes = piece.to_vec();
            events.push(lines.feed(&mut bytes));
            masked.extend_from_slice(&bytes);
        }
        (events, lines.facts().clone(), masked)
    }

    #[test]
    fn an_event_is_over_with_its_document() {
        assert_eq!(feed(&[TOKEN.as_bytes(), b"\n", TOKEN.as_bytes()]).0, [1, 0, 1]);
        assert_eq!(feed(&[format!("{TOKEN}\n{TOKEN}\r\n\n{DONE}\n").as_bytes()]).0, [2]);
        // A broken one spoils nothing behind its line.
        assert_eq!(
            feed(&[format!("{{\"message\":{{\"content\":\n{TOKEN}\nno JSON\n{TOKEN}\n").as_bytes()]).0,
            [2]
        );
    }

    #[test]
    fn splits_do_not_matter() {
        let text = format!("{TOKEN}\n{TOKEN}\n{DONE}\n");
        let (_, facts, masked) = feed(&[text.as_bytes()]);
        assert!(facts.ended && !String::from_utf8_lossy(&masked).contains("hi"));
        for at in 0..text.len() {
            let (a, b) = text.as_bytes().split_at(at);
            let (events, split, split_masked) = feed(&[a, b]);
            assert_eq!((events.iter().sum::<u64>(), &split), (2, &facts), "split at {at}");
            let (a, b) = split_masked.split_at(at);
            assert_eq!(feed(&[a, b]), (events, split, split_masked.clone()), "split at {at}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(feed(&bytes).0.iter().sum::<u64>(), 2);
    }

    #[test]
    fn after_a_gap_the_next_line_counts_again() {
        let mut lines = Lines::new(Grammar::OLLAMA.answer());
        lines.feed(&mut TOKEN.as_bytes()[..20].to_vec());
        lines.gap();
        let rest = format!("lost\"}},\"prompt_eval_count\":7}}\n{TOKEN}\n");
        assert_eq!(lines.feed(&mut rest.into_bytes()), 1);
        assert_eq!(lines.facts().input_tokens(), Some(7));
    }
}
