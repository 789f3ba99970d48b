//! A front process with the sockets and engine processes with the GPUs. They are linked by unix socketpairs (`split`), by
//! those and a process that makes text of tokens on the way back (`chain`), or by shared memory (`shm`).

pub(crate) mod detokenizer;
pub(crate) mod device;
pub(crate) mod engine;
pub(crate) mod front;
pub(crate) mod link;
mod shared;

use serde::{Deserialize, Serialize};

use crate::step::{Job, StepDone};

/// Front to engine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Run this request.
    Submit(Job),
    /// Stop this request, wherever it is.
    Cancel(u64),
}

/// Engine to front.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The driver is loaded.
    Ready,
    /// A step's result: one message per step.
    Step(StepDone),
    /// The engine ends, because of this.
    Failed(String),
}
