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

fn check(case: &Case<'_>) -> Option<Sign> {
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
    let middle = *others.get(others.len() / 2)?;
    let ratio = now / usual / middle;
    if ratio < SLOWER[usize::from(case.open)] {
        return None;
    }
    let added = case.added_all_s(ENGINE);
    let mut slow = fact(format!("step of process {pid}, mean"), now, Unit::Seconds);
    slow.usual = Some(usual);
    let mut evidence =
        vec![slow, fact("the others' steps against what is usual for them", middle, Unit::Ratio)];
    evidence.extend(case.mean(Feature::Decode));
    Some(Sign {
        summary: format!(
            "process {pid} is the slow one of {}: its steps take {}, usually {}",
            paces.len(),
            time(now),
            time(usual)
        ),
        evidence,
        confidence: Likelihood::Medium,
        effect: Effect::Seconds(added),
    })
}
