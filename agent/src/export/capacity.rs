//! What models can take, for `/api/v1/capacity`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::{
    diagnose::capacity::{Capacity, Limits, Question, Told},
    health::Health,
    pipeline::Output,
};

/// What is kept, shared between who fills it and who asks.
#[derive(Debug, Default)]
pub struct Planner(Mutex<Capacity>);

/// `/api/v1/capacity`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// By service and model.
    pub models: Vec<Told>,
    /// What was not kept.
    pub limits: Limits,
}

impl Answer {
    /// Only of this service and this model, where one is given.
    #[must_use]
    pub fn only(mut self, service: Option<&str>, model: Option<&str>) -> Self {
        let is_wanted = |own: &str, wanted: Option<&str>| wanted.is_none_or(|wanted| own == wanted);
        self.models.retain(|told| is_wanted(&told.service, service) && is_wanted(&told.model, model));
        self
    }
}

impl Planner {
    fn lock(&self) -> MutexGuard<'_, Capacity> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self, output: &Output) {
        match output {
            Output::Request(record) => self.lock().request(record),
            Output::Told(step) => self.lock().step(step),
            _ => {}
        }
    }

    /// Lets time go on, and counts what was not kept.
    pub fn pass(&self, now_ns: u64, health: &mut Health) {
        let mut capacity = self.lock();
        capacity.pass(now_ns);
        let limits = capacity.limits();
        health.limit_by("capacity_models", limits.models);
        health.limit_by("capacity_requests", limits.requests);
    }

    /// What is known now.
    pub fn answer(&self, question: Question, now_ns: u64, wall: impl Fn(u64) -> Option<u64>) -> Answer {
        // Whoever fills it waits for a copy, not for what is computed of it.
        let kept = self.lock().clone();
        Answer { limits: kept.limits(), models: kept.told(question, now_ns, wall) }
    }
}
