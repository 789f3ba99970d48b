//! What changed on the node: the time line that findings refer to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::{
    coverage::RareKind,
    decode::{Event, NvmlSeen, Observation, ProcessSeen, Throttle},
    health::Health,
    names::listed,
};

/// Changes that are kept.
const KEPT: usize = 512;
/// Processes, devices and models that are remembered.
const MAX_KNOWN: usize = 4096;
/// Compilations of a service within this of the last one are one change.
const TOGETHER_NS: u64 = 30_000_000_000;

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A process of a service started.
    ProcessStarted,
    /// A process of a service ended.
    ProcessEnded,
    /// A process that uses a GPU came, of whatever kind.
    NeighbourCame,
    /// It went.
    NeighbourLeft,
    /// A service answers for a model that it did not before.
    ModelAppeared,
    /// Kernels were loaded or compiled.
    KernelsLoaded,
    /// The driver is of another version.
    DriverVersion,
    /// A GPU was divided, or made whole.
    MigChanged,
    /// What holds the clocks of a GPU back.
    ThrottleChanged,
    /// A GPU came or went, or was lost.
    DeviceChanged,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// When, ns since the Unix epoch; 0 where the wall clock was not known.
    pub at_ns: u64,
    /// What.
    pub what: What,
    /// Whose: name of the service; absent where it is of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// UUID of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// One sentence.
    pub text: String,
}

#[derive(Clone, Debug)]
struct Known {
    service: String,
    comm: String,
    start_ticks: u64,
    /// It uses a GPU.
    cuda: bool,
}

/// The time line. Pure: time comes from events.
#[derive(Debug, Default)]
pub struct Changes {
    line: VecDeque<Change>,
    /// From the monotonic to the wall clock, as last told.
    wall: Option<(u64, u64)>,
    /// What is there when the agent comes is no change.
    settled_ns: Option<u64>,
    processes: BTreeMap<u32, Known>,
    models: BTreeSet<(String, String)>,
    driver: Option<String>,
    devices: BTreeMap<String, DeviceState>,
    listed: Option<BTreeSet<String>>,
    /// Of each service: when it last loaded kernels, and calls and seconds of the loads that are one change with that.
    loads: BTreeMap<String, (u64, u64, f64)>,
    /// Changes that have left the line.
    gone: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct DeviceState {
    mig: Option<bool>,
    lost: bool,
    throttle: BTreeSet<Throttle>,
}

/// For so long after the first look everything that is found was there before.
const SETTLING_NS: u64 = 5_000_000_000;

impl Changes {
    /// Takes what says something of processes and devices. Called before tracking uses an event up.
    pub fn observe(&mut self, event: &Event<'_>, health: &mut Health) {
        match event {
            Event::Exit(record) => self.ended(record.header.tgid, None, record.header.time_ns),
            Event::Observation(at, observation) => self.observation(at.time_ns, observation, health),
            _ => {}
        }
    }

    fn observation(&mut self, now_ns: u64, observation: &Observation, health: &mut Health) {
        match observation {
            Observation::Clock { wall_ns } => {
                self.wall = Some((now_ns, *wall_ns));
                self.settled_ns.get_or_insert(now_ns.saturating_add(SETTLING_NS));
            }
            Observation::Process(seen) => self.process(seen, now_ns, health),
            Observation::ProcessGone { pid, start_ticks } => self.ended(*pid, Some(*start_ticks), now_ns),
            Observation::Nvml(seen) => self.nvml(seen, now_ns),
            Observation::Start { .. }
            | Observation::GpuProcess(_)
            | Observation::ServiceUse(_)
            | Observation::KernelCounters { .. }
            | Observation::End => {}
        }
    }

    fn process(&mut self, seen: &ProcessSeen, now_ns: u64, health: &mut Health) {
        let known = Known {
            service: seen.service_name.clone(),
            comm: seen.comm.clone(),
            start_ticks: seen.start_ticks,
            cuda: seen.cuda,
        };
        let before = self.processes.get(&seen.pid).map(|before| (before.start_ticks, before.cuda));
        match before {
            Some((ticks, cuda)) if ticks == seen.start_ticks && (cuda || !seen.cuda) => {
                self.processes.insert(seen.pid, Known { cuda, ..known });
                return;
            }
            Some((ticks, _)) if ticks != seen.start_ticks => self.ended(seen.pid, None, now_ns),
            None if self.processes.len() >= MAX_KNOWN => return health.limit("changes_processes"),
            Some(_) | None => {}
        }
        self.processes.insert(seen.pid, known);
        let (what, does) =
            if seen.cuda { (What::NeighbourCame, "uses a GPU") } else { (What::ProcessStarted, "started") };
        let text = format!("{} (process {}) {does}", seen.comm, seen.pid);
        self.add(what, Some(&seen.service_name), None, text, now_ns);
    }

    fn ended(&mut self, pid: u32, start_ticks: Option<u64>, now_ns: u64) {
        let is_it = |known: &&Known| start_ticks.is_none_or(|ticks| ticks == known.start_ticks);
        let Some(known) = self.processes.get(&pid).filter(is_it).cloned() else { return };
        self.processes.remove(&pid);
        let (what, text) = if known.cuda {
            (What::NeighbourLeft, format!("{} (process {pid}), which used a GPU, ended", known.comm))
        } else {
            (What::ProcessEnded, format!("{} (process {pid}) ended", known.comm))
        };
        self.add(what, Some(&known.service), None, text, now_ns);
    }

    fn nvml(&mut self, seen: &NvmlSeen, now_ns: u64) {
        match seen {
            NvmlSeen::Source(source) => {
                let Some(version) = &source.driver_version else { return };
                let before = self.driver.replace(version.clone());
                if let Some(before) = before.filter(|before| before != version) {
                    let text = format!("the driver is {version}, it was {before}");
                    self.add(What::DriverVersion, None, None, text, now_ns);
                }
            }
            NvmlSeen::Devices { uuids } => self.listed(uuids, now_ns),
            NvmlSeen::Device(seen) => {
                let mut state = self.devices.get(&seen.uuid).cloned().unwrap_or_default();
                state.mig = seen.mig.map(|mig| mig.enabled);
                state.lost = seen.lost.is_some();
                self.device(&seen.uuid, &state, now_ns);
            }
            NvmlSeen::Condition(condition) => {
                let mut state = self.devices.get(&condition.uuid).cloned().unwrap_or_default();
                let Some(throttle) = &condition.throttle else { return };
                state.throttle = throttle.iter().copied().collect();
                self.device(&condition.uuid, &state, now_ns);
            }
            NvmlSeen::Usage(_) => {}
            NvmlSeen::Xid { uuid, xid } => {
                let text = format!("the driver reported XID {xid}");
                self.add(What::DeviceChanged, None, Some(uuid), text, now_ns);
            }
        }
    }

    fn listed(&mut self, uuids: &[String], now_ns: u64) {
        let now: BTreeSet<String> = uuids.iter().take(MAX_KNOWN).cloned().collect();
        let Some(before) = self.listed.replace(now.clone()) else { return };
        for uuid in now.symmetric_difference(&before) {
            let text = if now.contains(uuid) { "a device came" } else { "a device went" };
            self.add(What::DeviceChanged, None, Some(uuid), text.into(), now_ns);
        }
        self.devices.retain(|uuid, _| now.contains(uuid));
    }

    fn device(&mut self, uuid: &str, state: &DeviceState, now_ns: u64) {
        if self.devices.len() >= MAX_KNOWN && !self.devices.contains_key(uuid) {
            return;
        }
        let Some(before) = self.devices.insert(uuid.to_owned(), state.clone()) else { return };
        let device = Some(uuid);
        if before.mig != state.mig && before.mig.is_some() {
            let text = if state.mig == Some(true) { "the GPU was divided" } else { "the GPU is whole again" };
            self.add(What::MigChanged, None, device, text.into(), now_ns);
        }
        if before.lost != state.lost {
            let text = if state.lost { "the GPU cannot be reached" } else { "the GPU is back" };
            self.add(What::DeviceChanged, None, device, text.into(), now_ns);
        }
        if before.throttle != state.throttle {
            self.add(What::ThrottleChanged, None, device, throttled(&state.throttle), now_ns);
        }
    }

    /// A request for a model is over.
    pub fn model(&mut self, service: &str, model: &str, now_ns: u64) {
        let key = (service.to_owned(), model.to_owned());
        if self.models.len() < MAX_KNOWN && self.models.insert(key) {
            let text = format!("first answer of model {model}");
            self.add(What::ModelAppeared, Some(service), None, text, now_ns);
        }
    }

    /// Kernels were loaded or compiled by a process of a service.
    pub fn loaded(&mut self, service: &str, kind: RareKind, seconds: f64, now_ns: u64) {
        if kind == RareKind::Init {
            return;
        }
        let (calls, total) = match self.loads.get(service) {
            Some((last_ns, calls, total)) if last_ns.saturating_add(TOGETHER_NS) > now_ns => {
                (calls + 1, total + seconds)
            }
            _ => (1, seconds),
        };
        if self.loads.len() >= MAX_KNOWN && !self.loads.contains_key(service) {
            return;
        }
        self.loads.insert(service.to_owned(), (now_ns, calls, total));
        let text = format!("{calls} calls that load or compile kernels or make graphs, {total:.2} s");
        let same = |change: &&mut Change| {
            change.what == What::KernelsLoaded && change.service.as_deref() == Some(service)
        };
        match self.line.iter_mut().rev().find(same).filter(|_| calls > 1) {
            Some(change) => change.text = text,
            None => self.add(What::KernelsLoaded, Some(service), None, text, now_ns),
        }
    }

    fn add(&mut self, what: What, service: Option<&str>, device: Option<&str>, text: String, now_ns: u64) {
        if self.settled_ns.is_none_or(|settled| now_ns < settled) {
            return;
        }
        if self.line.len() == KEPT {
            self.line.pop_front();
            self.gone += 1;
        }
        let at_ns = self.wall.map_or(0, |(then, wall)| wall.saturating_add(now_ns.saturating_sub(then)));
        let (service, device) = (service.map(str::to_owned), device.map(str::to_owned));
        self.line.push_back(Change { at_ns, what, service, device, text });
    }

    /// The time line, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Change> {
        self.line.iter()
    }

    /// Changes that are not in it any more, for want of room.
    pub fn gone(&self) -> u64 {
        self.gone
    }

    /// Changes that may have to do with a service, between two times of the wall clock, newest first.
    pub(super) fn before(&self, service: &str, from_ns: u64, to_ns: u64) -> Vec<Change> {
        let concerns = |change: &&Change| match change.what {
            What::NeighbourCame | What::NeighbourLeft => true,
            _ => change.service.as_deref().is_none_or(|of| of == service),
        };
        let within = |change: &&Change| (from_ns..=to_ns).contains(&change.at_ns);
        self.line.iter().rev().filter(within).filter(concerns).take(5).cloned().collect()
    }
}

fn throttled(throttle: &BTreeSet<Throttle>) -> String {
    if throttle.is_empty() {
        return "nothing holds the clocks back any more".into();
    }
    format!("the clocks are held back by {}", listed(throttle))
}

#[cfg(test)]
mod tests;
