//! What the HTTP side needs from an engine, in the same process or behind a socket.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::PollFlags;
use thiserror::Error;

use crate::cuda::CudaError;
use crate::step::{Job, StepDone};

/// Why the engine cannot go on. All requests in flight are lost.
#[derive(Debug, Error)]
pub(crate) enum BackendError {
    /// The driver.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The link to the engine process.
    #[error("the link between front and engine failed: {0}")]
    Link(#[from] io::Error),
    /// The engine process said so.
    #[error("the engine failed: {0}")]
    Engine(String),
    /// A message that this version does not know.
    #[error("unreadable message between front and engine: {0}")]
    Message(#[from] serde_json::Error),
}

/// An engine.
pub(crate) trait Backend {
    /// Whether it can run steps yet.
    fn ready(&self) -> bool;

    /// Descriptors to wait on, and for what; [`Backend::turn`] is due when one is ready.
    fn wake(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        Vec::new()
    }

    /// How long the caller may wait before the next [`Backend::turn`]; `None` is for ever.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Hands a request over. Returns when that began, ns.
    fn submit(&mut self, job: Job) -> Result<u64, BackendError>;

    /// Drops a request.
    fn cancel(&mut self, id: u64) -> Result<(), BackendError>;

    /// Does what is due and appends the steps that are done.
    fn turn(&mut self, done: &mut Vec<StepDone>) -> Result<(), BackendError>;
}
