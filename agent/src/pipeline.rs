//! The loop's body over one closed enum of events, and the only owner of the core's state.

use crate::{health::Health, request::RequestRecord};

/// What the pipeline hands out while it works.
#[derive(Debug)]
pub enum Output {
    /// A request is over and its assignment final.
    Request(Box<RequestRecord>),
    /// A GPU step of a process of `service` (for the GPU metrics).
    Step {
        /// Service name, as exported.
        service: String,
        /// The step as the kernel side reported it.
        step: wire::cuda::Step,
    },
    /// A memory call of a process of `service`.
    Memory {
        /// Service name, as exported.
        service: String,
        /// The call as the kernel side reported it.
        memory: wire::cuda::Memory,
    },
}

/// Settings of the core; everything that changes what a recording replays to.
#[derive(Clone, Debug)]
pub struct Settings {}

/// Everything from `decode` to `stage`. Fed record by record; pure.
#[derive(Debug)]
pub struct Pipeline {
    health: Health,
}

impl Pipeline {
    /// An empty pipeline.
    pub fn new(_settings: Settings) -> Self {
        Self { health: Health::default() }
    }

    /// Takes one record, masks its payload in place, and appends what became final to `out`.
    pub fn process(&mut self, record: &mut [u8], out: &mut Vec<Output>) {
        let _ = (record, out);
    }

    /// Its counters.
    pub fn health(&self) -> &Health {
        &self.health
    }
}
