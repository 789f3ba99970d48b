//! A committed recording with the truth beside it: the demo where nothing can be attached.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use system::accuracy::{self, Joined, Report};
use system::agent::{self, Record};
use system::rig::{self, Shape};
use system::truth;

/// Where the committed ones are, relative to the workspace.
pub(crate) const FOLDER: &str = "tests/recordings";

/// Replays the recording of `shape` in `folder` and compares it with its truth.
pub(crate) fn show(shape: Shape, folder: &Path) -> Result<(Joined, Report)> {
    let name = shape.name();
    let lines = agent::replay(&folder.join(format!("demo-{name}.slrec")))?;
    let records: Vec<Record> = lines.lines().map(Record::parse).collect::<Result<_>>()?;
    let truths = truth::read(&folder.join(format!("demo-{name}.truth.jsonl")))?;
    let clients = rig::clients(&folder.join(format!("demo-{name}.client.jsonl")))?;
    let truths = truth::with_arrivals(truths, &clients);
    let joined = accuracy::join(&truths, &records);
    let mut report = accuracy::compare(&joined);
    name.clone_into(&mut report.shape);
    Ok((joined, report))
}

/// Keeps a run's recording and truth.
pub(crate) fn save(run: &Path, folder: &Path, shape: Shape) -> Result<()> {
    fs::create_dir_all(folder)?;
    let name = shape.name();
    for (from, to) in [
        ("run.slrec", format!("demo-{name}.slrec")),
        ("truth.jsonl", format!("demo-{name}.truth.jsonl")),
        ("client.jsonl", format!("demo-{name}.client.jsonl")),
    ] {
        fs::copy(run.join(from), folder.join(&to)).with_context(|| format!("cannot keep {to}"))?;
    }
    Ok(())
}
