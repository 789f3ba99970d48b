//! The clocks of the GPU are held back.

use super::{ENGINE, Rule, Scope};
use crate::{
    decode::Throttle,
    diagnose::{
        around::OnDevice,
        case::{Case, Effect, Sign, fact, time},
        feature::{Feature, Unit},
        finding::{Kind, Likelihood},
    },
    names::listed,
};

pub(super) const RULE: Rule = Rule {
    name: "thermal_or_power_throttle",
    kind: Kind::Cause,
    help: "the driver says that temperature or power hold the clocks back, and steps take longer",
    next: "look at cooling, power limit and neighbours in the chassis; stagelens gpu shows clocks and reasons",
    scope: Scope::Service,
    immediate: false,
    check,
};

fn check(case: &Case<'_>) -> Option<Sign> {
    let hot = |device: &&OnDevice| device.throttle.iter().any(|reason| *reason != Throttle::SyncBoost);
    let device = case.around.devices.iter().find(hot)?;
    let slower = case.risen(Feature::Step, 1.15);
    let clock = case.both(Feature::SmClock).filter(|both| both.now.mean < both.usual.mean * 0.95);
    if slower.is_none() && clock.is_none() && case.usual.is_some() {
        return None;
    }
    let mut evidence: Vec<_> = case.mean(Feature::SmClock).into_iter().collect();
    let degrees = device.temperature_celsius;
    evidence.extend(degrees.map(|degrees| fact("temperature, degrees Celsius", f64::from(degrees), Unit::Count)));
    evidence.extend(case.mean(Feature::Step));
    let added = case.added_all_s(ENGINE);
    Some(Sign {
        summary: format!(
            "the clocks of {} are held back by {}; requests take {} more in the engine",
            device.model.as_deref().unwrap_or(&device.uuid),
            listed(&device.throttle),
            time(added)
        ),
        evidence,
        confidence: if slower.is_some() { Likelihood::High } else { Likelihood::Medium },
        effect: Effect::Seconds(added),
    })
}
