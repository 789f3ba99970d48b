//! What the agent does not see.

use super::{Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Sign, fact},
    feature::Unit,
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "blind_spot",
    kind: Kind::Blindness,
    help: "the service's calls or connections are not all seen: what is missing here has no numbers at all",
    next: "stagelens doctor and /api/v1/status say which path is missing and what would show it",
    scope: Scope::Service,
    immediate: false,
    check,
};

fn check(case: &Case<'_>) -> Option<Sign> {
    let unseen = &case.around.unseen;
    let first = unseen.first()?;
    Some(Sign {
        summary: first.clone(),
        evidence: vec![fact("ways that are not seen", unseen.len() as f64, Unit::Count)],
        confidence: Likelihood::High,
        effect: Effect::Share(0.0),
    })
}
