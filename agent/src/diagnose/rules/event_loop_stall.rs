//! The server does not read what has arrived, or does not get to its handlers.

use super::{Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Sign, time},
    feature::Feature,
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "event_loop_stall",
    kind: Kind::Cause,
    help: "requests wait to be read, or for what is done before the engine gets them, while the engine has time",
    next: "look for blocking work on the event loop or a full thread pool: tokenizing long prompts, templates, images, logs",
    scope: Scope::Service,
    immediate: false,
    check,
};

/// What it makes longer.
const CLAIMS: &[Feature] = &[Feature::AcceptWait, Feature::Preprocess, Feature::NetworkIn];

fn check(case: &Case<'_>) -> Option<Sign> {
    let stages = [Feature::AcceptWait, Feature::Preprocess];
    let (stage, grown) = stages.into_iter().find_map(|stage| Some((stage, case.grown(stage)?)))?;
    let longer = case.risen(Feature::InputTokens, 1.4).is_some();
    let evidence = [
        case.mean(Feature::AcceptWait),
        case.p95(Feature::AcceptWait),
        case.mean(Feature::Preprocess),
        case.mean(Feature::Utilization),
        case.mean(Feature::Cpu),
    ];
    Some(Sign {
        summary: format!(
            "{}: {} on average, usually {}; the engine is not what they wait for",
            stage.text(),
            time(grown.now.mean),
            time(grown.usual.mean)
        ),
        evidence: evidence.into_iter().flatten().collect(),
        // Longer inputs alone take longer to prepare.
        confidence: if longer { Likelihood::Low } else { Likelihood::High },
        effect: Effect::Seconds(case.added_all_s(CLAIMS)),
    })
}
