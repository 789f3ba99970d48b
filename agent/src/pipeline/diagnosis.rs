//! What diagnosis is told of.

use wire::Header;
use zerocopy::FromBytes as _;

use super::Output;
use crate::{
    coverage::RareKind,
    decode::{Event, Observation},
    diagnose::Diagnosis,
    health::Health,
    request::StepInfo,
};

/// When a record was made; 0 for one that is too short to say.
pub(super) fn time_of(record: &[u8]) -> u64 {
    Header::read_from_prefix(record).map_or(0, |(header, _)| header.time_ns)
}

/// Takes what changes on the node. Called before tracking uses an event up.
pub(super) fn event(diagnosis: &mut Diagnosis, event: &Event<'_>, health: &mut Health) {
    diagnosis.changes_mut().observe(event, health);
    if let Event::Observation(at, observation) = event
        && let Observation::Process(seen) = &**observation
    {
        diagnosis.met(&seen.service_name, [seen.pid.into(), seen.start_ticks], at.time_ns, health);
    }
}

/// Takes what the pipeline hands out.
pub(super) fn output(diagnosis: &mut Diagnosis, output: &Output, now_ns: u64, health: &mut Health) {
    match output {
        Output::Request(record) => diagnosis.request(record, now_ns, health),
        Output::Step { service, step } => {
            if let Some(seconds) = StepInfo::new(step).map(StepInfo::seconds) {
                diagnosis.step(service, step.header.tgid, seconds, now_ns, health);
            }
        }
        Output::Incident { service, incident } => diagnosis.incident(service, incident, now_ns, health),
        Output::Rare { service, rare } => {
            if let Some(kind) = RareKind::of(rare.class) {
                let seconds = rare.header.time_ns.saturating_sub(rare.enter_ns) as f64 / 1e9;
                diagnosis.loaded(service, kind, seconds, now_ns, health);
            }
        }
        Output::Told(_) | Output::Counted { .. } | Output::Memory { .. } | Output::WantWhole(_) => {}
    }
}
