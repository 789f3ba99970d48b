//! Load generator of the test rig: sends `OpenAI` requests to a server on this machine and writes what the client saw.
//!
//! One JSON line per request to `--out`, a summary line to stderr. All times are `CLOCK_MONOTONIC` nanoseconds, taken
//! right after the system call that gave the bytes, so they compare directly with the server's and the agent's.
//! Every thread is one client with one connection and one request at a time.

mod answer;
mod args;
mod clock;
mod connection;
mod exchange;
mod http;
mod pace;
mod plan;
mod probe;
mod random;
mod record;
mod report;
mod sse;
mod worker;

use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result};
use clap::Parser as _;

use crate::args::Args;
use crate::pace::Pace;
use crate::probe::Probes;
use crate::report::Report;
use crate::worker::Worker;

/// A worker needs little: its buffers are on the heap.
const STACK: usize = 256 << 10;

fn main() -> Result<()> {
    let args = Arc::new(Args::parse());
    let report = Arc::new(Report::open(&args.out)?);
    let pace = Arc::new(Pace::new(&args));
    let probes = Probes::start(&args);
    let mut workers = Vec::new();
    for number in 0..args.concurrency {
        let worker = Worker::new(number, Arc::clone(&args), Arc::clone(&pace), Arc::clone(&report));
        let thread = thread::Builder::new().stack_size(STACK).name(format!("client-{number}"));
        workers.push(thread.spawn(move || worker.run()).context("cannot start a thread for a client")?);
    }
    for worker in workers {
        worker.join().ok().context("a client thread panicked")??;
    }
    drop(probes);
    report.summary(pace.late())
}
