//! The command line: a contract with the tasks and tests that start the server.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use serde::Serialize;

/// How the server is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Shape {
    /// One process, one thread, batch 1, as llama.cpp's server with one slot.
    Single,
    /// A front process and an engine process with continuous batching and two steps in flight, as vLLM.
    Split,
}

/// A model server of known truth.
#[derive(Clone, Debug, Parser)]
#[command(name = "modelserver", version, about)]
pub(crate) struct Args {
    /// How the server is built
    #[arg(long, value_enum, default_value_t = Shape::Single)]
    pub(crate) shape: Shape,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
    /// File that gets the port once the server listens (written atomically)
    #[arg(long, value_name = "FILE")]
    pub(crate) port_file: Option<PathBuf>,
    /// File that gets one JSON line of true times per request (appended)
    #[arg(long, value_name = "FILE")]
    pub(crate) truth: Option<PathBuf>,
    /// The driver library to load
    #[arg(long, value_name = "PATH")]
    pub(crate) libcuda: PathBuf,
    /// Load the driver library this long after the start; the server listens meanwhile and queues requests
    #[arg(long, default_value_t = 0)]
    pub(crate) dlopen_delay_ms: u64,
    /// CUDA device ordinal
    #[arg(long, default_value_t = 0)]
    pub(crate) device: i32,
    /// GPU time of prefill per prompt token, microseconds
    #[arg(long, default_value_t = 20)]
    pub(crate) prefill_us_per_token: u32,
    /// GPU time of a decode step, microseconds
    #[arg(long, default_value_t = 8000)]
    pub(crate) decode_us: u32,
    /// Kernels of a step that contains prefill (never more than its microseconds)
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) prefill_kernels: u32,
    /// Kernels of a decode step: launched in `single`, captured in the graphs of `split`
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) decode_kernels: u32,
    /// Requests in one step (`split`)
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_batch: u32,
    /// Tokens in one step (`split`); a longer prompt is prefilled over several steps
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) step_tokens: u32,
    /// Requests that may wait beyond those that run; more are refused with 503
    #[arg(long, default_value_t = 1024)]
    pub(crate) max_queue: usize,
    /// Output tokens of a request that does not say how many
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_tokens: u32,
    /// Seed of the token texts
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Busy time per request before the hand-off, microseconds
    #[arg(long, default_value_t = 100)]
    pub(crate) tokenizer_us: u64,
    /// Busy time per token between its arrival from the engine and its write, microseconds
    #[arg(long, default_value_t = 0)]
    pub(crate) detok_us: u64,
    /// Length of a stall of the event loop, microseconds
    #[arg(long, default_value_t = 0)]
    pub(crate) stall_us: u64,
    /// Stall after every N-th step whose result reached the event loop; 0 never
    #[arg(long, default_value_t = 0)]
    pub(crate) stall_every: u64,
    /// Allocate and free device memory around every N-th step; 0 never
    #[arg(long, default_value_t = 16)]
    pub(crate) alloc_every: u64,
    /// Size of those allocations, bytes
    #[arg(long, default_value_t = 1 << 20)]
    pub(crate) alloc_bytes: usize,
    /// Send buffer of client sockets, bytes; 0 leaves it to the kernel
    #[arg(long, default_value_t = 0)]
    pub(crate) send_buffer: usize,
    /// How long a drain after SIGTERM may take, milliseconds
    #[arg(long, default_value_t = 30_000)]
    pub(crate) drain_ms: u64,
    /// Internal: be the engine of a `split` server, linked to its front by this descriptor
    #[arg(long, hide = true, value_name = "FD")]
    pub(crate) engine_fd: Option<i32>,
}

impl Args {
    /// Requests that run at the same time; the others wait.
    pub(crate) fn slots(&self) -> usize {
        match self.shape {
            Shape::Single => 1,
            Shape::Split => self.max_batch as usize,
        }
    }
}
