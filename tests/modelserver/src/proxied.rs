//! Shape `proxied`: a front that asks a second server over loopback, token by token.
//!
//! The truth is of the request that the client sent. What it needs of the second server's steps comes by a pipe, where
//! nobody looks; the tokens themselves come by the connection only.

pub(crate) mod front;
pub(crate) mod runner;

use serde::{Deserialize, Serialize};

use crate::step::StepDone;

/// What the runner tells by the pipe, each before its tokens are written.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// It listens on this port.
    Listens(u16),
    /// The driver is loaded.
    Loaded,
    /// A step's result is there.
    Step(StepDone),
}
