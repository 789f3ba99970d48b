//! `modelserver`: a model server of known truth.
//!
//! It speaks the `OpenAI` API, calls the CUDA driver as real engines do, and writes when each thing really happened,
//! from its own clock readings around its own calls. It runs on the simulated device of `tests/fakecuda`.
//!
//! | Module | |
//! |---|---|
//! | [`server`], [`connection`], [`http`], [`api`], [`exchange`] | sockets to requests to answers |
//! | [`single`] | engine in the same thread |
//! | [`split`], [`scheduler`] | engine in its own process, continuous batching, two steps in flight; also `chain`, `shm` |
//! | [`sharded`] | a router, and a process per GPU that it calls for each step |
//! | [`proxied`] | a proxy, and `single` behind it |
//! | [`part`] | the other processes of a server |
//! | [`cuda`], [`gpu`] | the driver |
//! | [`truth`], [`clock`] | stamps, stages, lines |
//! | [`trouble`] | what goes wrong meanwhile |

mod api;
mod args;
mod backend;
mod clock;
mod connection;
mod cuda;
mod exchange;
mod gpu;
mod http;
mod part;
mod proxied;
mod scheduler;
mod server;
mod sharded;
mod sidecar;
mod signals;
mod single;
mod split;
mod step;
mod text;
mod trouble;
mod truth;

use anyhow::{Context, Result};
use clap::Parser;

use args::{Args, Part, Shape};
use part::Child;

fn main() -> Result<()> {
    let args = Args::parse();
    trouble::open(args.trouble.as_deref()).context("the file of troubles")?;
    match args.part {
        Some(part) => be(part, args).with_context(|| format!("{part:?} process")),
        None => serve(&args),
    }
}

fn serve(args: &Args) -> Result<()> {
    let sidecar = args.sidecar.then(|| Child::start(Part::Sidecar, &[], None)).transpose()?;
    match args.shape {
        Shape::Single => server::serve(args, None, single::Single::new)?,
        Shape::Split | Shape::Chain | Shape::Shm => server::serve(args, None, split::front::Front::start)?,
        Shape::Sharded => server::serve(args, None, sharded::router::Router::start)?,
        Shape::Proxied => server::serve(args, None, proxied::front::Proxy::start)?,
    }
    drop(sidecar);
    Ok(())
}

fn be(part: Part, args: Args) -> Result<()> {
    signals::ignore().context("cannot block signals")?;
    match part {
        Part::Engine => split::engine::run(&args)?,
        Part::Detokenizer => split::detokenizer::run(&args)?,
        Part::Shard => sharded::shard::run(&args)?,
        Part::Runner => proxied::runner::run(args)?,
        Part::Sidecar => sidecar::run()?,
    }
    Ok(())
}
