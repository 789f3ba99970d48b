//! A `libcuda.so.1` without a GPU: the CUDA driver's names and C ABI over simulated devices.
//!
//! What is real: names, argument order and types, return codes, stream order, events, waits across streams, graph
//! capture, blocking when the launch queue is full, contention of several processes for one device, first-fit
//! memory that fragments, for pools, physical memory and arrays too. What is not: device memory has no contents. A copy takes time and is counted, and its
//! device range is checked, but no byte moves.
//!
//! # Time
//! Work never runs; it gets a place on a time line. `end = max(now, stream ready, engine busy until) + duration`,
//! where the engine (one for kernels and graphs, one per copy direction) is a word in shared memory that every
//! process advances with one compare-and-swap. So a process that dies leaves no lock behind, only the time it had
//! already taken. Two things follow: the engine is first come first served (no time slices), and work that must wait
//! for an event keeps its engine for itself from the moment it is submitted.
//!
//! Duration of a kernel = `gridDimX` x `FAKECUDA_UNIT_NS`; of a graph = sum of what was captured; of a copy =
//! `FAKECUDA_COPY_LATENCY_NS` + bytes / bandwidth.
//!
//! # What it costs
//! `examples/cost.rs` prints it. On a loaded virtual machine of two cores: a launch takes 125-205 ns of the caller's
//! time (525-660 ns with four threads on the two cores), and a wait returns late by 0.3 µs (p50) and 20-40 µs (p99)
//! when it is 100 µs long, by 7 µs (p50) when it is 1 ms long, by 25 µs (p50) and 50 µs (p90) when it is 8 ms long:
//! the longer the sleep, the deeper the core slept. The largest of 500 waits, 4-9 ms, are scheduling slices of others.
//!
//! # Environment (read at first use)
//! | Variable | Meaning | Default |
//! |---|---|---|
//! | `FAKECUDA_SHM` | file of the simulated devices, made when missing | `/dev/shm/fakecuda-<uid>` |
//! | `FAKECUDA_DEVICES` | devices there are, 1 to 8 | 1 |
//! | `CUDA_VISIBLE_DEVICES` | those this process sees, in its order, by number or UUID | all |
//! | `FAKECUDA_MEM_BYTES` | memory per device; the first process that opens the file decides | 16 GiB |
//! | `FAKECUDA_UNIT_NS` | duration of a kernel per unit of `gridDimX` | 1000 |
//! | `FAKECUDA_COPY_LATENCY_NS` | fixed part of every copy | 4000 |
//! | `FAKECUDA_COPY_BYTES_PER_US` | bandwidth between host and device | 12000 |
//! | `FAKECUDA_TRUTH` | file for the counters, written when the process exits; `%p` becomes the pid | none |
//! | `FAKECUDA_HISTORY` | file for every operation's times, written then too; `%p` as above | none |
//! | `FAKECUDA_FAIL` | `function:after=N[:times=M][:code=C],…`: calls after the first N fail (M of them) | none |
//! | `FAKECUDA_INNER` | 1: `cuGetProcAddress` gives addresses of functions without a name, as far as there are such | 0 |
//! | `FAKECUDA_DELAY_US` | `function=microseconds,…`: the call takes that much longer | none |

#[macro_use]
mod abi;
mod accounts;
mod allocator;
mod array;
mod arrays;
mod clock;
mod config;
mod context;
mod copy;
mod described;
mod device;
mod error;
mod event;
mod functions;
mod graph;
mod handles;
mod history;
mod host;
mod init;
mod inner;
mod ipc;
mod launch;
mod layout;
mod link;
mod memory;
mod memset;
mod module;
mod owner;
mod pool;
mod resolve;
mod script;
mod shared;
mod stream;
mod timeline;
mod truth;
mod vmm;

pub use abi::{
    CUDA_LAUNCH_PARAMS, CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUlaunchConfig, CUresult, MemcpyEnd, MemcpyEnd2D,
    MemcpyEnd3D, Out,
};
pub use array::*;
pub use arrays::*;
pub use clock::{now as monotonic_ns, sleep_until};
pub use context::*;
pub use copy::*;
pub use described::*;
pub use device::*;
pub use error::*;
pub use event::*;
pub use functions::Func;
pub use graph::*;
pub use host::*;
pub use init::*;
pub use ipc::*;
pub use launch::*;
pub use link::*;
pub use memory::*;
pub use memset::*;
pub use module::*;
pub use pool::*;
pub use resolve::*;
pub use stream::*;
pub use truth::fakecuda_dump_truth;
pub use vmm::*;
