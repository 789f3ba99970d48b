//! History: every operation with its place on the time line, and every wait's end, to compare times with.
//!
//! Written only where `FAKECUDA_HISTORY` names a file, when the process exits: one JSON array a line,
//! `["op", device, engine, submitted, begin, end]` or `["wait", device, returned]`, times in `CLOCK_MONOTONIC` ns.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{LazyLock, Mutex};

use crate::handles::lock;
use crate::timeline::{CopyKind, Op};
use crate::{clock, context};

/// Most lines that are kept.
const MAX_LINES: usize = 4 << 20;

static FILE: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("FAKECUDA_HISTORY").ok());
static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

enum Line {
    Op { device: usize, engine: &'static str, times: [u64; 3] },
    Wait { device: usize, returned: u64 },
}

/// An operation was submitted and got its place.
pub(crate) fn placed(device: usize, op: Op, times: [u64; 3]) {
    if FILE.is_some() {
        let engine = match op {
            Op::Kernel { .. }
            | Op::Graph { .. }
            | Op::Memset { .. }
            | Op::Copy { kind: CopyKind::D2D, .. } => "compute",
            Op::Copy { kind, .. } => kind.name(),
        };
        push(Line::Op { device, engine, times });
    }
}

/// A wait in the current context is over.
pub(crate) fn waited() {
    if FILE.is_some()
        && let Ok(context) = context::current()
    {
        push(Line::Wait { device: context.totals.device, returned: clock::now() });
    }
}

fn push(line: Line) {
    let mut lines = lock(&LINES);
    if lines.len() < MAX_LINES {
        lines.push(line);
    }
}

/// Writes the file; `%p` in its name becomes the process id.
pub(crate) fn write_at_exit() {
    let Some(path) = &*FILE else { return };
    let mut text = String::new();
    for line in &*lock(&LINES) {
        let _ = match line {
            Line::Op { device, engine, times: [submitted, begin, end] } => {
                writeln!(text, "[\"op\",{device},\"{engine}\",{submitted},{begin},{end}]")
            }
            Line::Wait { device, returned } => writeln!(text, "[\"wait\",{device},{returned}]"),
        };
    }
    let path = path.replace("%p", &std::process::id().to_string());
    if let Err(e) = std::fs::write(Path::new(&path), text) {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "fakecuda: cannot write the history to {path}: {e}");
    }
}
