//! Running requests are put out of the batch and begin again.

use super::{Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Sign, time},
    feature::Feature,
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "preemption",
    kind: Kind::Cause,
    help: "streams stand still while the engine's steps go on without them, and then go on at their usual pace",
    next: "the memory for keys and values is too small for what runs: a larger share of the GPU's memory for it, fewer \
           requests in a batch, shorter contexts; vLLM counts `num_preemptions`, SGLang tells of retraction in its log",
    scope: Scope::Model,
    immediate: false,
    check,
};

/// What it makes longer: others wait for the same room.
const CLAIMS: &[Feature] = &[Feature::Decode, Feature::Queue];

fn check(case: &Case<'_>) -> Option<Sign> {
    let pauses = case.grown(Feature::SatOut)?;
    let evidence = [
        case.mean(Feature::SatOut),
        case.p95(Feature::SatOut),
        case.p95(Feature::TbtMax),
        case.mean(Feature::Step),
        case.mean(Feature::Queue),
        case.mean(Feature::MemoryUsed),
    ];
    Some(Sign {
        summary: format!(
            "requests sit out steps of the engine after their first token, for {} on average and {} at the 95th percentile \
             (usually {}): they are preempted, or put behind others",
            time(pauses.now.mean),
            time(pauses.now.p95),
            time(pauses.usual.mean)
        ),
        evidence: evidence.into_iter().flatten().collect(),
        confidence: Likelihood::Medium,
        effect: Effect::Seconds(case.added_all_s(CLAIMS)),
    })
}
