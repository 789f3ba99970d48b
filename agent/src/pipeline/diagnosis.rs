//! What diagnosis is told of, and when it looks.

use wire::Header;
use zerocopy::FromBytes as _;

use super::{Output, Pipeline};
use crate::{
    coverage::RareKind,
    decode::{Event, Observation},
    diagnose::{Diagnosis, SavedState, Sight},
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
    let Event::Observation(at, observation) = event else { return };
    match &**observation {
        Observation::Process(seen) => {
            diagnosis.met(&seen.service_name, [seen.pid.into(), seen.start_ticks], at.time_ns, health);
        }
        Observation::ServiceUse(used) => diagnosis.used(used, at.time_ns),
        _ => {}
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

impl Pipeline {
    /// What was found, the time line, and what is usual.
    pub fn diagnosis(&self) -> &Diagnosis {
        &self.diagnosis
    }

    /// Takes up what was usual before a restart; `false` where that is of another format.
    pub fn restore(&mut self, state: SavedState) -> bool {
        self.diagnosis.restore(state)
    }

    pub(super) fn diagnose(&mut self, now_ns: u64, wall_ns: Option<u64>) {
        if !self.diagnosis.is_due(now_ns) {
            return;
        }
        let (in_flight, waiting) = (self.in_flight(), self.waiting());
        let sight = Sight {
            now_ns,
            wall_ns,
            devices: &self.devices,
            occupancy: self.occupancy.view(),
            coverage: &self.coverage,
            in_flight: &in_flight,
            waiting: &waiting,
        };
        self.diagnosis.tick(sight, &mut self.health);
    }
}
