//! Of several ranks that run each step together, one is slower.

use super::{ENGINE, Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Sign, fact, time},
    feature::{Feature, Unit},
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "rank_straggler",
    kind: Kind::Cause,
    help: "the steps of one of several engine processes have become longer than those of the others",
    next: "look at that rank's GPU: clocks, temperature, link, a neighbour; the others wait for it at every step",
    scope: Scope::Service,
    immediate: false,
    check,
};

/// One against the median of the others, and against what that ratio usually is.
const SLOWER: [f64; 2] = [1.25, 1.1];

/// One process of a service whose steps have become longer than the others'.
struct Straggler {
    pid: u32,
    of: usize,
    now: f64,
    usual: f64,
    /// The others' steps against what is usual for them.
    others: f64,
}

/// Whether there is one: the others wait for it, and their GPUs for them.
pub(super) fn has_one(case: &Case<'_>) -> bool {
    find(case).is_some()
}

fn find(case: &Case<'_>) -> Option<Straggler> {
    let paces: Vec<(u32, f64, f64)> = case
        .around
        .paces
        .iter()
        .filter_map(|(pid, pace)| pace.means().map(|(now, usual)| (*pid, now, usual)))
        .collect();
    let (pid, now, usual) = *paces.iter().max_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2)))?;
    let mut others: Vec<f64> =
        paces.iter().filter(|(other, ..)| *other != pid).map(|(_, now, usual)| now / usual).collect();
    others.sort_by(f64::total_cmp);
    let others = *others.get(others.len() / 2)?;
    // It has become slower, not only the others quicker, as after an incident that has entered what is usual for them.
    let is_slower = now / usual / others.max(1.0) >= SLOWER[usize::from(case.open)];
    is_slower.then_some(Straggler { pid, of: paces.len(), now, usual, others })
}

fn check(case: &Case<'_>) -> Option<Sign> {
    let Straggler { pid, of, now, usual, others } = find(case)?;
    let mut slow = fact(format!("step of process {pid}, mean"), now, Unit::Seconds);
    slow.usual = Some(usual);
    let mut evidence =
        vec![slow, fact("the others' steps against what is usual for them", others, Unit::Ratio)];
    evidence.extend(case.mean(Feature::Decode));
    Some(Sign {
        summary: format!(
            "process {pid} is the slow one of {}: its steps take {}, usually {}",
            of,
            time(now),
            time(usual)
        ),
        evidence,
        confidence: Likelihood::Medium,
        effect: Effect::Seconds(case.added_all_s(ENGINE)),
    })
}
