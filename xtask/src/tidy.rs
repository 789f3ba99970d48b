//! `cargo xtask tidy`: the rules of this source that neither compiler nor clippy knows.

mod layers;
mod manifest;
mod messages;
mod size;
mod source;
mod text;

use std::fmt;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::tidy::source::Rust;
use crate::{out, workspace};

/// Something that breaks a rule, or soon will.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Relative to the workspace.
    path: PathBuf,
    line: usize,
    level: Level,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Warning,
    Error,
}

impl Finding {
    fn error(path: impl Into<PathBuf>, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.into(), line, level: Level::Error, text: text.into() }
    }

    fn warning(path: impl Into<PathBuf>, line: usize, text: impl Into<String>) -> Self {
        Self { level: Level::Warning, ..Self::error(path, line, text) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = if self.level == Level::Error { "error" } else { "warning" };
        write!(f, "{}:{}: {level}: {}", self.path.display(), self.line, self.text)
    }
}

/// Checks everything and prints each finding; warnings do not fail it.
pub(crate) fn command() -> Result<()> {
    let root = workspace::root();
    let files = source::text_files(&root)?;
    let mut findings = text::check(&root, &files);
    findings.extend(manifest::check(&root, &files)?);
    let mut parsed = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        match Rust::parse(file) {
            Ok(rust) => parsed.push(rust),
            Err(error) => findings.push(Finding::error(&file.path, 1, format!("does not parse: {error}"))),
        }
    }
    source::mark_tests(&mut parsed);
    for rust in &parsed {
        findings.extend(size::check(rust));
        findings.extend(layers::check(rust));
        findings.extend(messages::check(rust));
    }
    report(&findings, parsed.len())
}

fn report(findings: &[Finding], parsed: usize) -> Result<()> {
    for finding in findings {
        out::line(finding);
    }
    let errors = findings.iter().filter(|finding| finding.level == Level::Error).count();
    out::progress(
        "tidy",
        format_args!("{parsed} Rust files, {errors} errors, {} warnings", findings.len() - errors),
    );
    if errors > 0 {
        bail!("tidy found {errors} errors");
    }
    Ok(())
}
