//! [5] Who is on each GPU: processes with their role, the time they were active, and who stands in whose way.
//!
//! | module | knows |
//! |---|---|
//! | [`process`] | what is known of one process, and its steps until it is known where they ran |
//! | [`neighbours`] | training jobs beside inference servers |
//! | [`view`] | what of it is shown |
//!
//! Steps wait here until the device of their context is known, for at most ten seconds: NVML lists a new process after a
//! second or two. Those whose device never becomes known count for the device `unknown`, and for no contention.

mod neighbours;
mod process;
mod view;

use std::collections::BTreeMap;

use wire::cuda;

pub use neighbours::{Neighbour, Neighbours, Party};
pub use view::{Active, Contention, OnDevice, Overlap, ProcessOnGpu, View};

use crate::{
    contention::Matrix,
    decode::{Event, Observation, ProcessSeen},
    device::Devices,
    health::Health,
    placement::Placements,
    request::RequestRecord,
    role::Role,
};
use process::{Process, Requests};

/// Processes with steps that are followed.
const MAX_PROCESSES: usize = 1024;
/// Devices whose processes are compared.
const MAX_DEVICES: usize = 256;
/// Label sets of active time and of overlap; what is beyond goes to [`OTHER`].
const MAX_LABELS: usize = 1024;
/// Services whose requests are counted.
const MAX_SERVICES: usize = 4096;
/// Label of what has no room of its own.
const OTHER: &str = "other";
/// Label of a device that is not known.
const UNKNOWN: &str = "unknown";
/// Time between two looks at everything.
const ROUND_NS: u64 = 1_000_000_000;
/// Steps of which it is not known where they ran are given up after this time.
const UNPLACED_NS: u64 = 10_000_000_000;
/// A process that ended is remembered for so long.
const ENDED_NS: u64 = 60_000_000_000;

/// State of all GPUs' processes. Pure: time comes from events.
#[derive(Debug, Default)]
pub struct Occupancy {
    placements: Placements,
    processes: BTreeMap<u32, Process>,
    matrices: BTreeMap<String, Matrix>,
    /// Requests by key of the service.
    requests: BTreeMap<String, Requests>,
    /// ns, by device, role and workload, and whether the device is inferred.
    active: BTreeMap<(String, Role, String, bool), u64>,
    /// ns, by device, victim and aggressor, and whether that either of them is on the device is inferred.
    overlaps: BTreeMap<(String, String, String, bool), u64>,
    neighbours: Neighbours,
    next_round_ns: u64,
    view: View,
}

impl Occupancy {
    /// Which device contexts are on.
    pub fn placements(&self) -> &Placements {
        &self.placements
    }

    /// Processes of a service (by key), as far as any is known.
    pub(crate) fn of_service(&self, service: &str) -> impl Iterator<Item = u32> {
        let of = self.processes.iter().filter(move |(_, process)| process.service == service);
        of.map(|(pid, _)| *pid)
    }

    /// Devices on which the process had steps since `from_ns`, as far as that is certain.
    pub(crate) fn devices(&self, pid: u32, from_ns: u64) -> impl Iterator<Item = &str> {
        let process = self.processes.get(&pid).filter(|process| process.last_ns >= from_ns);
        process.into_iter().flat_map(Process::sure_devices)
    }

    /// Takes what says something of processes and devices. Called before the event is used up by tracking.
    pub fn observe(&mut self, event: &Event<'_>, health: &mut Health) {
        self.placements.observe(event, health);
        match event {
            Event::Exit(record) => self.ended(record.header.tgid, record.header.time_ns),
            Event::Exec(record) => {
                if let Some(process) = self.processes.get_mut(&record.header.tgid) {
                    process.exec();
                }
            }
            Event::Observation(at, observation) => match &**observation {
                Observation::Process(seen) => {
                    let known = self.processes.contains_key(&seen.pid);
                    // One without a driver is of interest only while it stands for an older one.
                    if seen.cuda || known {
                        self.seen(seen, at.time_ns);
                    }
                    if !seen.ports.is_empty() {
                        self.requests_of(&seen.service).listens = true;
                    }
                    self.make_room(health);
                }
                Observation::ProcessGone { pid, start_ticks }
                    if self.processes.get(pid).is_some_and(|process| process.is(*start_ticks)) =>
                {
                    self.ended(*pid, at.time_ns);
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// A step of a process of a service (key and name); `alone` while no request of the service is in flight.
    pub fn step(&mut self, service: [&str; 2], alone: bool, step: &cuda::Step, health: &mut Health) {
        let (pid, end) = (step.header.tgid, step.header.time_ns);
        if self.processes.get(&pid).and_then(|one| one.ended_ns).is_some_and(|ended| ended < end) {
            self.anew(pid);
        }
        let process = self.processes.entry(pid).or_default();
        if process.workload.is_empty() {
            let [key, name] = service;
            key.clone_into(&mut process.service);
            name.clone_into(&mut process.workload);
        }
        process.step(alone, step, health);
        self.make_room(health);
    }

    /// A finished request, and the keys of the service that it came to and of the one behind that, if any.
    pub fn request(&mut self, record: &RequestRecord, service: Option<&str>, inner: Option<&str>) {
        if record.local_port.is_none() {
            return;
        }
        let has_steps = record.steps.is_some_and(|steps| steps > 0);
        let inner = inner.filter(|inner| Some(*inner) != service);
        for service in service.into_iter().chain(inner) {
            let requests = self.requests_of(service);
            requests.count += 1;
            requests.with_steps += u64::from(has_steps);
        }
    }

    /// Time has come this far: looks at everything about once a second.
    pub fn tick(&mut self, now_ns: u64, wall_ns: Option<u64>, devices: &Devices, health: &mut Health) {
        if now_ns < self.next_round_ns {
            return;
        }
        self.next_round_ns = now_ns.saturating_add(ROUND_NS);
        self.judge();
        self.place(now_ns, devices, health);
        self.compare(health, |matrix, health| matrix.evaluate(now_ns, health));
        self.neighbours.look(&self.processes, wall_ns.unwrap_or(0), now_ns);
        self.forget(now_ns);
        self.show();
    }

    /// Nothing more will come: what waits is given up or compared now.
    pub fn end(&mut self, now_ns: u64, devices: &Devices, health: &mut Health) {
        self.judge();
        self.place(now_ns, devices, health);
        self.place(u64::MAX, &Devices::default(), health);
        self.compare(health, |matrix, health| matrix.evaluate_until(now_ns, health));
        self.show();
    }

    /// What is to be shown, as of the last round.
    pub fn view(&self) -> &View {
        &self.view
    }

    fn seen(&mut self, seen: &ProcessSeen, at_ns: u64) {
        let known = self.processes.get(&seen.pid);
        let is_other = known.is_some_and(|one| match one.start_ticks {
            // Nobody told when it started: what is seen after its end is another.
            0 => one.ended_ns.is_some_and(|ended| ended < at_ns),
            own => own != seen.start_ticks,
        });
        if is_other {
            self.anew(seen.pid);
        }
        self.processes.entry(seen.pid).or_default().seen(seen);
    }

    /// Another process has this number now.
    fn anew(&mut self, pid: u32) {
        let before_ticks = self.processes.get(&pid).map_or(0, |process| process.start_ticks);
        self.remove(pid);
        self.processes.insert(pid, Process::after(before_ticks));
    }

    fn ended(&mut self, pid: u32, at_ns: u64) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.ended_ns.get_or_insert(at_ns);
        }
    }

    fn make_room(&mut self, health: &mut Health) {
        while self.processes.len() > MAX_PROCESSES {
            health.limit("occupancy_processes");
            let key = |(_, process): &(&u32, &Process)| (process.ended_ns.is_none(), process.last_ns);
            let Some(oldest) = self.processes.iter().min_by_key(key).map(|(pid, _)| *pid) else { return };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.matrices.values_mut().for_each(|matrix| matrix.forget(pid));
    }

    fn requests_of(&mut self, service: &str) -> &mut Requests {
        let known = self.requests.len() < MAX_SERVICES || self.requests.contains_key(service);
        self.requests.entry(if known { service } else { OTHER }.to_owned()).or_default()
    }

    fn judge(&mut self) {
        for (pid, process) in &mut self.processes {
            let requests = self.requests.get(&process.service).copied().unwrap_or_default();
            process.judge(requests, self.placements.seen(*pid));
        }
    }

    /// Hands steps over to the device on which they ran.
    fn place(&mut self, now_ns: u64, devices: &Devices, health: &mut Health) {
        let Self { placements, processes, matrices, active, .. } = self;
        let given_up = now_ns.saturating_sub(UNPLACED_NS);
        let others = |key: Option<(String, Role, String, bool)>| {
            let device = key.map_or_else(|| OTHER.to_owned(), |(device, ..)| device);
            (device, Role::Unknown, OTHER.to_owned(), true)
        };
        for (pid, process) in processes {
            for (context, lane) in &mut process.lanes {
                if process.ended_ns.is_none() || lane.place.is_none() {
                    let found = placements.place(*pid, *context, devices, now_ns);
                    lane.place = found.or(lane.place.take());
                }
                let name = lane.place.as_ref().map(|place| place.device.clone());
                let mut ns = 0;
                while let Some(step) = lane.next(name.is_some(), given_up) {
                    let more = if let Some(matrix) = matrix(matrices, name.as_deref()) {
                        matrix.add(*pid, process::begin(&step), &step, health)
                    } else {
                        health.limit("steps_without_device");
                        step.header.time_ns.saturating_sub(process::begin(&step))
                    };
                    ns = more.saturating_add(ns);
                }
                if ns > 0 {
                    lane.active_ns = lane.active_ns.saturating_add(ns);
                    let device = name.unwrap_or_else(|| UNKNOWN.to_owned());
                    let is_inferred = lane.place.as_ref().is_some_and(|place| place.known.is_inferred());
                    let key = (device, process.role, process.workload.clone(), is_inferred);
                    add(active, key, others, ns);
                }
            }
        }
    }

    fn compare(
        &mut self,
        health: &mut Health,
        evaluate: impl Fn(&mut Matrix, &mut Health) -> Vec<(u32, u32, u64)>,
    ) {
        let Self { matrices, processes, overlaps, .. } = self;
        let others = |key: Option<(String, String, String, bool)>| {
            let device = key.map_or_else(|| OTHER.to_owned(), |(device, ..)| device);
            (device, OTHER.to_owned(), OTHER.to_owned(), true)
        };
        for (device, matrix) in matrices {
            for (one, other, ns) in evaluate(matrix, health) {
                let of = |pid: u32| Some((pid, processes.get(&pid)?));
                let is_inferred =
                    [one, other].into_iter().filter_map(of).any(|(_, process)| process.is_inferred(device));
                let [one, other] = labels([of(one), of(other)]);
                for (victim, aggressor) in [(&one, &other), (&other, &one)] {
                    let key = (device.clone(), victim.clone(), aggressor.clone(), is_inferred);
                    add(overlaps, key, others, ns);
                }
            }
        }
    }

    fn forget(&mut self, now_ns: u64) {
        let is_old =
            |process: &Process| process.ended_ns.is_some_and(|ended| ended.saturating_add(ENDED_NS) < now_ns);
        let old: Vec<u32> =
            self.processes.iter().filter(|(_, process)| is_old(process)).map(|(pid, _)| *pid).collect();
        for pid in old {
            self.remove(pid);
        }
        // Instances of a divided GPU come and go, each with a UUID of its own.
        self.matrices.retain(|_, matrix| !matrix.is_empty());
    }
}

/// What two processes are called as labels: by their services, and where two services have one name, by their places too.
fn labels(two: [Option<(u32, &Process)>; 2]) -> [String; 2] {
    let known =
        two.map(|one| one.map_or(["", UNKNOWN], |(_, process)| [&process.service, &process.workload]));
    let [[one_key, one_name], [other_key, other_name]] = known;
    let is_same = one_name == other_name && one_key != other_key;
    two.map(|one| match one {
        Some((pid, process)) if is_same => format!("{}@{}", process.workload, process.at(pid)),
        Some((_, process)) => process.workload.clone(),
        None => UNKNOWN.to_owned(),
    })
}

/// The processes of a device, if it is known and there is room.
fn matrix<'a>(matrices: &'a mut BTreeMap<String, Matrix>, device: Option<&str>) -> Option<&'a mut Matrix> {
    let device = device.filter(|device| matrices.len() < MAX_DEVICES || matrices.contains_key(*device))?;
    if !matrices.contains_key(device) {
        matrices.insert(device.to_owned(), Matrix::default());
    }
    matrices.get_mut(device)
}

/// Adds to a sum; where there is no room for one more, to the `others` of its device, and at last to those of all.
fn add<K: Ord>(sums: &mut BTreeMap<K, u64>, key: K, others: impl Fn(Option<K>) -> K, ns: u64) {
    let has_room = |key: &K, most| sums.len() < most || sums.contains_key(key);
    let key = if has_room(&key, MAX_LABELS) {
        key
    } else {
        Some(others(Some(key)))
            .filter(|key| has_room(key, MAX_LABELS + MAX_DEVICES))
            .unwrap_or_else(|| others(None))
    };
    let sum = sums.entry(key).or_default();
    *sum = sum.saturating_add(ns);
}

#[cfg(test)]
mod tests;
