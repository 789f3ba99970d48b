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
    /// As `split`, with a third process that makes text of tokens between engine and front, and heads that wait for the
    /// first token, as `SGLang`.
    Chain,
    /// A router that batches, and one process per GPU that it calls over gRPC on a unix socket for each step, as TGI.
    Sharded,
    /// A proxy that asks a second server on loopback, which batches, as Ollama.
    Proxied,
    /// A front process and an engine process that talk through shared memory, without a system call while both are busy;
    /// a thread of its own waits for results, as Triton.
    Shm,
}

impl Shape {
    /// It writes the head of a stream before it has a token.
    pub(crate) fn writes_heads_first(self) -> bool {
        self == Self::Split
    }
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
    #[arg(long, default_value_t = 0, overrides_with = "device")]
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
    /// GPU time that each request adds to a decode step, microseconds
    #[arg(long, default_value_t = 0)]
    pub(crate) decode_us_per_request: u32,
    /// Requests in one step of `single`; the other shapes have `--max-batch`
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: u32,
    /// GPUs that run each step together (`sharded`)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub(crate) ranks: u32,
    /// Engines that share the requests, each on a GPU of its own (`split`)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub(crate) replicas: u32,
    /// Models of this server, each with an engine of its own; a request goes by its model's name, one of no known name to
    /// the first (`split`)
    #[arg(long, value_delimiter = ',', conflicts_with = "replicas")]
    pub(crate) models: Vec<String>,
    /// Requests in one step (all shapes but `single`)
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_batch: u32,
    /// Tokens in one step (all shapes but `single`); a longer prompt is prefilled over several steps
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
    /// Busy time per prompt token before the hand-off, nanoseconds
    #[arg(long, default_value_t = 0)]
    pub(crate) tokenizer_ns_per_token: u64,
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
    /// File of words that say what goes wrong while the server runs
    #[arg(long, value_name = "FILE")]
    pub(crate) trouble: Option<PathBuf>,
    /// How long a drain after SIGTERM may take, milliseconds
    #[arg(long, default_value_t = 30_000)]
    pub(crate) drain_ms: u64,
    /// Start a process beside the server that listens, answers and has nothing to do with it
    #[arg(long)]
    pub(crate) sidecar: bool,
    /// Internal: be a part of a server instead
    #[arg(long, hide = true, value_enum)]
    pub(crate) part: Option<Part>,
    /// Internal: which of several parts with a GPU each
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) rank: u16,
    /// Internal: descriptor that the part gets its input by
    #[arg(long, hide = true, value_name = "FD")]
    pub(crate) input_fd: Option<i32>,
    /// Internal: descriptor that the part gives its output by, where that is another one
    #[arg(long, hide = true, value_name = "FD")]
    pub(crate) output_fd: Option<i32>,
}

/// Of several parts of one kind, which one, and its GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// CUDA device ordinal.
    pub(crate) device: i32,
    /// From 0.
    pub(crate) rank: u16,
}

/// A process of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Has the GPU, linked to its front.
    Engine,
    /// Makes text of tokens, between engine and front.
    Detokenizer,
    /// One GPU of a `sharded` server.
    Shard,
    /// The server behind a proxy.
    Runner,
    /// Has nothing to do with the server.
    Sidecar,
}

impl Args {
    /// Requests that run at the same time; the others wait.
    pub(crate) fn slots(&self) -> usize {
        let each = if self.shape == Shape::Single { self.slots } else { self.max_batch };
        each as usize * self.engines()
    }

    /// GPU time of a step in which this many requests decode, microseconds; nothing where none does.
    pub(crate) fn decode_us_of(&self, requests: usize) -> u32 {
        let each = self.decode_us_per_request.saturating_mul(u32::try_from(requests).unwrap_or(u32::MAX));
        if requests == 0 { 0 } else { self.decode_us.saturating_add(each) }
    }

    /// Where a part of the server with a GPU of its own is, by its number.
    pub(crate) fn place_of(&self, index: usize) -> Place {
        let rank = u16::try_from(index).unwrap_or(0);
        Place { device: self.device.saturating_add(i32::from(rank)), rank }
    }

    /// Engines of the server.
    pub(crate) fn engines(&self) -> usize {
        if self.shape == Shape::Split { self.models.len().max(self.replicas as usize) } else { 1 }
    }
}
