//! `modelserver`: a model server of known truth.
//!
//! It speaks the `OpenAI` API, calls the CUDA driver as real engines do, and writes when each thing really happened,
//! from its own clock readings around its own calls. It runs on the simulated device of `tests/fakecuda`.
//!
//! | Module | |
//! |---|---|
//! | [`server`], [`connection`], [`http`], [`api`], [`exchange`] | sockets to requests to answers |
//! | [`single`] | engine in the same thread, batch 1 |
//! | [`split`], [`scheduler`] | engine in its own process, continuous batching, two steps in flight |
//! | [`cuda`], [`gpu`] | the driver |
//! | [`truth`], [`clock`] | stamps, stages, lines |

mod api;
mod args;
mod backend;
mod clock;
mod connection;
mod cuda;
mod exchange;
mod gpu;
mod http;
mod scheduler;
mod server;
mod signals;
mod single;
mod split;
mod step;
mod text;
mod truth;

use std::os::fd::{FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use clap::Parser;

use args::{Args, Shape};

fn main() -> Result<()> {
    let args = Args::parse();
    match (args.engine_fd, args.shape) {
        (Some(fd), _) => engine(&args, fd).context("engine process"),
        (None, Shape::Single) => Ok(server::serve(&args, single::Single::new)?),
        (None, Shape::Split) => Ok(server::serve(&args, split::front::Front::start)?),
    }
}

fn engine(args: &Args, fd: i32) -> Result<()> {
    signals::ignore().context("cannot block signals")?;
    // SAFETY: the front opened this descriptor for us and nothing else here knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(split::engine::run(args, fd)?)
}
