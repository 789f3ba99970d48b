//! The client, or the network to it, takes the answer slowly.

use super::{Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Sign, time},
    feature::Feature,
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "slow_client",
    kind: Kind::Cause,
    help: "the server is kept from writing by a full socket, or answers are acknowledged late",
    next: "the server is not to blame: look at the client, its proxy and the network; round-trip times and retransmits are \
           in the records",
    scope: Scope::Service,
    immediate: false,
    check,
};

fn check(case: &Case<'_>) -> Option<Sign> {
    let stages = [Feature::NetworkOut, Feature::Delivery];
    let (stage, grown) = stages.into_iter().find_map(|stage| Some((stage, case.grown(stage)?)))?;
    let evidence =
        [case.mean(Feature::NetworkOut), case.p95(Feature::NetworkOut), case.mean(Feature::Delivery), case.p95(Feature::Delivery)];
    let added = case.added_s(Feature::NetworkOut).max(case.added_s(Feature::Delivery));
    Some(Sign {
        summary: format!(
            "answers leave slowly: {} {} on average, usually {}",
            stage.text(),
            time(grown.now.mean),
            time(grown.usual.mean)
        ),
        evidence: evidence.into_iter().flatten().collect(),
        confidence: Likelihood::High,
        effect: Effect::Seconds(added),
    })
}
