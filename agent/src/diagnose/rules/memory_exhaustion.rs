//! There is no memory left.

use super::{Rule, Scope, engine_s};
use crate::{
    diagnose::{
        case::{Case, Effect, Sign, fact, size},
        feature::{Feature, Unit},
        finding::{Kind, Likelihood},
    },
    memory::{Failure, FailureClass, Incident},
};

pub(super) const RULE: Rule = Rule {
    name: "memory_exhaustion",
    kind: Kind::Cause,
    help: "an allocation failed because what the service itself, or others on the device, hold leaves no room",
    next: "stagelens gpu shows who holds how much; lower the service's share or cache, or move the other process",
    scope: Scope::Service,
    immediate: true,
    check,
};

fn check(case: &Case<'_>) -> Option<Sign> {
    let is_it = |failure: &&Failure| {
        matches!(failure.class, FailureClass::ExhaustedSelf | FailureClass::ExhaustedOthers)
    };
    let failures = case.around.incidents(case.now_ns).filter_map(|incident| match incident {
        Incident::Failure(failure) => Some(failure),
        Incident::Storm(_) => None,
    });
    let failed: Vec<&Failure> = failures.filter(is_it).collect();
    let last = failed.first()?;
    let mut evidence = vec![
        fact("allocations that failed, of the last 30 s", failed.len() as f64, Unit::Count),
        fact("asked for", last.requested_bytes as f64, Unit::Bytes),
        fact("held by the service's process", last.own_bytes as f64, Unit::Bytes),
        fact("held by others", last.others_bytes as f64, Unit::Bytes),
    ];
    evidence.extend(last.free_bytes.map(|free| fact("free then", free as f64, Unit::Bytes)));
    evidence.extend(case.mean(Feature::AllocWait));
    let holder = last.holders.first().filter(|_| last.class == FailureClass::ExhaustedOthers);
    let who = match holder {
        Some(it) => {
            let name = it.comm.as_deref().unwrap_or("a process");
            format!("{name} (process {}) holds {}", it.pid, size(it.bytes))
        }
        None if last.class == FailureClass::ExhaustedOthers => "other processes hold the rest".into(),
        None => format!("it holds {} itself", size(last.own_bytes)),
    };
    Some(Sign {
        summary: format!("{} of GPU memory cannot be had: {who}", size(last.requested_bytes)),
        evidence,
        confidence: if last.partial { Likelihood::Medium } else { Likelihood::High },
        effect: Effect::Seconds(engine_s(case)),
    })
}
