//! Another process's kernels run between the service's own.

use super::{ENGINE, Rule, Scope};
use crate::{
    diagnose::{
        around::Company,
        case::{Case, Effect, Sign, fact, time},
        feature::{Feature, Unit},
        finding::{Kind, Likelihood},
    },
    names::name,
};

pub(super) const RULE: Rule = Rule {
    name: "gpu_contention",
    kind: Kind::Cause,
    help: "steps of the GPU take longer while another process has work there, and that one has had work lately",
    next: "stagelens gpu shows who it is; move or cap the other process, or give each a MIG instance",
    scope: Scope::Service,
    immediate: false,
    check,
};

/// Steps this much longer.
const INFLATED: f64 = 1.1;
/// For so long of the last half minute, seconds.
const OVERLAP_S: [f64; 2] = [1.5, 0.5];

fn check(case: &Case<'_>) -> Option<Sign> {
    let is_it = |it: &&Company| {
        it.inflation_ratio.is_some_and(|ratio| ratio >= INFLATED)
            && it.overlap_s >= OVERLAP_S[usize::from(case.open)]
    };
    let worst =
        case.around.company.iter().filter(is_it).max_by(|a, b| a.overlap_s.total_cmp(&b.overlap_s))?;
    let ratio = worst.inflation_ratio?;
    let other = &worst.aggressor;
    let role = name(other.role);
    let who = other.comm.as_deref().unwrap_or(&other.workload);
    let added = case.added_all_s(ENGINE);
    let mut evidence = vec![
        fact(format!("steps beside {who} against steps alone"), ratio, Unit::Ratio),
        fact("both had work on the device, of the last 30 s", worst.overlap_s, Unit::Seconds),
    ];
    evidence.extend([Feature::Step, Feature::Queue].iter().filter_map(|feature| case.mean(*feature)));
    evidence.extend(case.mean(Feature::Utilization));
    Some(Sign {
        summary: format!(
            "{who} (process {}, {role}, of {}) works on the same GPU: steps take {ratio:.2} times as long \
             beside it, requests {} more",
            other.pid,
            other.workload,
            time(added)
        ),
        evidence,
        confidence: if worst.inferred { Likelihood::Medium } else { Likelihood::High },
        effect: Effect::Seconds(added),
    })
}
