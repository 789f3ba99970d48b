//! The GPU waits for the CPU.

use super::{Rule, Scope, engine_part_s, is_most_of, rank_straggler};
use crate::diagnose::{
    case::{Case, Effect, Sign, time},
    feature::Feature,
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "host_bound",
    kind: Kind::Cause,
    help: "the time between steps, in which the engine has nothing on the GPU, has grown",
    next: "look at the engine's CPU: sampling parameters, logits processors, tokenizer, a busy core; CUDA graphs and async \
           scheduling hide it",
    scope: Scope::Service,
    immediate: false,
    check,
};

/// Share of a request in which the GPU waits.
const PART: [f64; 2] = [0.15, 0.08];

fn check(case: &Case<'_>) -> Option<Sign> {
    let gap = case.grown(Feature::HostGap)?;
    let e2e = case.now(Feature::E2e)?;
    let part = gap.now.mean / e2e.mean.max(1e-9);
    // What the host does then has a name.
    let is_known = [Feature::AllocWait, Feature::ModuleLoad].iter().any(|it| is_most_of(case, *it, Feature::HostGap));
    // And what waits for another rank waits for its GPU, not for the host.
    if is_known || rank_straggler::has_one(case) || part < PART[usize::from(case.open)] {
        return None;
    }
    let evidence =
        [case.mean(Feature::HostGap), case.mean(Feature::Step), case.mean(Feature::Cpu), case.mean(Feature::Utilization)];
    Some(Sign {
        summary: format!(
            "the GPU waits for the host for {} of a request on average ({:.0} % of it), usually {}",
            time(gap.now.mean),
            part * 100.0,
            time(gap.usual.mean)
        ),
        evidence: evidence.into_iter().flatten().collect(),
        confidence: Likelihood::High,
        effect: Effect::Seconds(engine_part_s(case, Feature::HostGap)),
    })
}
