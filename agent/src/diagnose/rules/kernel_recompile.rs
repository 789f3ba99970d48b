//! Kernels are loaded or compiled while requests wait, in a service that runs for a while.

use super::{Rule, Scope, engine_part_s};
use crate::{
    coverage::RareKind,
    diagnose::{
        around::{Load, WINDOW_NS},
        case::{Case, Effect, Sign, fact, time},
        feature::{Feature, Unit},
        finding::{Kind, Likelihood},
    },
};

pub(super) const RULE: Rule = Rule {
    name: "kernel_recompile",
    kind: Kind::Cause,
    help: "kernels are loaded, compiled or captured anew within requests, though the service is warm",
    next: "look which shapes are new (input lengths, batch sizes); warm those up, or pad to fewer; an emptied compile \
           cache or a new driver does it as well",
    scope: Scope::Service,
    immediate: false,
    check,
};

/// As in `cold_start`: before, it is that.
const COLD_NS: u64 = 2 * WINDOW_NS;
/// Share of the time of requests that it takes.
const PART: [f64; 2] = [0.05, 0.02];

fn check(case: &Case<'_>) -> Option<Sign> {
    let is_cold = case.around.started_ns.is_some_and(|at| case.now_ns.saturating_sub(at) < COLD_NS);
    let e2e = case.now(Feature::E2e)?;
    let load = case.now(Feature::ModuleLoad)?;
    let usual = case.usually(Feature::ModuleLoad).map_or(0.0, |usual| usual.mean);
    let added = load.mean - usual;
    if is_cold || added < e2e.mean * PART[usize::from(case.open)] || added < case.least_s() / 2.0 {
        return None;
    }
    let loads: Vec<&Load> = case.around.loads(case.now_ns).filter(|it| it.kind != RareKind::Init).collect();
    let seconds: f64 = loads.iter().map(|load| load.seconds).sum();
    let mut evidence: Vec<_> = case.mean(Feature::ModuleLoad).into_iter().collect();
    evidence.push(fact("calls that load, compile or capture, of the last 30 s", loads.len() as f64, Unit::Count));
    evidence.push(fact("time in them", seconds, Unit::Seconds));
    evidence.extend(case.mean(Feature::E2e));
    Some(Sign {
        summary: format!(
            "kernels are loaded or compiled during requests: {} of each on average, {} calls in half a minute",
            time(load.mean),
            loads.len()
        ),
        evidence,
        confidence: Likelihood::High,
        effect: Effect::Seconds(engine_part_s(case, Feature::ModuleLoad).max(added)),
    })
}
