//! A program that makes a given number of CUDA calls, by the way that it is told: the driver's exported functions, the
//! addresses that the driver gives out, both in turn, or the runtime. It makes its calls once a file is there, so that
//! whoever watches can be ready, and stays until another one is. What it did is counted by the simulated driver.

mod api;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser as _;

use api::{Driver, Runtime, Way};

/// How long a file is waited for.
const LIMIT: Duration = Duration::from_mins(2);

#[derive(Debug, clap::Parser)]
struct Args {
    /// The driver.
    #[arg(long)]
    libcuda: PathBuf,
    /// The runtime, for way `runtime`; it loads the driver by itself.
    #[arg(long)]
    libcudart: Option<PathBuf>,
    /// By which way.
    #[arg(long, value_enum, default_value = "export")]
    way: Way,
    /// Launches.
    #[arg(long, default_value_t = 100)]
    launches: u32,
    /// Launches between two waits.
    #[arg(long, default_value_t = 10)]
    wait_every: u32,
    /// Allocations, each freed.
    #[arg(long, default_value_t = 0)]
    allocs: u32,
    /// Modules loaded, kernels linked and graphs made executable, so many of each.
    #[arg(long, default_value_t = 0)]
    modules: u32,
    /// Made when everything is set up.
    #[arg(long)]
    ready: Option<PathBuf>,
    /// Waited for before the calls.
    #[arg(long)]
    go: Option<PathBuf>,
    /// Waited for after them.
    #[arg(long)]
    stay: Option<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.way == Way::Runtime {
        let path = args.libcudart.as_deref().context("--way runtime needs --libcudart")?;
        let runtime = Runtime::open(path)?;
        wait_to_go(&args)?;
        run(&args, |_| runtime.launch(), || runtime.wait(), || runtime.alloc())?;
    } else {
        let driver = Driver::open(&args.libcuda, args.way)?;
        wait_to_go(&args)?;
        run(&args, |n| driver.launch(n), || driver.wait(), || driver.alloc())?;
        (0..args.modules).try_for_each(|_| driver.modules())?;
    }
    args.stay.as_deref().map_or(Ok(()), wait_for)
}

fn wait_to_go(args: &Args) -> Result<()> {
    if let Some(ready) = &args.ready {
        std::fs::write(ready, "").with_context(|| format!("cannot make {}", ready.display()))?;
    }
    args.go.as_deref().map_or(Ok(()), wait_for)
}

fn run(
    args: &Args,
    launch: impl Fn(u32) -> Result<()>,
    wait: impl Fn() -> Result<()>,
    alloc: impl Fn() -> Result<()>,
) -> Result<()> {
    for n in 1..=args.launches {
        launch(n)?;
        if n % args.wait_every.max(1) == 0 || n == args.launches {
            wait()?;
        }
    }
    (0..args.allocs).try_for_each(|_| alloc())
}

fn wait_for(path: &Path) -> Result<()> {
    let until = Instant::now() + LIMIT;
    while !path.exists() {
        if Instant::now() > until {
            bail!("{} did not come", path.display());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
