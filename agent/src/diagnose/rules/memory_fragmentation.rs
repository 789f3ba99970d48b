//! Memory is free, and not in one piece.

use super::{Rule, Scope, engine_s};
use crate::{
    diagnose::{
        case::{Case, Effect, Sign, fact, size, time},
        feature::{Feature, Unit},
        finding::{Kind, Likelihood},
    },
    memory::{Failure, FailureClass, Incident},
};

pub(super) const RULE: Rule = Rule {
    name: "memory_fragmentation",
    kind: Kind::Cause,
    help: "an allocation failed although as much was free on the device at that instant, or an allocator gives back and \
           retries for that reason",
    next: "restart the service or move it to another GPU; look what ran there before (stagelens changes), and whether \
           the allocator can use expandable segments",
    scope: Scope::Service,
    immediate: true,
    check,
};

fn check(case: &Case<'_>) -> Option<Sign> {
    let mut failed: Vec<&Failure> = Vec::new();
    let mut storms = 0_u64;
    for incident in case.around.incidents(case.now_ns) {
        match incident {
            Incident::Failure(failure) if failure.class == FailureClass::Fragmented => failed.push(failure),
            Incident::Failure(_) => {}
            Incident::Storm(_) => storms += 1,
        }
    }
    let last = failed.first()?;
    let added = engine_s(case);
    let free = last.free_bytes.unwrap_or_default();
    let mut evidence = vec![
        fact("allocations that failed, of the last 30 s", failed.len() as f64, Unit::Count),
        fact("smallest that failed", last.smallest_failure_bytes as f64, Unit::Bytes),
        fact("free on the device then", free as f64, Unit::Bytes),
    ];
    let largest = last.largest_success_bytes;
    evidence.extend(largest.map(|most| fact("largest that succeeded lately", most as f64, Unit::Bytes)));
    if storms > 0 {
        evidence.push(fact("rounds of giving back and retrying", storms as f64, Unit::Count));
    }
    evidence.extend(case.mean(Feature::AllocWait));
    evidence.extend(case.mean(Feature::Utilization));
    Some(Sign {
        summary: format!(
            "the GPU's memory is in pieces: {} cannot be had although {} is free; forward takes {} more",
            size(last.smallest_failure_bytes),
            size(free),
            time(added)
        ),
        evidence,
        confidence: Likelihood::High,
        effect: Effect::Seconds(added),
    })
}
