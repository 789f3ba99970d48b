//! Who does what on a GPU, and in whose way, as text.

use std::{
    fmt::Write as _,
    time::{Duration, UNIX_EPOCH},
};

use crate::{
    contention::Verdict,
    export::{gpus::Activity, json},
    occupancy::{Contention, Neighbour, Party},
};

/// What a process does: its role, how long it was active, and what of it is a guess.
pub(super) fn activity(activity: &Activity) -> String {
    let mut line = format!("{}, active {:.1} s", json::name(activity.role), activity.active_s);
    if let Some(known) = activity.known.filter(|_| activity.inferred) {
        // Writing to a string does not fail.
        let _ = write!(line, ", on this device by {}", json::name(known));
    }
    line
}

/// What one process did to another.
pub(super) fn line(pair: &Contention) -> String {
    let (victim, aggressor) = (name(&pair.victim), name(&pair.aggressor));
    let overlap = pair.overlap_s;
    let effect = match (pair.verdict, pair.inflation_ratio) {
        (Verdict::Contended, Some(ratio)) => format!("steps of {victim} take x{ratio:.2}"),
        (_, Some(ratio)) => format!("steps of {victim} take as long as alone (x{ratio:.2})"),
        (_, None) => format!(
            "not enough steps of {victim} to tell what it does ({} alone, {} in company)",
            pair.solo_steps, pair.company_steps
        ),
    };
    let guess = if pair.inferred { "; that both are on this device is inferred" } else { "" };
    format!("beside {aggressor} for {overlap:.1} s: {effect}{guess}")
}

/// A training job beside a server, and when; it may be over.
pub(super) fn neighbour(event: &Neighbour) -> String {
    let (server, job) = (name(&event.inference), name(&event.training));
    let time = |ns| humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_nanos(ns));
    let when = match event.first_ns {
        0 => String::new(),
        first => format!(", seen from {} to {}", time(first), time(event.last_ns)),
    };
    format!("{job} works on {} beside {server}{when}", event.device)
}

fn name(party: &Party) -> String {
    let role = json::name(party.role);
    let place = match (&party.pod, &party.container) {
        (Some(pod), _) => format!(", pod {pod}"),
        (None, Some(container)) => format!(", container {}", container.get(..12).unwrap_or(container)),
        (None, None) => String::new(),
    };
    format!("{} ({role}, pid {}{place})", party.workload, party.pid)
}
