//! `cargo xtask bench accuracy`: every cell live, or again from what an earlier run kept.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use system::cell::Cell;
use system::rig::Shape;

use super::cells::{self, Load};
use crate::{build, out, setup, workspace};

/// Arguments of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print as the last line one JSON object with all numbers
    #[arg(long)]
    json: bool,
    /// Only this shape; may be repeated
    #[arg(long = "shape", value_name = "SHAPE")]
    shapes: Vec<String>,
    /// Only these numbers of requests in flight; may be repeated
    #[arg(long = "concurrency", value_name = "N", default_values_t = [1, 8, 64])]
    concurrency: Vec<u32>,
    /// Only streams, or only answers at once
    #[arg(long)]
    streaming: Option<bool>,
    /// How long to make load in each cell
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
    /// Keep recording and truth of each cell in a folder of its own here
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Compare what an earlier run kept here, replayed by this build; needs no root
    #[arg(long, value_name = "DIR", conflicts_with = "keep")]
    from: Option<PathBuf>,
    /// Take the binaries of the last build as they are
    #[arg(long)]
    no_build: bool,
    /// Fail when a cell breaks the product's promise
    #[arg(long)]
    strict: bool,
}

/// The last line.
#[derive(Serialize)]
struct Report<'a> {
    cells: &'a [Cell],
}

/// Measures and prints.
pub(crate) fn command(args: &Args) -> Result<()> {
    let ready = setup::ensure();
    if !args.no_build {
        build::release(&ready)?;
    }
    if let (None, Err(reason)) = (&args.from, &ready.live) {
        bail!("accuracy can only be measured live: {reason}; --from DIR compares what an earlier run kept");
    }
    let mut cells = Vec::new();
    for load in loads(args)? {
        let cell = measure(args, load)?;
        out::line(cells::render(&cell));
        cells.push(cell);
    }
    if args.json {
        out::line(serde_json::to_string(&Report { cells: &cells })?);
    }
    let broken = cells.iter().filter(|cell| !cell.violations().is_empty()).count();
    if args.strict && broken > 0 {
        bail!("{broken} of {} cells break the promise", cells.len());
    }
    Ok(())
}

fn loads(args: &Args) -> Result<Vec<Load>> {
    let known = |name: &String| Shape::ALL.iter().any(|shape| shape.name() == name);
    if let Some(name) = args.shapes.iter().find(|name| !known(name)) {
        let names: Vec<_> = Shape::ALL.iter().map(|shape| shape.name()).collect();
        bail!("there is no shape {name}; there are {}", names.join(", "));
    }
    let wanted =
        |shape: &Shape| args.shapes.is_empty() || args.shapes.iter().any(|name| name == shape.name());
    let mut loads = Vec::new();
    for shape in Shape::ALL.into_iter().filter(wanted) {
        for &concurrency in &args.concurrency {
            for streaming in
                [true, false].into_iter().filter(|s| args.streaming.is_none_or(|only| only == *s))
            {
                loads.push(Load { shape, concurrency, streaming, seconds: args.seconds });
            }
        }
    }
    Ok(loads)
}

fn measure(args: &Args, load: Load) -> Result<Cell> {
    let folder = |base: &Path| workspace::root().join(base).join(load.name());
    if let Some(base) = &args.from {
        return cells::again(load, &folder(base));
    }
    out::progress("bench", load.name());
    let dir = args.keep.as_deref().map_or_else(|| workspace::target().join("bench"), folder);
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    fs::create_dir_all(&dir)?;
    let cell = cells::live(load, &dir)?;
    if args.keep.is_none() {
        fs::remove_dir_all(&dir)?;
    }
    Ok(cell)
}
