//! Answers are longer.

use super::{Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Sign},
    feature::Feature,
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "output_drift",
    kind: Kind::Cause,
    help: "answers are longer than usual, and requests take longer by that",
    next: "compare times per output token before calling it a regression; look for a new prompt, a missing stop or a \
           raised limit",
    scope: Scope::Model,
    immediate: false,
    check,
};

/// Mean of the length.
const LONGER: f64 = 1.4;

/// What it makes longer.
const CLAIMS: &[Feature] = &[Feature::Queue, Feature::Decode, Feature::Forward];

fn check(case: &Case<'_>) -> Option<Sign> {
    let longer = case.risen(Feature::OutputTokens, LONGER)?;
    case.grown(Feature::E2e)?;
    let added = case.added_all_s(CLAIMS);
    let mut evidence: Vec<_> = case.mean(Feature::OutputTokens).into_iter().collect();
    evidence.extend(case.p95(Feature::OutputTokens));
    evidence.extend(case.mean(Feature::Tpot));
    evidence.extend(case.mean(Feature::Decode));
    Some(Sign {
        summary: format!(
            "answers have {:.0} tokens on average, usually {:.0}",
            longer.now.mean, longer.usual.mean
        ),
        evidence,
        confidence: Likelihood::High,
        effect: Effect::Seconds(added),
    })
}
