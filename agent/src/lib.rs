//! stagelens: for any inference server on a Linux GPU node, where each request's time went and why.
//!
//! The modules stand in the order in which data flows through them:
//!
//! | step | module | turns | into |
//! |---|---|---|---|
//! | 0 | [`probe`] | a running host | attached programs |
//! | 1 | [`source`] | ring buffer, /proc, NVML, recording | record bytes |
//! | 1b | [`tls`] | ciphertext and plaintext apart | plaintext in place of ciphertext |
//! | 2 | [`decode`] | record bytes | [`decode::Event`] |
//! | 3 | [`track`] | events | per-process, per-connection, per-stream state |
//! | 3 | [`device`] | what NVML told | the GPUs as they are now |
//! | 3 | [`memory`] | memory calls | what each process holds, and why it could not have more |
//! | 3 | [`placement`] | context and device calls, NVML, /proc | the device of a context |
//! | 3 | [`coverage`] | what was seen and what NVML told | whose work on a GPU is seen |
//! | 4 | [`request`] | exchanges and steps | requests with their steps |
//! | 5 | [`stage`] | a request's stamps | a partition of its wall time |
//! | 5 | [`versions`] | names of models | their versions, where nothing else tells them |
//! | 5 | [`contention`], [`role`], [`occupancy`] | steps by device | who is on it, what for, and in whose way |
//! | - | [`names`] | values of enums | the words that JSON, labels and sentences share |
//! | 6 | [`diagnose`] | requests over time | findings, changes, and what is usual |
//! | 7 | [`export`] | results | JSON, metrics, HTTP |
//!
//! Invariants:
//! - A module imports only values of modules before it. `cargo xtask tidy` checks it.
//! - [1b] to [6] and [`pipeline`] do no I/O, read no clock, take no lock and know no async: time comes from events.
//!   So a recording replays to the same bytes the live run gave.
//! - [`pipeline::Pipeline`] is the only owner of state; exporters read what it hands out.
//! - Payload bytes are masked in place as they are parsed (`track::mask`): nothing behind [`track`], and no
//!   recording, ever holds text of a prompt, an answer or a credential.
//! - No `unsafe` but in `probe::syscall` (one system call that no wrapper offers) and on the kernel side.

#![deny(unsafe_code)]

pub mod cli;
pub mod config;
pub mod contention;
pub mod coverage;
pub mod decode;
pub mod device;
pub mod diagnose;
pub mod export;
pub mod health;
pub mod memory;
pub mod names;
pub mod occupancy;
pub mod pipeline;
pub mod placement;
pub mod probe;
pub mod request;
pub mod role;
pub mod source;
pub mod stage;
pub mod tls;
pub mod track;
pub mod versions;
