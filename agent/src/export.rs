//! [7] Results to people and machines: request lines, metrics, the HTTP API.
//!
//! The live loop is the only writer: it hands finished requests to the [`store`], values to the [`prometheus`]
//! families and, ten times a second, a [`snapshot`] of everything else. The HTTP side only reads, on threads of its
//! own, and no reader can make the writer wait.

pub mod capacity;
pub mod coverage;
pub mod findings;
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

/// Steps kept for the API, about 200 bytes each: 20 s of an engine with 5 ms a step.
const STEPS_KEPT: usize = 4096;

/// All that the live loop writes and the HTTP side reads.
#[derive(Debug)]
pub struct Export {
    /// Finished requests.
    pub store: store::Store,
    /// Steps and which requests were in them.
    pub steps: store::Store,
    /// Metric families.
    pub metrics: prometheus::Metrics,
    /// What models can take.
    pub capacity: capacity::Planner,
    /// Everything that is not an event.
    pub snapshot: snapshot::Shared,
}

impl Export {
    /// An empty one. `keep` is the number of finished requests kept.
    pub fn new(keep: usize, metrics: &prometheus::Settings) -> Arc<Self> {
        Arc::new(Self {
            store: store::Store::new(keep),
            steps: store::Store::new(STEPS_KEPT),
            metrics: prometheus::Metrics::new(metrics),
            capacity: capacity::Planner::default(),
            snapshot: snapshot::Shared::default(),
        })
    }

    /// Takes what the pipeline handed out.
    pub fn take(&self, output: &Output) {
        observe::output(&self.metrics, output);
        self.capacity.take(output);
        match output {
            Output::Request(record) => self.store.push(json::line(record)),
            Output::Told(step) => self.steps.push(json::line(step)),
            _ => {}
        }
    }
}
