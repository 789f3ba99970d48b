//! One kind of failure has become frequent.

use super::{Rule, Scope};
use crate::{
    diagnose::{
        case::{Case, Effect, Sign, fact},
        feature::Unit,
        finding::{Kind, Likelihood},
    },
    names::name,
    request::record::Outcome,
};

pub(super) const RULE: Rule = Rule {
    name: "error_class_spike",
    kind: Kind::Symptom,
    help: "a class of failures is more frequent than usual: 4xx, 5xx, errors within a stream, cut, empty or filtered answers, \
           clients that leave",
    next: "the class says where: 5xx and in_band_error the engine, truncated and empty_output the model and its limits, \
           client_4xx the callers, client_disconnect their patience",
    scope: Scope::Model,
    immediate: false,
    check,
};

const CLASSES: &[Outcome] = &[
    Outcome::Client4xx,
    Outcome::Server5xx,
    Outcome::ClientDisconnect,
    Outcome::Truncated,
    Outcome::ContentFilter,
    Outcome::EmptyOutput,
    Outcome::InBandError,
];
/// Failures that it takes, their share, and how much more than usual.
const LEAST: u64 = 3;
const PART: [f64; 2] = [0.05, 0.02];
const MORE: f64 = 3.0;

fn check(case: &Case<'_>) -> Option<Sign> {
    let spike = |class: &Outcome| {
        let is_it = |outcome| outcome == *class;
        let (share, usual) = case.share(is_it);
        let enough = case.count(is_it) >= LEAST && share >= PART[usize::from(case.open)];
        (enough && usual.is_none_or(|usual| share >= usual * MORE)).then_some((*class, share, usual))
    };
    let (class, share, usual) = CLASSES.iter().filter_map(spike).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let name = name(class);
    let mut rate = fact(format!("requests that ended as {name}"), share, Unit::Ratio);
    rate.usual = usual;
    let count = case.count(|outcome| outcome == class);
    Some(Sign {
        summary: format!(
            "{count} of {} requests ended as {name} ({:.0} %), usually {:.1} %",
            case.recent.requests,
            share * 100.0,
            usual.unwrap_or(0.0) * 100.0
        ),
        evidence: vec![rate, fact("of them", count as f64, Unit::Count)],
        confidence: Likelihood::High,
        effect: Effect::Share(share),
    })
}
