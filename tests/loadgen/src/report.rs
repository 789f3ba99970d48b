//! Where lines go, and the summary.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context as _, Result};

use crate::clock;
use crate::record::{Outcome, Record};

/// Shared by all clients.
pub(crate) struct Report {
    /// Makes the ids of this run differ from those of any other.
    run: String,
    start: u64,
    inner: Mutex<Inner>,
}

struct Inner {
    out: Box<dyn Write + Send>,
    outcomes: BTreeMap<Outcome, u64>,
    e2e_ns: Vec<u64>,
    ttft_ns: Vec<u64>,
}

impl Report {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let out: Box<dyn Write + Send> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            Box::new(File::create(path).with_context(|| format!("cannot write to {}", path.display()))?)
        };
        let start = clock::now();
        let run = format!("lg-{:x}-{start:x}", std::process::id());
        let inner = Inner { out, outcomes: BTreeMap::new(), e2e_ns: Vec::new(), ttft_ns: Vec::new() };
        Ok(Self { run, start, inner: Mutex::new(inner) })
    }

    pub(crate) fn request_id(&self, number: u64) -> String {
        format!("{}-{number}", self.run)
    }

    /// Writes the line at once: a reader may follow the file, and a killed run keeps what it saw.
    pub(crate) fn write(&self, record: &Record) -> Result<()> {
        let mut line = serde_json::to_vec(record).context("cannot write a record as JSON")?;
        line.push(b'\n');
        let mut inner = self.inner.lock().expect("nothing here panics");
        inner.count(record);
        inner.out.write_all(&line).context("cannot write a line to --out")
    }

    /// One line on stderr.
    pub(crate) fn summary(&self, late: Option<u64>) -> Result<()> {
        let seconds = (clock::now() - self.start) as f64 / 1e9;
        let mut inner = self.inner.lock().expect("nothing here panics");
        inner.out.flush().context("cannot write to --out")?;
        let mut text = inner.text(seconds)?;
        if let Some(late) = late {
            write!(text, " | {late} started late: no client was free")?;
        }
        writeln!(io::stderr().lock(), "{text}").context("cannot write the summary")
    }
}

impl Inner {
    fn count(&mut self, record: &Record) {
        *self.outcomes.entry(record.outcome).or_insert(0) += 1;
        // Aborted and broken answers have no latency to speak of.
        if record.outcome == Outcome::Ok {
            self.e2e_ns.extend(record.e2e_ns());
            self.ttft_ns.extend(record.ttft_ns());
        }
    }

    fn text(&mut self, seconds: f64) -> Result<String> {
        let total: u64 = self.outcomes.values().sum();
        let mut text = format!("{total} requests in {seconds:.2} s, {:.1}/s |", total as f64 / seconds);
        for (outcome, n) in &self.outcomes {
            write!(text, " {} {n}", serde_json::to_value(outcome)?.as_str().unwrap_or_default())?;
        }
        for (name, values) in [("ttft", &mut self.ttft_ns), ("e2e", &mut self.e2e_ns)] {
            values.sort_unstable();
            let ms = |percent: usize| percentile(values, percent) as f64 / 1e6;
            if !values.is_empty() {
                write!(text, " | {name} p50 {:.2} p90 {:.2} p99 {:.2} ms", ms(50), ms(90), ms(99))?;
            }
        }
        Ok(text)
    }
}

/// Nearest rank; 0 when there is nothing.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_nearest_rank() {
        let values: Vec<u64> = (1..=200).collect();
        for (values, percent, want) in
            [(&values[..], 50, 100), (&values, 99, 198), (&values, 100, 200), (&[7][..], 50, 7), (&[], 50, 0)]
        {
            assert_eq!(percentile(values, percent), want);
        }
    }

    #[test]
    fn ids_do_not_repeat() {
        let report = Report::open(Path::new("-")).unwrap();
        assert_ne!(report.request_id(1), report.request_id(2));
        let other = Report::open(Path::new("-")).unwrap();
        assert_ne!(report.request_id(1), other.request_id(1));
    }
}
