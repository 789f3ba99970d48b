//! Of what fails, more and more is time-outs.

use super::{Rule, Scope};
use crate::{
    diagnose::{
        case::{Case, Effect, Sign, fact},
        feature::{Feature, Unit},
        finding::{Kind, Likelihood},
    },
    request::record::Outcome,
};

pub(super) const RULE: Rule = Rule {
    name: "timeout_share_rising",
    kind: Kind::Symptom,
    help: "time-outs are a growing part of all failures, and not few",
    next: "an avalanche begins like this: look at queue and capacity before clients retry; shed load early",
    scope: Scope::Service,
    immediate: false,
    check,
};

/// Time-outs that it takes, and their share of the failures.
const LEAST: u64 = 3;
const PART: f64 = 0.3;

fn check(case: &Case<'_>) -> Option<Sign> {
    let is_timeout = |outcome| outcome == Outcome::Timeout;
    let is_error = |outcome| !matches!(outcome, Outcome::Ok | Outcome::Unknown);
    let (n, errors) = (case.count(is_timeout), case.count(is_error));
    let (share, usual) = case.share(is_timeout);
    let part = n as f64 / errors.max(1) as f64;
    if n < LEAST || part < PART || usual.is_some_and(|usual| share < usual * 2.0) {
        return None;
    }
    let mut rate = fact("requests that timed out", share, Unit::Ratio);
    rate.usual = usual;
    let mut evidence = vec![rate, fact("time-outs among failures", part, Unit::Ratio)];
    evidence.extend(case.mean(Feature::Queue));
    evidence.extend(case.mean(Feature::E2e));
    Some(Sign {
        summary: format!(
            "{n} of {} requests timed out ({:.0} %), {:.0} % of all failures",
            case.recent.requests,
            share * 100.0,
            part * 100.0
        ),
        evidence,
        confidence: Likelihood::High,
        effect: Effect::Share(share),
    })
}
