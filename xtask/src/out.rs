//! What the tasks print: progress on stderr, results on stdout.

use std::fmt::Display;
use std::io::{self, Write};

/// One line of progress, written at once so that a log shows where a long run stands.
pub(crate) fn progress(task: &str, text: impl Display) {
    // A closed stderr must not end the work.
    let _ = writeln!(io::stderr().lock(), "{task}: {text}");
}

/// One line of the result.
pub(crate) fn line(text: impl Display) {
    // A reader that left (`| head`) is not an error of ours.
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// The error that ends the run, its causes below it.
pub(crate) fn error(error: &anyhow::Error) {
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "error: {error}");
    for cause in error.chain().skip(1) {
        let _ = writeln!(stderr, "  because: {cause}");
    }
}
