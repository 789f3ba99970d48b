//! [6] Why requests are slow or fail: what has moved against what is usual, what explains it, and what changed before.
//!
//! | module | knows |
//! |---|---|
//! | [`feature`] | the numbers that are watched |
//! | [`window`] | their distributions lately |
//! | [`baseline`] | what they usually are |
//! | [`around`] | what goes on beside the requests |
//! | [`case`] | one subject at one moment, as a rule looks at it |
//! | [`rules`] | the fingerprints |
//! | [`watch`] | how findings open, go on and close |
//! | [`changes`] | the time line |
//! | [`capacity`] | how much more a model can take |
//!
//! A subject is a service, or one model of it. Every two seconds each rule looks at each subject. Means of stages add up to
//! the mean of a request, so what a stage has gained is what it explains of what requests have gained: by that findings
//! are ordered, causes before what follows from them.

mod around;
mod baseline;
pub mod capacity;
mod case;
mod changes;
mod feature;
mod finding;
mod rules;
mod subject;
mod watch;
mod window;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use baseline::{Basis, Hour, Saved};
pub use changes::{Change, Changes, What};
pub use feature::{Feature, Unit};
pub use finding::{Evidence, Finding, Kind, Likelihood, SlowRequest, State};
pub use rules::{RULES, Rule};
pub use window::Stats;

use crate::{
    coverage::{Coverage, RareKind},
    decode::ServiceUse,
    device::Devices,
    health::Health,
    memory::Incident,
    occupancy::View,
    request::{RequestRecord, Waiting},
};
use around::{Around, Load};
use subject::Watched;
use watch::{Findings, Look, Now, Subject};

/// Services and models that are watched.
const MAX_SUBJECTS: usize = 256;
/// Time between two looks.
const LOOK_NS: u64 = 2_000_000_000;
/// A subject without requests is forgotten after this.
const SILENT_NS: u64 = 3_600_000_000_000;
/// A finding keeps its time out of the baseline for so long.
const FROZEN_NS: u64 = 3_600_000_000_000;
/// What is found within this of the first look was there before.
const SETTLING_NS: u64 = 5_000_000_000;
/// Format of the state file.
pub const STATE_VERSION: u32 = 1;

/// What the rest of the core knows at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// `CLOCK_MONOTONIC` ns.
    pub now_ns: u64,
    /// Nanoseconds since the Unix epoch, where known.
    pub wall_ns: Option<u64>,
    /// The GPUs.
    pub devices: &'a Devices,
    /// Who is on them.
    pub occupancy: &'a View,
    /// Whose work there is seen.
    pub coverage: &'a Coverage,
    /// Requests in flight, by service.
    pub in_flight: &'a BTreeMap<String, u64>,
    /// Of those, who waits for an engine.
    pub waiting: &'a BTreeMap<String, Waiting>,
}

/// What is kept over a restart: what is usual for each subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedState {
    /// [`STATE_VERSION`].
    pub version: u32,
    /// Service, model (absent for the whole service), and its hours.
    pub subjects: Vec<(String, Option<String>, Saved)>,
}

/// Everything that is watched, and what was found. Pure: time comes from events.
#[derive(Debug, Default)]
pub struct Diagnosis {
    services: BTreeMap<String, Around>,
    watched: BTreeMap<Subject, Watched>,
    findings: Findings,
    changes: Changes,
    /// Records seen and lost by the kernel side, as told at the last looks.
    losses: around::Losses,
    last_look_ns: u64,
    looks: u64,
    /// When the first process was seen.
    first_ns: Option<u64>,
    /// What a file told, until the subject is met.
    saved: BTreeMap<Subject, Saved>,
}

impl Diagnosis {
    /// Takes up what was usual before a restart. A state of another format is left.
    pub fn restore(&mut self, state: SavedState) -> bool {
        let readable = state.version == STATE_VERSION;
        if readable {
            let of = |(service, model, hours)| (Subject { service, model }, hours);
            self.saved = state.subjects.into_iter().take(MAX_SUBJECTS).map(of).collect();
        }
        readable
    }

    /// What is usual, for a file.
    pub fn save(&self) -> SavedState {
        let met = self.watched.iter().map(|(subject, watched)| (subject, watched.baseline.save()));
        let unmet = self.saved.iter().map(|(subject, hours)| (subject, hours.clone()));
        let flat =
            |(subject, hours): (&Subject, Saved)| (subject.service.clone(), subject.model.clone(), hours);
        let subjects = met.chain(unmet).filter(|(_, hours)| !hours.is_empty()).map(flat).collect();
        SavedState { version: STATE_VERSION, subjects }
    }

    /// The time line, to be told of events.
    pub fn changes_mut(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// The time line.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// All findings that are known, those that go on and explain most first.
    pub fn findings(&self) -> Vec<Finding> {
        self.findings.list()
    }

    /// A request is over.
    pub fn request(&mut self, record: &RequestRecord, now_ns: u64, health: &mut Health) {
        if let Some(model) = &record.model {
            self.changes.model(&record.service, model, now_ns);
        }
        for model in [None, Some(record.model.clone().unwrap_or_default())] {
            let subject = Subject { service: record.service.clone(), model };
            if let Some(watched) = self.watched(&subject, health) {
                watched.request(record, now_ns);
            }
        }
        self.service(&record.service, health);
    }

    /// A step of a process of a service, in seconds.
    pub fn step(&mut self, service: &str, pid: u32, seconds: f64, now_ns: u64, health: &mut Health) {
        let whole = Subject { service: service.to_owned(), model: None };
        if let Some(watched) = self.watched.get_mut(&whole) {
            watched.window.add(Feature::Step, seconds, now_ns);
        }
        if let Some(service) = self.service(service, health) {
            service.step(pid, seconds, now_ns);
        }
    }

    /// An allocation failed, or an allocator retried.
    pub fn incident(&mut self, service: &str, incident: &Incident, now_ns: u64, health: &mut Health) {
        if let Some(service) = self.service(service, health) {
            service.incident(incident.clone(), now_ns);
        }
    }

    /// Kernels were loaded or compiled.
    pub fn loaded(&mut self, service: &str, kind: RareKind, seconds: f64, now_ns: u64, health: &mut Health) {
        self.changes.loaded(service, kind, seconds, now_ns);
        if let Some(service) = self.service(service, health) {
            service.load(Load { at_ns: now_ns, kind, seconds });
        }
    }

    /// A process of a service was seen, with its id and start time: one that is new has started, unless the agent came
    /// later.
    pub fn met(&mut self, service: &str, process: [u64; 2], now_ns: u64, health: &mut Health) {
        let first_ns = *self.first_ns.get_or_insert(now_ns);
        let Some(service) = self.service(service, health) else { return };
        if service.meet(process) && now_ns > first_ns.saturating_add(SETTLING_NS) {
            service.started_ns = Some(now_ns);
        }
    }

    /// What the processes of a service have used in all.
    pub fn used(&mut self, used: &ServiceUse, now_ns: u64) {
        let whole = Subject { service: used.service.clone(), model: None };
        if let Some(watched) = self.watched.get_mut(&whole) {
            watched.used(used, now_ns);
        }
    }

    fn service(&mut self, name: &str, health: &mut Health) -> Option<&mut Around> {
        if self.services.len() >= MAX_SUBJECTS && !self.services.contains_key(name) {
            health.limit("diagnosed_services");
            return None;
        }
        Some(self.services.entry(name.to_owned()).or_default())
    }

    fn watched(&mut self, subject: &Subject, health: &mut Health) -> Option<&mut Watched> {
        if !self.watched.contains_key(subject) {
            if self.watched.len() >= MAX_SUBJECTS {
                health.limit("diagnosed_subjects");
                return None;
            }
            let saved = self.saved.remove(subject);
            self.watched.insert(subject.clone(), Watched::new(saved));
        }
        self.watched.get_mut(subject)
    }

    /// Whether it is time for a look: every two seconds.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.last_look_ns.saturating_add(LOOK_NS)
    }

    /// Looks at everything.
    pub fn tick(&mut self, sight: Sight<'_>, health: &mut Health) {
        let now = Now { mono_ns: sight.now_ns, wall_ns: sight.wall_ns.unwrap_or(0) };
        self.losses.told(health, sight.now_ns);
        for (name, around) in &mut self.services {
            around.see(name, sight, self.losses.lately());
            if let Some(whole) = self.watched.get_mut(&Subject { service: name.clone(), model: None }) {
                whole.sample(name, around, sight);
            }
        }
        self.look(now, health);
        self.forget_silent(now);
        self.last_look_ns = sight.now_ns;
        self.looks += 1;
    }

    /// How often everything was looked at: nothing that is told changes in between.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    fn look(&mut self, now: Now, health: &mut Health) {
        for (subject, watched) in &mut self.watched {
            let frozen = self
                .findings
                .oldest(subject)
                .is_some_and(|since| now.mono_ns.saturating_sub(since) < FROZEN_NS);
            watched.pass(self.last_look_ns, now, frozen);
            if now.mono_ns > watched.last_ns.saturating_add(around::WINDOW_NS * 4) {
                // Without requests there is nothing to compare; what is open goes out.
                self.findings.quiet(subject, now);
                continue;
            }
            let Some(service) = self.services.get(&subject.service) else { continue };
            let recent = watched.recent(now.mono_ns);
            let mut case = watched.case(&recent, service, now.mono_ns);
            let slow = watched.slow(now.mono_ns);
            let incomplete = case.incomplete();
            let added_s = case.gained_s();
            let look = Look {
                subject,
                now,
                basis: case.basis,
                added_s,
                incomplete: &incomplete,
                slow: &slow,
                changes: &self.changes,
            };
            for rule in rules::of(subject.model.is_some()) {
                case.open = self.findings.is_open(rule, subject);
                self.findings.look(rule, (rule.check)(&case), &look, health);
            }
        }
    }

    fn forget_silent(&mut self, now: Now) {
        let is_silent = |watched: &Watched| now.mono_ns > watched.last_ns.saturating_add(SILENT_NS);
        let gone: Vec<Subject> =
            self.watched.iter().filter(|(_, watched)| is_silent(watched)).map(|(of, _)| of.clone()).collect();
        for subject in gone {
            let Some(watched) = self.watched.remove(&subject) else { continue };
            self.saved.insert(subject.clone(), watched.baseline.save());
            if subject.model.is_none() {
                self.services.remove(&subject.service);
                self.findings.forget(&subject.service, now);
            }
        }
        while self.saved.len() > MAX_SUBJECTS {
            self.saved.pop_first();
        }
    }
}

#[cfg(test)]
mod tests;
