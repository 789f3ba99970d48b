//! A program that makes CUDA calls by a script and writes down what it did: what each of its waits proved, and when.
//!
//! `cudacalls LIBCUDA DIR SCRIPT` makes `DIR/ready` when the driver is loaded, begins when there is `DIR/go`, writes
//! `DIR/report.json`, and ends when there is `DIR/end`.

mod calls;
mod copies;
mod driver;
mod report;
mod scripts;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use system::wait;

use crate::driver::Driver;
use crate::scripts::SCRIPTS;

/// How long the other side may take.
const LIMIT: Duration = Duration::from_mins(5);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [libcuda, dir, script] = arguments.as_slice() else { bail!("usage: cudacalls LIBCUDA DIR SCRIPT") };
    let dir = PathBuf::from(dir);
    let (_, script) = SCRIPTS.iter().find(|(name, _)| name == script).context("no such script")?;
    let driver = Driver::load(libcuda)?;
    fs::write(dir.join("ready"), "")?;
    await_file(&dir.join("go"))?;
    let report = script(&driver);
    let part = dir.join("report.part");
    fs::write(&part, serde_json::to_string(&report)?)?;
    fs::rename(part, dir.join("report.json"))?;
    await_file(&dir.join("end"))
}

fn await_file(path: &Path) -> Result<()> {
    wait::until(&path.display().to_string(), LIMIT, || Ok(path.exists().then_some(())))
}
