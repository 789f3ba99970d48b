//! The server waits for something that is neither its engine nor its client.

use super::{Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Sign, time},
    feature::Feature,
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "upstream_stall",
    kind: Kind::Cause,
    help: "requests take longer by time in which no step of an engine ran for them: the server waits for another service",
    next: "look what it asks for: a store, a cache, a guard model, a remote engine; its own GPU is idle meanwhile",
    scope: Scope::Model,
    immediate: false,
    check,
};

fn check(case: &Case<'_>) -> Option<Sign> {
    let grown = case.grown(Feature::Unattributed)?;
    let added = case.added_s(Feature::Unattributed);
    // Something else has moved more.
    if case.moved().is_some_and(|(stage, _)| stage != Feature::Unattributed) && !case.open {
        return None;
    }
    let evidence =
        [case.mean(Feature::Unattributed), case.mean(Feature::E2e), case.mean(Feature::Utilization), case.mean(Feature::Cpu)];
    Some(Sign {
        summary: format!(
            "{} of a request is neither engine nor network nor CPU seen at work, usually {}",
            time(grown.now.mean),
            time(grown.usual.mean)
        ),
        evidence: evidence.into_iter().flatten().collect(),
        confidence: Likelihood::Medium,
        effect: Effect::Seconds(added),
    })
}
