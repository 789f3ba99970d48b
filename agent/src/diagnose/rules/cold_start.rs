//! The service has just started, or loaded its model anew.

use super::{Rule, Scope};
use crate::diagnose::{
    around::WINDOW_NS,
    case::{Case, Effect, Sign, fact, time},
    feature::{Feature, Unit},
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "cold_start",
    kind: Kind::Cause,
    help: "a process of the service has just started, and its first requests carry what is done once: loading kernels, \
           weights, graphs",
    next: "send a request of each shape before traffic does (warm-up); keep the model loaded; look why it was restarted \
           (stagelens changes)",
    scope: Scope::Service,
    immediate: true,
    check,
};

/// A service is cold for so long after its start, ns.
const COLD_NS: u64 = 2 * WINDOW_NS;
/// Share of the time of requests that loading takes.
const PART: f64 = 0.2;

fn check(case: &Case<'_>) -> Option<Sign> {
    let age_ns = case.now_ns.checked_sub(case.around.started_ns?)?;
    if age_ns > COLD_NS || case.recent.requests == 0 {
        return None;
    }
    let e2e = case.recent.stats(Feature::E2e)?;
    let load = case.recent.stats(Feature::ModuleLoad).map_or(0.0, |stats| stats.mean);
    let slower = case.grown(Feature::E2e).is_some();
    if load < e2e.mean * PART && !(slower && load > 0.0) {
        return None;
    }
    let mut evidence = vec![fact("since its newest process started", age_ns as f64 / 1e9, Unit::Seconds)];
    evidence.extend(case.mean(Feature::ModuleLoad));
    evidence.extend(case.mean(Feature::E2e));
    Some(Sign {
        summary: format!(
            "a process of it started {} ago; loading and compiling kernels takes {} of a request on average",
            time(age_ns as f64 / 1e9),
            time(load)
        ),
        evidence,
        confidence: Likelihood::High,
        effect: Effect::Seconds(load.max(case.added_e2e_s())),
    })
}
