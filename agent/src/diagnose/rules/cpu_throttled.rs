//! The container has used up its CPU quota.

use super::{Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Sign},
    feature::Feature,
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "cpu_throttled",
    kind: Kind::Cause,
    help: "the kernel stops the container's processes in a good part of the periods, and requests take longer",
    next: "raise the CPU limit of the container, or take it away; compare threads with the quota",
    scope: Scope::Service,
    immediate: false,
    check,
};

/// Share of periods.
const PART: [f64; 2] = [0.2, 0.1];

fn check(case: &Case<'_>) -> Option<Sign> {
    let now = case.now(Feature::CpuThrottled)?;
    let usual = case.usually(Feature::CpuThrottled).map_or(0.0, |usual| usual.mean);
    let is_slower = case.added_e2e_s() >= case.least_s();
    if now.mean < PART[usize::from(case.open)] || now.mean < usual * 1.3 || !is_slower {
        return None;
    }
    let evidence = [
        case.mean(Feature::CpuThrottled),
        case.mean(Feature::Cpu),
        case.mean(Feature::HostGap),
        case.mean(Feature::E2e),
    ];
    Some(Sign {
        summary: format!(
            "the container was stopped for its CPU quota in {:.0} % of the periods, usually in {:.0} %",
            now.mean * 100.0,
            usual * 100.0
        ),
        evidence: evidence.into_iter().flatten().collect(),
        confidence: Likelihood::High,
        effect: Effect::Seconds(case.added_e2e_s()),
    })
}
