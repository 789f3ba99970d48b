//! A committed recording with the truth beside it: the demo where nothing can be attached.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
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
    let facts = folder.join(format!("demo-{name}.json"));
    let facts = fs::read_to_string(&facts).with_context(|| format!("cannot read {}", facts.display()))?;
    let facts: Facts =
        serde_json::from_str(&facts).context("the facts of the recorded run have an unexpected form")?;
    name.clone_into(&mut report.shape);
    report.concurrency = facts.concurrency;
    report.events_seen = facts.events_seen;
    report.events_dropped = facts.events_dropped;
    report.agent_cpu_s = facts.agent_cpu_s;
    Ok((joined, report))
}

/// What of a run neither its recording nor its truth tells.
#[derive(Debug, Serialize, Deserialize)]
struct Facts {
    concurrency: u32,
    events_seen: u64,
    events_dropped: u64,
    agent_cpu_s: f64,
}

impl Facts {
    fn of(report: &Report) -> Self {
        Self {
            concurrency: report.concurrency,
            events_seen: report.events_seen,
            events_dropped: report.events_dropped,
            agent_cpu_s: report.agent_cpu_s,
        }
    }
}

/// Keeps a run's recording, its truth and its facts.
pub(crate) fn save(run: &Path, folder: &Path, shape: Shape, report: &Report) -> Result<()> {
    fs::create_dir_all(folder)?;
    let name = shape.name();
    let files = [("run.slrec", "slrec"), ("truth.jsonl", "truth.jsonl"), ("client.jsonl", "client.jsonl")];
    for (from, to) in files {
        let to = folder.join(format!("demo-{name}.{to}"));
        // Read and written, not copied: the agent's recordings are its owner's only, a committed one is everybody's.
        let bytes = fs::read(run.join(from)).with_context(|| format!("the run left no {from}"))?;
        fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    let facts = serde_json::to_string(&Facts::of(report))? + "\n";
    fs::write(folder.join(format!("demo-{name}.json")), facts).context("cannot write the facts of the run")
}
