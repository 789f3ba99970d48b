//! One process that uses a GPU.

use std::collections::{BTreeMap, VecDeque};

use wire::cuda;

use crate::{
    decode::{GpuProcessSeen, ProcessSeen},
    health::Health,
    placement::Place,
    role::{self, Evidence, Role, Signals},
};

/// Contexts of one process that are told apart; further ones count with context 0.
const MAX_LANES: usize = 16;
/// Steps of a context that wait for its device.
const MAX_PENDING: usize = 16_384;
/// Steps after which the regularity is looked at anew.
const REGULARITY_STEPS: u64 = 1_000;

/// Steps after which the older ones count half: what a server did before its first request is not its role for ever.
const ROLE_STEPS: u64 = 1_000;

/// Requests of a service.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requests {
    pub(super) count: u64,
    pub(super) with_steps: u64,
    pub(super) listens: bool,
}

/// What is known of a process.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) start_ticks: u64,
    /// Start of the one that had its number before, of which more word may come.
    pub(super) before_ticks: u64,
    /// Key of its service, and its name for people, which others may have as well.
    pub(super) service: String,
    pub(super) workload: String,
    pub(super) comm: Option<String>,
    pub(super) container: Option<String>,
    pub(super) pod: Option<String>,
    pub(super) role: Role,
    pub(super) evidence: Vec<Evidence>,
    /// By context.
    pub(super) lanes: BTreeMap<u64, Lane>,
    steps: u64,
    /// Of late: steps, and those while no request was in flight.
    late_steps: u64,
    idle_steps: u64,
    regularity: Regularity,
    /// Result of the last step.
    pub(super) last_ns: u64,
    pub(super) ended_ns: Option<u64>,
}

/// The steps of one context.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) place: Option<Place>,
    pending: VecDeque<cuda::Step>,
    pub(super) steps: u64,
    pub(super) active_ns: u64,
}

impl Lane {
    /// The next step that has a device, or that has waited for one since before `limit`.
    pub(super) fn next(&mut self, placed: bool, limit: u64) -> Option<cuda::Step> {
        let is_due = |step: &cuda::Step| placed || step.header.time_ns <= limit;
        self.pending.pop_front_if(|step| is_due(step))
    }
}

/// Mean and deviation of the time between results, by Welford's method, over the last block of steps.
#[derive(Clone, Copy, Debug, Default)]
struct Regularity {
    last_ns: u64,
    count: u64,
    mean: f64,
    squares: f64,
    before: Option<(f64, u64)>,
}

impl Regularity {
    fn add(&mut self, at_ns: u64) {
        let last = std::mem::replace(&mut self.last_ns, at_ns);
        if last == 0 || at_ns <= last {
            return;
        }
        if self.count >= REGULARITY_STEPS {
            *self = Self { last_ns: at_ns, before: self.now(), ..Self::default() };
        }
        let gap = (at_ns - last) as f64;
        self.count += 1;
        let delta = gap - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (gap - self.mean);
    }

    fn now(&self) -> Option<(f64, u64)> {
        (self.count > 1).then(|| ((self.squares / self.count as f64).sqrt() / self.mean, self.count))
    }

    /// Of the last whole block, else of what there is.
    fn value(&self) -> Option<(f64, u64)> {
        self.before.or_else(|| self.now())
    }
}

impl Process {
    /// One of which nothing is known, but when the one started that had its number before.
    pub(super) fn after(before_ticks: u64) -> Self {
        Self { before_ticks, ..Self::default() }
    }

    pub(super) fn seen(&mut self, seen: &ProcessSeen) {
        self.start_ticks = seen.start_ticks;
        self.service.clone_from(&seen.service);
        self.workload.clone_from(&seen.service_name);
        self.comm = Some(seen.comm.clone());
        self.container.clone_from(&seen.container);
    }

    /// It runs another program: what the old one did says nothing of what this is for.
    pub(super) fn exec(&mut self) {
        (self.steps, self.late_steps, self.idle_steps) = (0, 0, 0);
        self.regularity = Regularity::default();
    }

    /// /proc tells that the process that started then is gone: this one?
    pub(super) fn is(&self, start_ticks: u64) -> bool {
        match self.start_ticks {
            0 => start_ticks != self.before_ticks || start_ticks == 0,
            own => own == start_ticks,
        }
    }

    pub(super) fn step(&mut self, alone: bool, step: &cuda::Step, health: &mut Health) {
        let end = step.header.time_ns;
        self.last_ns = self.last_ns.max(end);
        if step.work.launches > 0 || step.work.graphs > 0 {
            self.steps += 1;
            if self.late_steps >= ROLE_STEPS {
                self.late_steps /= 2;
                self.idle_steps /= 2;
            }
            self.late_steps += 1;
            self.idle_steps += u64::from(alone);
            self.regularity.add(end);
        }
        let room = self.lanes.len() < MAX_LANES || self.lanes.contains_key(&step.context);
        if !room {
            health.limit("contexts_of_process");
        }
        let lane = self.lanes.entry(if room { step.context } else { 0 }).or_default();
        lane.steps += 1;
        if lane.pending.len() >= MAX_PENDING {
            lane.pending.pop_front();
            health.limit("steps_unplaced");
        }
        lane.pending.push_back(*step);
    }

    pub(super) fn judge(&mut self, requests: Requests, seen: Option<&GpuProcessSeen>) {
        let signals = Signals {
            requests: requests.count,
            with_steps: requests.with_steps,
            listens: requests.listens,
            steps: self.late_steps,
            idle_steps: self.idle_steps,
            regularity: self.regularity.value(),
            signs: seen.map_or(&[], |seen| &seen.signs),
        };
        (self.role, self.evidence) = role::judge(&signals);
        if let Some(seen) = seen {
            self.pod.clone_from(&seen.pod);
        }
    }

    /// That it works on this device could be otherwise.
    pub(super) fn is_inferred(&self, device: &str) -> bool {
        let mut places = self.lanes.values().filter_map(|lane| lane.place.as_ref());
        places.any(|place| place.device == device && place.known.is_inferred())
    }

    /// Devices on which it had steps, as far as that is certain.
    pub(super) fn sure_devices(&self) -> impl Iterator<Item = &str> {
        let places = self.lanes.values().filter_map(|lane| lane.place.as_ref());
        places.filter(|place| !place.known.is_inferred()).map(|place| &*place.device)
    }

    /// Where it is, in a word: what tells it from another of its name.
    pub(super) fn at(&self, pid: u32) -> String {
        let short = |id: &String| id.get(..12).unwrap_or(id).to_owned();
        self.container.as_ref().map_or_else(|| pid.to_string(), short)
    }

    /// Steps with launches.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }
}

/// First launch of a step; where it is not known, the beginning of the wait.
pub(super) fn begin(step: &cuda::Step) -> u64 {
    let end = step.header.time_ns;
    let unknown = step.first_ns == 0 || step.first_ns > end;
    if unknown { step.enter_ns.min(end) } else { step.first_ns }
}
