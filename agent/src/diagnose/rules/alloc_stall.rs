//! Requests wait in memory calls.

use super::{Rule, Scope, engine_part_s};
use crate::{
    diagnose::{
        case::{Case, Effect, Sign, fact, time},
        feature::{Feature, Unit},
        finding::{Kind, Likelihood},
    },
    memory::Incident,
};

pub(super) const RULE: Rule = Rule {
    name: "alloc_stall",
    kind: Kind::Cause,
    help: "a good part of the forward goes into calls that allocate or free memory, more than usual",
    next: "stagelens gpu shows memory and failures; a caching allocator that is too small, or that retries, does this",
    scope: Scope::Service,
    immediate: false,
    check,
};

/// Share of a request that memory calls take.
const PART: [f64; 2] = [0.1, 0.05];

fn check(case: &Case<'_>) -> Option<Sign> {
    let grown = case.grown(Feature::AllocWait)?;
    let e2e = case.now(Feature::E2e)?;
    let part = grown.now.mean / e2e.mean.max(1e-9);
    if part < PART[usize::from(case.open)] {
        return None;
    }
    // Then it is not the calls that are slow, but the memory that is not there.
    if case.around.incidents(case.now_ns).any(|it| matches!(it, Incident::Failure(_))) {
        return None;
    }
    let storms = case.around.incidents(case.now_ns).filter(|it| matches!(it, Incident::Storm(_))).count();
    let mut evidence: Vec<_> = case.mean(Feature::AllocWait).into_iter().collect();
    evidence.extend(case.p95(Feature::AllocWait));
    if storms > 0 {
        evidence.push(fact("rounds of giving back and retrying", storms as f64, Unit::Count));
    }
    let added = engine_part_s(case, Feature::AllocWait);
    Some(Sign {
        summary: format!(
            "memory calls take {} of a request on average ({:.0} % of it), usually {}",
            time(grown.now.mean),
            part * 100.0,
            time(grown.usual.mean)
        ),
        evidence,
        confidence: Likelihood::High,
        effect: Effect::Seconds(added),
    })
}
