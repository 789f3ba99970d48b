//! Numbers against truth, and replay against live.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use system::agent::replay;
use system::rig::{Load, ServerOptions, Shape};
use system::run::{Finished, Stage};

const SECONDS: f64 = 4.0;
const LIMIT: Duration = Duration::from_mins(1);

pub(crate) fn single_1(dir: &Path) -> Result<()> {
    holds(Shape::Single, 1, dir)
}

pub(crate) fn single_8(dir: &Path) -> Result<()> {
    holds(Shape::Single, 8, dir)
}

pub(crate) fn split_1(dir: &Path) -> Result<()> {
    holds(Shape::Split, 1, dir)
}

pub(crate) fn split_8(dir: &Path) -> Result<()> {
    holds(Shape::Split, 8, dir)
}

pub(crate) fn replay_single(dir: &Path) -> Result<()> {
    replays(Shape::Single, dir)
}

pub(crate) fn replay_split(dir: &Path) -> Result<()> {
    replays(Shape::Split, dir)
}

fn play(shape: Shape, load: &Load, dir: &Path) -> Result<Finished> {
    Stage::set(&ServerOptions::new(shape), dir, &[])?.play(shape.name(), load, dir, LIMIT)
}

fn holds(shape: Shape, concurrency: u32, dir: &Path) -> Result<()> {
    let finished = play(shape, &Load::for_seconds(concurrency, SECONDS).varied(), dir)?;
    let violations = finished.report.violations();
    ensure!(violations.is_empty(), "{}\nin {:#?}", violations.join("; "), finished.report);
    Ok(())
}

/// Byte for byte, and in the same order.
fn replays(shape: Shape, dir: &Path) -> Result<()> {
    let finished = play(shape, &Load::for_seconds(4, 2.0).varied().with("abort-ratio", 0.2), dir)?;
    ensure!(!finished.records.is_empty(), "the run gave no record to compare");
    let replayed = replay(&dir.join("run.slrec"))?;
    let replayed: Vec<&str> = replayed.lines().collect();
    ensure!(replayed == finished.lines, "{}", difference(&finished.lines, &replayed));
    Ok(())
}

fn difference(live: &[String], replayed: &[&str]) -> String {
    let mut text = format!("{} records live, {} replayed", live.len(), replayed.len());
    let first = live.iter().zip(replayed).position(|(live, replayed)| live != replayed);
    if let Some(at) = first {
        // Writing to a string cannot fail.
        let _ = write!(text, "; the first difference is at {at}:\n{}\n{}", live[at], replayed[at]);
    }
    text
}
