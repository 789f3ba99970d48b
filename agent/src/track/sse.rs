//! Server-sent events: a line machine over the bytes of a body. `data:` lines go straight into the JSON lexer.
//!
//! An event is over when its line is: that is the moment its token leaves the server. (A document spread over
//! several `data:` lines is over with the last of them.) Comments, other fields and `[DONE]` are no events.

use memchr::memchr2;

use super::{
    json::{Facts, Grammar, Lexer},
    mask::{Narrow, mask_text},
};

/// Names of fields that stay; what follows the second is masked. Sorted.
const FIELDS: &[&[u8]] = &[b"data:", b"event:"];
const DATA: usize = 0;
const DONE: &[u8] = b"[DONE]";
/// Behind a line: its end and an empty line, with which its event is over.
const EVENT_ENDS: [&[u8]; 3] = [b"\n\n", b"\r\n\r\n", b"\r\r"];

#[derive(Clone, Copy, Debug)]
enum Line {
    /// In the name of a field.
    Field(Narrow),
    /// Behind it: blanks before the document.
    Blank,
    /// At this byte of `[DONE]`.
    Done(u8),
    /// In the document.
    Data,
    /// In a line that carries nothing.
    Other,
    /// Somewhere in some line, after a gap.
    Lost,
}

impl Line {
    fn begin() -> Self {
        Self::Field(Narrow::new(FIELDS))
    }
}

/// The state of one stream of events.
#[derive(Clone, Debug)]
pub(super) struct Sse {
    line: Line,
    /// The last byte was a CR: a LF is part of the same line end.
    cr: bool,
    /// A document has begun that its line did not complete.
    open: bool,
    done: bool,
    lexer: Lexer,
}

impl Sse {
    /// At the beginning of a body.
    pub(super) fn new(grammar: Grammar) -> Self {
        Self { line: Line::begin(), cr: false, open: false, done: false, lexer: Lexer::new(grammar) }
    }

    /// The bytes begin with a line of such a stream.
    pub(super) fn begins(bytes: &[u8]) -> bool {
        FIELDS.iter().any(|name| bytes.starts_with(name))
    }

    /// The end marker was seen.
    pub(super) fn done(&self) -> bool {
        self.done || self.facts().ended
    }

    /// What the events told so far.
    pub(super) fn facts(&self) -> &Facts {
        self.lexer.facts()
    }

    /// An unknown number of lines is missing here.
    pub(super) fn gap(&mut self) {
        self.line = Line::Lost;
        self.cr = false;
        self.open = true;
        self.lexer.gap();
    }

    /// After a gap: a line begins here. What the line before it had counts with the next line end.
    pub(super) fn resume(&mut self) {
        if matches!(self.line, Line::Lost) {
            self.line = Line::begin();
            self.open = false;
            self.lexer.restart();
        }
    }

    /// Reads and masks the next bytes; the number of content-bearing events that ended in them.
    pub(super) fn feed(&mut self, mut bytes: &mut [u8]) -> u64 {
        let mut events = 0;
        while let Some(first) = bytes.first() {
            let end = *first == b'\n' || *first == b'\r';
            if end {
                events += u64::from(self.line_end(*first));
                bytes = &mut bytes[1..];
                continue;
            }
            self.cr = false;
            let len = memchr2(b'\n', b'\r', bytes).unwrap_or(bytes.len());
            let (line, rest) = bytes.split_at_mut(len);
            let last = EVENT_ENDS.iter().any(|end| rest.starts_with(end));
            self.in_line(line, last);
            bytes = rest;
        }
        events
    }

    /// Bytes of one line; `last` when they are the last of their event.
    fn in_line(&mut self, line: &mut [u8], last: bool) {
        let mut at = 0;
        while at < line.len() && !matches!(self.line, Line::Data | Line::Lost | Line::Other) {
            self.line = self.prefix(line, &mut at);
        }
        let rest = &mut line[at..];
        match self.line {
            Line::Data | Line::Lost => self.lexer.feed(rest, last),
            Line::Other => mask_text(rest),
            Line::Field(_) | Line::Blank | Line::Done(_) => {}
        }
    }

    /// One byte before the document.
    fn prefix(&mut self, line: &mut [u8], at: &mut usize) -> Line {
        let b = line[*at];
        match self.line {
            Line::Field(mut name) => {
                if !name.push(FIELDS, b) {
                    return Line::Other;
                }
                *at += 1;
                match name.exact(FIELDS) {
                    None => Line::Field(name),
                    Some(DATA) => Line::Blank,
                    Some(_) => Line::Other,
                }
            }
            Line::Blank if b == b' ' => {
                *at += 1;
                Line::Blank
            }
            Line::Blank if b == b'[' && !self.open => {
                *at += 1;
                Line::Done(1)
            }
            Line::Blank => Line::Data,
            Line::Done(n) if DONE.get(usize::from(n)) == Some(&b) => {
                *at += 1;
                Line::Done(n + 1)
            }
            Line::Done(n) if usize::from(n) == DONE.len() && matches!(b, b' ' | b'\t') => {
                *at += 1;
                Line::Done(n)
            }
            // It was the beginning of an array instead.
            Line::Done(1) => {
                self.lexer.feed(&mut [b'['], false);
                Line::Data
            }
            Line::Done(_) => {
                self.lexer.give_up();
                Line::Data
            }
            other => other,
        }
    }

    /// True when a content-bearing event ends here.
    fn line_end(&mut self, b: u8) -> bool {
        if b == b'\n' && std::mem::take(&mut self.cr) {
            return false;
        }
        self.cr = b == b'\r';
        let line = std::mem::replace(&mut self.line, Line::begin());
        match line {
            Line::Field(name) if name.is_new() => self.event_end(),
            Line::Lost => self.event_end(),
            Line::Data if self.lexer.complete() => self.event_end(),
            Line::Data => {
                self.open = true;
                false
            }
            Line::Done(n) if usize::from(n) == DONE.len() => {
                self.done = true;
                false
            }
            Line::Field(_) | Line::Blank | Line::Done(_) | Line::Other => false,
        }
    }

    fn event_end(&mut self) -> bool {
        self.open = false;
        let content = self.lexer.facts_mut().end_event();
        self.lexer.restart();
        content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&str]) -> (u64, String, bool) {
        let mut sse = Sse::new(Grammar::OPENAI.answer());
        let (mut events, mut masked) = (0, String::new());
        for piece in pieces {
            let mut bytes = piece.as_bytes().to_vec();
            events += sse.feed(&mut bytes);
            masked.push_str(&String::from_utf8(bytes).unwrap());
        }
        (events, masked, sse.done())
    }

    const TOKEN: &str = r#"data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}"#;
    const MASKED: &str = r#"data: {"choices":[{"index":0,"delta":{"content":"xx"}}]}"#;

    #[test]
    fn what_counts_as_an_event() {
        let role = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
        let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
        let reasoning = r#"data:{"choices":[{"delta":{"content":null,"reasoning_content":"so"}}]}"#;
        let tool = r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#;
        let no_tool = r#"data: {"choices":[{"delta":{"tool_calls":[]}}]}"#;
        let text = r#"data: {"choices":[{"text":"a"}]}"#;
        for (lines, expected) in [
            (TOKEN, 1),
            (role, 0),
            (usage, 0),
            (reasoning, 1),
            (tool, 1),
            (no_tool, 0),
            (text, 1),
            (": keep-alive", 0),
            ("event: message", 0),
            ("data", 0),
            ("data: [1,2]", 0),
            ("data: plain text", 0),
        ] {
            assert_eq!(events(&[lines, "\n\n"]).0, expected, "{lines}");
            assert_eq!(events(&[lines, "\r\n\r\n"]).0, expected, "{lines}");
        }
    }

    #[test]
    fn an_event_ends_with_its_line_whatever_the_pieces() {
        let stream = format!("{TOKEN}\n\n: c\n{TOKEN}\r\n\r\n{TOKEN}\n\ndata: [DONE]\n\n");
        let masked = format!("{MASKED}\n\n: x\n{MASKED}\r\n\r\n{MASKED}\n\ndata: [DONE]\n\n");
        assert_eq!(events(&[&stream]), (3, masked.clone(), true));
        for at in 0..stream.len() {
            let (a, b) = stream.split_at(at);
            assert_eq!(events(&[a, b]), (3, masked.clone(), true), "split at {at}");
        }
        let bytes: Vec<String> = stream.chars().map(String::from).collect();
        let pieces: Vec<&str> = bytes.iter().map(String::as_str).collect();
        assert_eq!(events(&pieces), (3, masked, true));
        assert_eq!(events(&[TOKEN]).0, 0);
    }

    #[test]
    fn blanks_around_the_end_marker_change_nothing() {
        for marker in ["data: [DONE] ", "data:  [DONE]\t ", "data:[DONE]"] {
            for end in ["\n\n", "\r\n\r\n"] {
                let (events, masked, done) = events(&[TOKEN, "\n\n", marker, end]);
                assert_eq!((events, done), (1, true), "{marker:?}");
                assert!(masked.ends_with(&format!("{marker}{end}")), "{masked:?}");
            }
        }
        for other in ["data: [DONE] x", "data: [DONE]]", "data: [DO NE]"] {
            assert!(!events(&[other, "\n\n"]).2, "{other}");
        }
    }

    #[test]
    fn a_document_may_span_data_lines() {
        let stream = "data: {\"choices\":\ndata: [{\"text\":\"a\"}]}\n\n";
        assert_eq!(events(&[stream]).0, 1);
        // A broken one ends with its event and does not spoil the next.
        assert_eq!(events(&["data: {\"choices\":\n\n", TOKEN, "\n\n"]).0, 1);
    }

    #[test]
    fn after_a_gap_the_next_line_counts_again() {
        let mut sse = Sse::new(Grammar::OPENAI.answer());
        assert_eq!(sse.feed(&mut TOKEN.as_bytes()[..20].to_vec()), 0);
        sse.gap();
        let rest = format!("lost text\"}},\"finish_reason\":\"length\"}}]}}\n\n{TOKEN}\n\ndata: [DONE]\n");
        assert_eq!(sse.feed(&mut rest.into_bytes()), 1);
        assert_eq!(sse.facts().finish_reason(), Some("length"));
        assert!(sse.done());
    }

    /// Of an event whose beginning is missing, it is not known what else comes before its empty line.
    #[test]
    fn a_model_behind_a_gap_stays_only_in_an_event_that_is_seen_to_end() {
        let inside = r#"lost"}],"metadata":{"model":"s3cret"}"#;
        for (pieces, model) in [
            (&[inside, "}\n\n"][..], None),
            (&[inside, "\n", "data: }\n\n"], None),
            (&[r#"lost"}],"model":"s3cret"}"#, "\n\n"], None),
            (&["lost\"}],\"model\":\"m\"}\n\n"], Some("m")),
            (&["lost\"}],\"model\":\"m\"}\r\n\r\n"], Some("m")),
        ] {
            let mut sse = Sse::new(Grammar::OPENAI.answer());
            sse.gap();
            let mut masked = String::new();
            for piece in pieces {
                let mut bytes = piece.as_bytes().to_vec();
                sse.feed(&mut bytes);
                masked += std::str::from_utf8(&bytes).unwrap();
            }
            assert_eq!(sse.facts().model.as_deref(), model, "{pieces:?}");
            assert!(!masked.contains("s3cret"), "{masked}");
        }
    }
}
