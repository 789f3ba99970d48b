//! Standard output: locked once, buffered, and quiet when its reader has gone.

use std::{
    fmt,
    io::{BufWriter, IsTerminal as _, StdoutLock, Write as _},
};

use super::failure::Failure;

/// Standard output of a command.
#[derive(Debug)]
pub(super) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    terminal: bool,
}

impl Output {
    pub(super) fn new() -> Self {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        Self { out: BufWriter::with_capacity(64 * 1024, stdout.lock()), terminal }
    }

    /// Whether a person looks at it.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes text as it is.
    pub(super) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes()).map_err(Failure::stdout)
    }

    /// Writes one line. Paths and names in it come from processes that anybody may have started: their control
    /// characters must not reach a terminal.
    pub(super) fn line(&mut self, line: impl fmt::Display) -> Result<(), Failure> {
        writeln!(self.out, "{}", printable(&line.to_string())).map_err(Failure::stdout)
    }

    /// Hands over what is buffered. Every command ends with it: a drop would swallow the error.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::stdout)
    }
}

fn printable(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_without_control_characters() {
        assert_eq!(printable("/a\nb/\x1b[2Jé\u{9b}"), "/a?b/?[2Jé?");
    }
}
