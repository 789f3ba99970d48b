//! One service runs on GPUs of different models.

use std::collections::BTreeSet;

use super::{ENGINE, Rule, Scope};
use crate::diagnose::{
    case::{Case, Effect, Sign, fact},
    feature::Unit,
    finding::{Kind, Likelihood},
};

pub(super) const RULE: Rule = Rule {
    name: "wrong_gpu_model_mix",
    kind: Kind::Cause,
    help: "processes of one service have work on GPUs of different models, which are not equally fast",
    next: "pin the service to one model (node selector, device plugin); compare by gpu_model before anything else",
    scope: Scope::Service,
    immediate: true,
    check,
};

fn check(case: &Case<'_>) -> Option<Sign> {
    let models: BTreeSet<&str> =
        case.around.devices.iter().filter_map(|device| device.model.as_deref()).collect();
    if models.len() < 2 {
        return None;
    }
    let paces = case.around.paces.iter().filter_map(|(pid, pace)| Some((pid, pace.means()?.0)));
    let mut evidence: Vec<_> =
        paces.map(|(pid, mean)| fact(format!("step of process {pid}, mean"), mean, Unit::Seconds)).collect();
    let (slow, fast) = evidence.iter().fold((0.0_f64, f64::INFINITY), |(slow, fast), each| {
        (slow.max(each.value), fast.min(each.value))
    });
    evidence.push(fact("models of GPU", models.len() as f64, Unit::Count));
    let differ = slow > fast * 1.1;
    Some(Sign {
        summary: format!("it runs on {}", models.into_iter().collect::<Vec<_>>().join(" and on ")),
        evidence,
        confidence: if differ { Likelihood::High } else { Likelihood::Low },
        effect: Effect::Seconds(case.added_all_s(ENGINE)),
    })
}
