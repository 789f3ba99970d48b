//! Requests wait for the engine.

use super::{Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Sign, fact, time},
    feature::{Feature, Unit},
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "queue_buildup",
    kind: Kind::Symptom,
    help: "requests wait longer for the engine than usual",
    next: "stagelens capacity shows what it can take; if steps are no longer than usual, more is asked than it can do: add \
           replicas or shed load",
    scope: Scope::Model,
    immediate: false,
    check,
};

fn check(case: &Case<'_>) -> Option<Sign> {
    let grown = case.grown(Feature::Queue)?;
    let mut evidence: Vec<_> = [case.mean(Feature::Queue), case.p95(Feature::Queue)].into_iter().flatten().collect();
    evidence.extend(case.mean(Feature::InFlight));
    evidence.extend(case.mean(Feature::Waiting));
    evidence.extend(case.mean(Feature::Step));
    evidence.push(fact("requests finished", case.rate(), Unit::PerSecond));
    let added = case.added_s(Feature::Queue);
    Some(Sign {
        summary: format!(
            "requests wait {} for the engine on average, usually {}",
            time(grown.now.mean),
            time(grown.usual.mean)
        ),
        evidence,
        confidence: Likelihood::High,
        effect: Effect::Seconds(added),
    })
}
