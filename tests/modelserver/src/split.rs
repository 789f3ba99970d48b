//! Shape `split`: a front process with the sockets and an engine process with the GPU, linked by a unix socketpair.

pub(crate) mod engine;
pub(crate) mod front;
mod link;

use serde::{Deserialize, Serialize};

use crate::step::{Job, StepDone};

/// Front to engine.
#[derive(Debug, Serialize, Deserialize)]
enum Command {
    /// Run this request.
    Submit(Job),
    /// Stop this request, wherever it is.
    Cancel(u64),
}

/// Engine to front.
#[derive(Debug, Serialize, Deserialize)]
enum Event {
    /// The driver is loaded.
    Ready,
    /// A step's result: one message per step.
    Step(StepDone),
    /// The engine ends, because of this.
    Failed(String),
}
