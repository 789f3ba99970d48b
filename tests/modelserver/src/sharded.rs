//! Shape `sharded`: a router that batches, and a process per GPU, all of which it calls for each step.
//!
//! The calls are gRPC over HTTP/2 on unix sockets. The messages are JSON, as nobody but the two of them reads them.

pub(crate) mod router;
pub(crate) mod shard;

use std::io;

use bytes::Bytes;
use h2::RecvStream;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::backend::BackendError;
use crate::clock::Stamp;
use crate::cuda::CudaError;

/// The service that shards offer.
const SERVICE: &str = "/generate.v3.TextGenerationService";
/// Bytes before a message of gRPC: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// What a shard answers to a step.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Reply {
    launch: Stamp,
    result: Stamp,
    alloc_failures: u64,
}

/// Why a call failed.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    /// The socket.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// HTTP/2.
    #[error(transparent)]
    Http2(#[from] h2::Error),
    /// A request that cannot be made.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// A message that is none.
    #[error("unreadable message between router and shard: {0}")]
    Message(#[from] serde_json::Error),
    /// The driver.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl From<CallError> for BackendError {
    fn from(error: CallError) -> Self {
        Self::Engine(error.to_string())
    }
}

/// A message with its prefix.
fn frame(message: &impl Serialize) -> Result<Bytes, CallError> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    Ok([&[0][..], &length.to_be_bytes(), &json].concat().into())
}

/// The body of a request or an answer, without the prefix.
async fn message(mut body: RecvStream) -> Result<Vec<u8>, CallError> {
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        bytes.extend_from_slice(&data);
    }
    body.trailers().await?;
    Ok(bytes.split_off(PREFIX.min(bytes.len())))
}
