//! The server does not read what has arrived, or does not get to its handlers.

use super::{BEFORE_ENGINE, Rule, Scope};
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

/// Whether requests wait although the engine has room for them: it has no more to do than usual, and does it as fast. The
/// time in which it works for others is queue to who looks from outside, whoever it is that has the request.
fn waits_for_nothing(case: &Case<'_>) -> bool {
    let same = |feature, most| case.both(feature).is_none_or(|both| both.ratio() <= most);
    let load = [Feature::InFlight, Feature::BatchSize, Feature::InputTokens, Feature::OutputTokens];
    same(Feature::Step, 1.2) && load.into_iter().all(|feature| same(feature, 1.2)) && case.now(Feature::BatchSize).is_some()
}

fn check(case: &Case<'_>) -> Option<Sign> {
    // An engine that stops between its steps lets requests wait as well.
    if case.grown(Feature::HostGap).is_some() {
        return None;
    }
    let before = [Feature::AcceptWait, Feature::Preprocess].into_iter();
    let queue = waits_for_nothing(case).then_some(Feature::Queue);
    let (stage, grown) = before.chain(queue).find_map(|stage| Some((stage, case.grown(stage)?)))?;
    let claims: Vec<Feature> = BEFORE_ENGINE.iter().copied().chain(queue).collect();
    let longer = case.risen(Feature::InputTokens, 1.4).is_some();
    let evidence = [
        case.mean(Feature::AcceptWait),
        case.p95(Feature::AcceptWait),
        case.mean(Feature::Preprocess),
        queue.and_then(|queue| case.mean(queue)),
        queue.and(case.mean(Feature::BatchSize)),
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
        confidence: match stage {
            _ if longer => Likelihood::Low,
            Feature::Queue => Likelihood::Medium,
            _ => Likelihood::High,
        },
        effect: Effect::Seconds(case.added_all_s(&claims)),
    })
}
