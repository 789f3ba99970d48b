//! [7] Results to people and machines: request lines, metrics, the HTTP API.
//!
//! The live loop is the only writer: it hands finished requests to the [`store`], values to the [`prometheus`]
//! families and, ten times a second, a [`snapshot`] of everything else. The HTTP side only reads, on threads of its
//! own, and no reader can make the writer wait.

pub mod coverage;
pub mod gpus;
pub mod http;
pub mod json;
pub mod metrics;
pub mod observe;
pub mod process;
pub mod prometheus;
pub mod ranges;
mod services;
pub mod snapshot;
pub mod store;

use std::sync::Arc;

use crate::pipeline::Output;

/// All that the live loop writes and the HTTP side reads.
#[derive(Debug)]
pub struct Export {
    /// Finished requests.
    pub store: store::Store,
    /// Metric families.
    pub metrics: prometheus::Metrics,
    /// Everything that is not an event.
    pub snapshot: snapshot::Shared,
}

impl Export {
    /// An empty one. `keep` is the number of finished requests kept.
    pub fn new(keep: usize, metrics: &prometheus::Settings) -> Arc<Self> {
        Arc::new(Self {
            store: store::Store::new(keep),
            metrics: prometheus::Metrics::new(metrics),
            snapshot: snapshot::Shared::default(),
        })
    }

    /// Takes what the pipeline handed out.
    pub fn take(&self, output: &Output) {
        observe::output(&self.metrics, output);
        if let Output::Request(record) = output {
            self.store.push(json::line(record));
        }
    }
}
