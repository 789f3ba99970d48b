//! `cargo xtask demo`: the agent beside model servers that know the truth.
//!
//! What is shown of the agent is what it prints itself (`stagelens requests --follow --json`); the servers' truth is
//! joined here, by request id, and never reaches the agent.

mod recorded;
mod view;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use system::accuracy::Report;
use system::host;
use system::rig::{Load, ServerOptions, Shape};
use system::run::{Finished, Stage};

use crate::setup::{self, Ready};
use crate::{build, out, workspace};

/// Arguments of the task.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How the model server is built inside
    #[arg(long, value_enum, default_value = "split")]
    shape: ShapeArg,
    /// Requests in flight
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    concurrency: u32,
    /// How long to make load
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Print as the last line one JSON object with what was measured
    #[arg(long)]
    json: bool,
    /// Keep logs, truth and recording of the run in `target/demo`
    #[arg(long)]
    keep: bool,
    /// Show a recording of this folder instead of a live run, as happens where BPF programs cannot be loaded
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = recorded::FOLDER)]
    recorded: Option<PathBuf>,
    /// Put the run's recording and truth into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "recorded")]
    save: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ShapeArg {
    /// One process and thread, one request at a time
    Single,
    /// A front process and an engine with continuous batching
    Split,
    /// The same with a process between them that makes text of tokens
    Chain,
    /// A router that batches, and a process per GPU that it calls for each step
    Sharded,
    /// A proxy, and a server behind it on loopback
    Proxied,
    /// A front and an engine that talk through shared memory
    Shm,
}

impl ShapeArg {
    fn shape(self) -> Shape {
        match self {
            Self::Single => Shape::Single,
            Self::Split => Shape::Split,
            Self::Chain => Shape::Chain,
            Self::Sharded => Shape::Sharded,
            Self::Proxied => Shape::Proxied,
            Self::Shm => Shape::Shm,
        }
    }
}

/// Longer than any load that one would watch, so that a stuck run ends.
const SLACK: Duration = Duration::from_mins(1);

/// Shows a live run, or a recorded one where a live one is not possible.
pub(crate) fn command(args: &Args) -> Result<()> {
    let ready = setup::ensure();
    build::release(&ready)?;
    let shape = args.shape.shape();
    match live_obstacle(args, &ready) {
        None => {
            let finished = live(shape, args.concurrency, args.seconds, args.keep, args.save.as_deref())?;
            out::line(view::render(&finished.joined, &finished.report));
            print_json(args, &finished.report)
        }
        Some(reason) => {
            out::line(format_args!("no live run: {reason}; this is a recorded one, replayed"));
            let folder = args.recorded.clone().unwrap_or_else(|| recorded::FOLDER.into());
            let (joined, report) = recorded::show(shape, &workspace::root().join(folder))?;
            out::line(view::render(&joined, &report));
            print_json(args, &report)
        }
    }
}

/// The view of a short live run, and the lines by which an older one is told to be of this form.
pub(crate) fn excerpt() -> Result<String> {
    let ready = setup::ensure();
    build::release(&ready)?;
    if let Err(reason) = &ready.live {
        bail!("the excerpt is of a live run: {reason}");
    }
    let finished = live(Shape::Split, 4, 5.0, false, None)?;
    Ok(view::render(&finished.joined, &finished.report))
}

pub(crate) use view::headings;

fn live_obstacle(args: &Args, ready: &Ready) -> Option<String> {
    let asked = args.recorded.is_some().then(|| "a recorded one was asked for".to_owned());
    asked.or_else(|| ready.live.clone().err()).or_else(refused)
}

/// Exit code of the agent where the host does not allow what it needs.
const NOT_POSSIBLE: i32 = 69;

/// What the agent says when this host refuses its programs for a reason that cannot be seen from outside (lockdown,
/// a container's seccomp filter).
fn refused() -> Option<String> {
    let check = Command::new(host::binary("stagelens").ok()?).arg("check").output().ok()?;
    let said = String::from_utf8_lossy(&check.stderr).trim().to_owned();
    (check.status.code() == Some(NOT_POSSIBLE)).then_some(said)
}

fn print_json(args: &Args, report: &Report) -> Result<()> {
    if args.json {
        out::line(serde_json::to_string(report)?);
    }
    Ok(())
}

fn live(shape: Shape, concurrency: u32, seconds: f64, keep: bool, save: Option<&Path>) -> Result<Finished> {
    let dir = workspace::target().join("demo");
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    fs::create_dir_all(&dir)?;
    let name = shape.name();
    out::progress("demo", format_args!("starting the model server ({name}) and the agent"));
    let stage = Stage::set(&ServerOptions::new(shape), &dir, &[])?;
    out::progress("demo", format_args!("the agent watches it; load: {concurrency} clients for {seconds} s"));
    let load = Load::for_seconds(concurrency, seconds).varied();
    let limit = SLACK + Duration::try_from_secs_f64(seconds).context("--seconds is not a duration")?;
    let finished = stage.play(name, &load, &dir, limit)?;
    if let Some(folder) = save {
        recorded::save(&dir, &workspace::root().join(folder), shape, &finished.report)?;
    }
    if keep {
        out::progress("demo", format_args!("files of the run: {}", dir.display()));
    } else {
        fs::remove_dir_all(&dir)?;
    }
    Ok(finished)
}

/// Part of CI: the two shapes that differ most, at concurrency 1 and 8, against the product's promises. All of them take
/// too long here.
pub(crate) fn check_accuracy() -> Result<()> {
    let ready = setup::ensure();
    build::release(&ready)?;
    if let Err(reason) = &ready.live {
        bail!("accuracy can only be checked live: {reason}");
    }
    let mut broken = Vec::new();
    for shape in [Shape::Single, Shape::Split] {
        for concurrency in [1, 8] {
            let report = live(shape, concurrency, 6.0, false, None)?.report;
            out::line(serde_json::to_string(&report)?);
            let cell = format!("{} at concurrency {concurrency}", shape.name());
            broken.extend(report.violations().into_iter().map(|text| format!("{cell}: {text}")));
        }
    }
    if !broken.is_empty() {
        bail!("accuracy does not hold:\n  {}", broken.join("\n  "));
    }
    out::progress("demo", "accuracy holds in all four cells");
    Ok(())
}
