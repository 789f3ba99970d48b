//! A long prompt is worked on in one piece while others wait for their next token.

use super::{Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Sign, time},
    feature::Feature,
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "prefill_blocks_decode",
    kind: Kind::Cause,
    help: "streams stall for as long as the prefill of a much longer prompt takes, while their other gaps are as usual",
    next: "chunked prefill, or a lower limit of tokens in a batch; long prompts on replicas of their own",
    scope: Scope::Model,
    immediate: false,
    check,
};

/// The longest prefills against the usual ones.
const LONGER: f64 = 2.0;
/// A stall is as long as the prefill that makes it, within this.
const ALIKE: [f64; 2] = [0.4, 2.5];

/// What it makes longer.
const CLAIMS: &[Feature] = &[Feature::Decode, Feature::Queue];

fn check(case: &Case<'_>) -> Option<Sign> {
    let stall = case.grown(Feature::TbtMax)?;
    let prefill = case.both(Feature::Prefill)?;
    let gaps = case.both(Feature::Tbt)?;
    let longest = prefill.now.p99;
    let ratio = stall.now.p95 / longest.max(1e-9);
    let is_it = longest >= prefill.usual.p95 * LONGER
        && (ALIKE[0]..=ALIKE[1]).contains(&ratio)
        && gaps.now.p50 <= gaps.usual.p50 * 1.5;
    if !is_it {
        return None;
    }
    let evidence = [
        case.p95(Feature::TbtMax),
        case.p95(Feature::Prefill),
        case.p95(Feature::InputTokens),
        case.mean(Feature::Tbt),
    ];
    Some(Sign {
        summary: format!(
            "streams stall for {} (95th percentile of the longest gap, usually {}) while prompts of others are worked on, \
             which takes up to {}",
            time(stall.now.p95),
            time(stall.usual.p95),
            time(longest)
        ),
        evidence: evidence.into_iter().flatten().collect(),
        confidence: Likelihood::Medium,
        // Long prompts with short answers make the mean decode shorter; the stalls are there all the same.
        effect: Effect::Seconds(case.added_all_s(CLAIMS).max(case.added_s(Feature::TbtMax))),
    })
}
