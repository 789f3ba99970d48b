//! [3] The GPUs as they are now, from what NVML told.
//!
//! A number is shown while it can be taken for the present: every observation says how long that is, so that a call
//! that hangs makes numbers absent and not old. A device that is lost, and a source that is closed, have none.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    decode::{DeviceCondition, DeviceSeen, DeviceUsage, Event, NvmlSeen, NvmlSource, NvmlState, Observation},
    health::Health,
};

/// Devices kept, instances among them.
const MAX_DEVICES: usize = 256;
/// Processes kept of one device.
const MAX_PROCESSES: usize = 1024;
/// Different XIDs counted of one device; the others are counted together.
const MAX_XIDS: usize = 64;
/// Under this number (NVIDIA's for "unknown") what is beyond [`MAX_XIDS`] is counted.
const OTHER_XID: u64 = 999;

/// What was last told of everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices {
    source: NvmlSource,
    /// UUIDs in NVML's order.
    order: VecDeque<String>,
    by_uuid: BTreeMap<String, Device>,
}

/// What was last told of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    seen: DeviceSeen,
    usage: Option<Told<DeviceUsage>>,
    condition: Option<Told<DeviceCondition>>,
    xids: BTreeMap<u64, u64>,
}

/// A value and the time until which it can be taken for the present.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told<T> {
    at_ns: u64,
    until_ns: u64,
    value: T,
}

impl<T> Told<T> {
    fn new(value: T, at_ns: u64, valid_ms: u64) -> Self {
        Self { at_ns, until_ns: at_ns.saturating_add(valid_ms.saturating_mul(1_000_000)), value }
    }

    fn at(told: Option<&Self>, now_ns: u64) -> Option<&T> {
        told.filter(|told| now_ns <= told.until_ns).map(|told| &told.value)
    }
}

impl Devices {
    /// Takes what NVML told; other events are none of its business.
    pub fn observe(&mut self, event: &Event<'_>, health: &mut Health) {
        let Event::Observation(at, observation) = event else { return };
        let Observation::Nvml(seen) = &**observation else { return };
        match seen {
            NvmlSeen::Source(source) => self.source(source.clone()),
            NvmlSeen::Devices { uuids } => self.keep(uuids, health),
            NvmlSeen::Device(seen) => {
                self.with(&seen.uuid, health, |device, _| device.identify(seen.clone()));
            }
            NvmlSeen::Usage(usage) => {
                let at_ns = at.time_ns;
                self.with(&usage.uuid, health, |device, health| device.use_it(usage.clone(), at_ns, health));
            }
            NvmlSeen::Condition(condition) => self.with(&condition.uuid, health, |device, _| {
                device.condition = Some(Told::new(condition.clone(), at.time_ns, condition.valid_ms));
            }),
            NvmlSeen::Xid { uuid, xid } => {
                self.with(uuid, health, |device, health| device.count(*xid, health));
            }
        }
    }

    /// Whether NVML is asked, and of what version it is.
    pub fn nvml(&self) -> &NvmlSource {
        &self.source
    }

    /// The devices in NVML's order, each instance behind its GPU.
    pub fn iter(&self) -> impl Iterator<Item = &Device> {
        self.order.iter().filter_map(|uuid| self.by_uuid.get(uuid))
    }

    fn source(&mut self, source: NvmlSource) {
        if source.state != NvmlState::On {
            self.by_uuid.values_mut().for_each(Device::forget_numbers);
        }
        self.source = source;
    }

    fn keep(&mut self, uuids: &[String], health: &mut Health) {
        let kept = &uuids[..uuids.len().min(MAX_DEVICES)];
        health.limit_by("devices", (uuids.len() - kept.len()) as u64);
        self.by_uuid.retain(|uuid, _| kept.contains(uuid));
        self.order = kept.iter().cloned().collect();
    }

    fn with(&mut self, uuid: &str, health: &mut Health, change: impl FnOnce(&mut Device, &mut Health)) {
        if !self.by_uuid.contains_key(uuid) {
            if self.by_uuid.len() >= MAX_DEVICES {
                return health.limit("devices");
            }
            let seen = DeviceSeen { uuid: uuid.to_owned(), ..DeviceSeen::default() };
            self.by_uuid.insert(uuid.to_owned(), Device { seen, ..Device::default() });
            if !self.order.iter().any(|known| known == uuid) {
                self.order.push_back(uuid.to_owned());
            }
        }
        if let Some(device) = self.by_uuid.get_mut(uuid) {
            change(device, health);
        }
    }
}

impl Device {
    /// What it is.
    pub fn seen(&self) -> &DeviceSeen {
        &self.seen
    }

    /// How it is used at `now_ns`; `None` when that is not known.
    pub fn usage(&self, now_ns: u64) -> Option<&DeviceUsage> {
        Told::at(self.usage.as_ref(), now_ns)
    }

    /// How it fares at `now_ns`; `None` when that is not known.
    pub fn condition(&self, now_ns: u64) -> Option<&DeviceCondition> {
        Told::at(self.condition.as_ref(), now_ns)
    }

    /// When its use was last told, whether that still counts or not.
    pub fn told_ns(&self) -> Option<u64> {
        self.usage.as_ref().map(|told| told.at_ns)
    }

    /// Errors that the driver reported since the agent has watched, by XID.
    pub fn xids(&self) -> &BTreeMap<u64, u64> {
        &self.xids
    }

    fn identify(&mut self, seen: DeviceSeen) {
        if seen.lost.is_some() {
            self.forget_numbers();
        }
        self.seen = seen;
    }

    fn use_it(&mut self, mut usage: DeviceUsage, at_ns: u64, health: &mut Health) {
        if let Some(processes) = &mut usage.processes {
            health.limit_by("device_processes", processes.len().saturating_sub(MAX_PROCESSES) as u64);
            processes.truncate(MAX_PROCESSES);
        }
        let valid_ms = usage.valid_ms;
        self.usage = Some(Told::new(usage, at_ns, valid_ms));
    }

    fn count(&mut self, xid: u64, health: &mut Health) {
        let full = self.xids.len() >= MAX_XIDS && !self.xids.contains_key(&xid);
        if full {
            health.limit("xids");
        }
        *self.xids.entry(if full { OTHER_XID } else { xid }).or_default() += 1;
    }

    fn forget_numbers(&mut self) {
        (self.usage, self.condition) = (None, None);
    }
}

#[cfg(test)]
mod tests;
