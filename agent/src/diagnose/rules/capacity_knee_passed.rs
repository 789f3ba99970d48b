//! More is asked of the service than it can do.

use super::{Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Sign, fact, time},
    feature::{Feature, Unit},
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "capacity_knee_passed",
    kind: Kind::Cause,
    help: "more requests are in flight than usual, steps are no slower for another reason, and requests wait",
    next: "stagelens capacity suggests a limit; add replicas, or refuse earlier",
    scope: Scope::Service,
    immediate: false,
    check,
};

/// Requests in flight against what is usual.
const MORE: f64 = 1.5;

/// What it makes longer.
const CLAIMS: &[Feature] = &[Feature::Queue, Feature::AcceptWait];

fn check(case: &Case<'_>) -> Option<Sign> {
    let load = case.risen(Feature::InFlight, MORE)?;
    let queue = case.grown(Feature::Queue).or_else(|| case.grown(Feature::AcceptWait))?;
    // Then something else has made it slow, and the line of waiting requests is its doing.
    let inflated = case.risen(Feature::Step, 1.3).is_some()
        && case.risen(Feature::BatchSize, 1.2).is_none()
        && case.risen(Feature::InputTokens, 1.2).is_none();
    let longer = case.risen(Feature::InputTokens, 1.4).or_else(|| case.risen(Feature::OutputTokens, 1.4));
    if inflated || longer.is_some() {
        return None;
    }
    let evidence = [case.mean(Feature::InFlight), case.mean(Feature::Queue), case.p95(Feature::E2e), case.mean(Feature::Step)];
    let mut evidence: Vec<_> = evidence.into_iter().flatten().collect();
    evidence.push(fact("requests finished", case.rate(), Unit::PerSecond));
    Some(Sign {
        summary: format!(
            "{:.1} requests are in flight on average, usually {:.1}; each waits {}, usually {}",
            load.now.mean,
            load.usual.mean,
            time(queue.now.mean),
            time(queue.usual.mean)
        ),
        evidence,
        confidence: Likelihood::Medium,
        effect: Effect::Seconds(case.added_all_s(CLAIMS)),
    })
}
