//! What is done with a result takes long: decoding, filtering, formatting, handing on.

use super::{Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Sign, time},
    feature::Feature,
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "postprocess_backpressure",
    kind: Kind::Cause,
    help: "the time from the result on the host to its writing has grown",
    next: "look at the detokenizer, filters, formatting and the front's CPU; a filter model may be slow itself",
    scope: Scope::Model,
    immediate: false,
    check,
};

fn check(case: &Case<'_>) -> Option<Sign> {
    let grown = case.grown(Feature::Postprocess)?;
    let evidence = [case.mean(Feature::Postprocess), case.p95(Feature::Postprocess), case.mean(Feature::Cpu)];
    Some(Sign {
        summary: format!(
            "{} pass from the last result to the last byte on average, usually {}",
            time(grown.now.mean),
            time(grown.usual.mean)
        ),
        evidence: evidence.into_iter().flatten().collect(),
        confidence: Likelihood::High,
        effect: Effect::Seconds(case.added_s(Feature::Postprocess)),
    })
}
