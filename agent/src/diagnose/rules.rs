//! The rules: one file each, one row here.
//!
//! A rule looks at one subject (a model of a service, a service, or the node) and says whether its fingerprint is there,
//! with the numbers. It keeps nothing: that a finding opens, stays, and closes is decided in [`super::watch`].

use super::{
    case::{Case, Sign},
    feature::Feature,
    finding::Kind,
};

/// What a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Each model of each service.
    Model,
    /// Each service.
    Service,
}

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// Name, as in findings and metrics.
    pub name: &'static str,
    /// What it finds.
    pub kind: Kind,
    /// Fingerprint, in a sentence.
    pub help: &'static str,
    /// Where to look next.
    pub next: &'static str,
    pub(super) scope: Scope,
    /// One look is enough: it was seen, not concluded from a distribution.
    pub(super) immediate: bool,
    pub(super) check: fn(&Case<'_>) -> Option<Sign>,
}

macro_rules! rules {
    ($($name:ident,)*) => {
        $(mod $name;)*

        /// All rules.
        pub static RULES: &[Rule] = &[$($name::RULE,)*];
    };
}

rules! {
    gpu_contention,
    memory_fragmentation,
    memory_exhaustion,
    alloc_stall,
    queue_buildup,
    input_drift,
    output_drift,
    cold_start,
    kernel_recompile,
    prefill_blocks_decode,
    preemption,
    host_bound,
    event_loop_stall,
    cpu_throttled,
    thermal_or_power_throttle,
    postprocess_backpressure,
    slow_client,
    upstream_stall,
    rank_straggler,
    timeout_share_rising,
    error_class_spike,
    capacity_knee_passed,
    wrong_gpu_model_mix,
    blind_spot,
}

/// The stages that whatever slows an engine makes longer.
const ENGINE: &[Feature] = &[Feature::Queue, Feature::Prefill, Feature::Decode, Feature::Forward];

/// What lies before the engine has a request.
const BEFORE_ENGINE: &[Feature] = &[Feature::AcceptWait, Feature::Preprocess, Feature::NetworkIn];

/// What an engine that is slow itself adds to requests. Where it stops between steps, those that wait for it do so while it
/// has nothing on the GPU: that is no queue to who looks from outside, but it is this engine's doing.
fn engine_s(case: &Case<'_>) -> f64 {
    let waiting = if case.grown(Feature::HostGap).is_some() { BEFORE_ENGINE } else { &[] };
    case.added_all_s(ENGINE) + case.added_all_s(waiting)
}

/// The part of it that goes into `own`, a time within the forward: who waits, waits for it in the same measure.
fn engine_part_s(case: &Case<'_>, own: Feature) -> f64 {
    let own = case.added_s(own);
    let forward = case.added_all_s(&[Feature::Prefill, Feature::Decode, Feature::Forward]);
    let part = own / forward.max(own).max(1e-9);
    own.max(engine_s(case) * part)
}

/// Whether at least half of what one time has gained is the other's.
fn is_most_of(case: &Case<'_>, part: Feature, whole: Feature) -> bool {
    let gained = case.added_s(part);
    gained > 0.0 && gained >= case.added_s(whole) / 2.0
}

/// Those that look at models, or those that look at services.
pub(super) fn of(model: bool) -> impl Iterator<Item = &'static Rule> {
    let scope = if model { Scope::Model } else { Scope::Service };
    RULES.iter().filter(move |rule| rule.scope == scope)
}

#[cfg(test)]
mod tests;
