//! One cell: run live or read again, and shown.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use system::accuracy;
use system::agent::{self, Record};
use system::cell::{self, Cell, StageErrors};
use system::rig::{self, ServerOptions, Shape};
use system::run::Stage;
use system::truth;

/// What a cell is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) shape: Shape,
    pub(super) concurrency: u32,
    pub(super) streaming: bool,
    pub(super) seconds: f64,
}

/// Longer than any answer takes, so that a stuck run ends.
const SLACK: Duration = Duration::from_mins(1);

impl Load {
    /// Its folder, and its name in messages.
    pub(super) fn name(self) -> String {
        let kind = if self.streaming { "stream" } else { "whole" };
        format!("{}-{}-{kind}", self.shape.name(), self.concurrency)
    }

    fn of(self, cell: Cell) -> Cell {
        let (shape, concurrency) = (self.shape.name().to_owned(), self.concurrency);
        Cell { shape, concurrency, streaming: self.streaming, ..cell }
    }
}

/// Runs it with its files in `dir`.
pub(super) fn live(load: Load, dir: &Path) -> Result<Cell> {
    let stage = Stage::set(&ServerOptions::new(load.shape), dir, &[])?;
    let made = rig::Load::for_seconds(load.concurrency, load.seconds).varied();
    let made = made.with("stream-ratio", u8::from(load.streaming));
    let limit = SLACK + Duration::try_from_secs_f64(load.seconds).context("--seconds is not a duration")?;
    let finished = stage.play(load.shape.name(), &made, dir, limit)?;
    Ok(load.of(cell::compare(&finished.joined, &agent::steps(&dir.join("run.slrec"))?)))
}

/// Compares what is kept in `dir`, replayed.
pub(super) fn again(load: Load, dir: &Path) -> Result<Cell> {
    let recording = dir.join("run.slrec");
    let lines = agent::replay(&recording)?;
    let records: Vec<Record> = lines.lines().map(Record::parse).collect::<Result<_>>()?;
    let truths = truth::read(&dir.join("truth.jsonl"))?;
    let truths = truth::with_arrivals(truths, &rig::clients(&dir.join("client.jsonl"))?);
    Ok(load.of(cell::compare(&accuracy::join(&truths, &records), &agent::steps(&recording)?)))
}

/// The cell as lines.
pub(super) fn render(cell: &Cell) -> String {
    let mut text = String::new();
    let kind = if cell.streaming { "streams" } else { "whole answers" };
    let confidence: Vec<String> = cell.confidence.iter().map(|(name, n)| format!("{n} {name}")).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} x {}, {kind}: {} requests, {} missed, {} twice; {}; {} exact and wrong",
        cell.shape,
        cell.concurrency,
        cell.requests_true,
        cell.missed,
        cell.duplicated,
        confidence.join(", "),
        cell.exact_wrong
    );
    let _ = writeln!(
        text,
        "  p99 of errors, ms: TTFT {}, e2e {}, TBT {} (noise {}, {}, {}); batch within 1 in {} % of {} steps",
        number(cell.ttft_err_ms_p99),
        number(cell.e2e_err_ms_p99),
        number(cell.tbt_err_ms_p99),
        number(cell.noise_ms_p99[0]),
        number(cell.noise_ms_p99[1]),
        number(cell.noise_ms_p99[2]),
        percent(cell.batch_within_1),
        cell.steps_true
    );
    for (name, errors) in &cell.stages {
        stage(&mut text, name, errors);
    }
    let _ = writeln!(
        text,
        "  bounds of {}: hold for {} %, median width {} ms, over forward and a step {} ms",
        cell.bounds,
        percent(cell.bounds_cover),
        number(cell.bounds_width_ms_p50),
        number(cell.bounds_over_ms_p50)
    );
    for violation in cell.violations() {
        let _ = writeln!(text, "  ! {violation}");
    }
    text.truncate(text.trim_end().len());
    text
}

fn stage(text: &mut String, name: &str, errors: &StageErrors) {
    let _ = writeln!(
        text,
        "  {name:<11} off by {:>8} ms, {:>6} % p50; {:>8} ms, {:>6} % p95; distribution {:>5} {:>5} {:>5} %; noise {} ms; absent {}",
        number(errors.abs_ms_p50),
        percent(errors.rel_p50),
        number(errors.abs_ms_p95),
        percent(errors.rel_p95),
        percent(errors.dist_rel_p50),
        percent(errors.dist_rel_p95),
        percent(errors.dist_rel_p99),
        number(errors.noise_ms_p95),
        errors.absent
    );
}

/// What is not known is not zero.
fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.3}"))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.1}", share * 100.0))
}
