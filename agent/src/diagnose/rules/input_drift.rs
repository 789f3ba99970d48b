//! Prompts, or whatever is sent, are longer.

use super::{Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Growth, Sign},
    feature::{Feature, Unit},
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "input_drift",
    kind: Kind::Cause,
    help: "inputs are longer than usual, and the time before the first token has grown with them",
    next: "ask the callers what changed; compare by input_range before calling it a regression; a limit of length helps",
    scope: Scope::Model,
    immediate: false,
    check,
};

/// Mean, or 95th percentile, of the length.
const LONGER: f64 = 1.4;

/// What it makes longer.
const CLAIMS: &[Feature] = &[Feature::Preprocess, Feature::Queue, Feature::Prefill, Feature::Forward];

fn check(case: &Case<'_>) -> Option<Sign> {
    let (feature, longer) = longer(case)?;
    let slower =
        CLAIMS.iter().any(|stage| case.grown(*stage).is_some()) || case.grown(Feature::Ttft).is_some();
    if !slower {
        return None;
    }
    let unit = if feature.unit() == Unit::Tokens { "tokens" } else { "bytes" };
    let mut evidence: Vec<_> = [case.mean(feature), case.p95(feature)].into_iter().flatten().collect();
    evidence.extend(case.mean(Feature::Prefill).or_else(|| case.mean(Feature::Forward)));
    evidence.extend(case.mean(Feature::PrefillRate));
    Some(Sign {
        summary: format!(
            "inputs have {:.0} {unit} on average, usually {:.0}; the 95th percentile is {:.0}, usually {:.0}",
            longer.now.mean, longer.usual.mean, longer.now.p95, longer.usual.p95
        ),
        evidence,
        confidence: Likelihood::High,
        effect: Effect::Seconds(case.added_all_s(CLAIMS)),
    })
}

fn longer(case: &Case<'_>) -> Option<(Feature, Growth)> {
    let tail = |feature| {
        let both = case.both(feature)?;
        (both.now.p95 >= both.usual.p95 * LONGER && both.ratio() >= 1.1).then_some(both)
    };
    [Feature::InputTokens, Feature::BodyBytes]
        .into_iter()
        .find_map(|feature| Some((feature, case.risen(feature, LONGER).or_else(|| tail(feature))?)))
}
