//! [3] Which device a context of a process is on.
//!
//! CUDA counts devices per process: by `CUDA_VISIBLE_DEVICES`, by an order of its own, and in a container by what is
//! in there. So a number of CUDA's is never taken for NVML's. What a process asks of its own driver (a UUID, a PCI
//! address) is certain; so is NVML's list of processes, if it has the process on one device only. All else is an
//! inference and is flagged as one.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::{Deserialize, Serialize};
use wire::{cookie::Class, cuda};

use crate::{
    decode::{Event, GpuProcessSeen, Observation},
    device::{Device, Devices},
    health::Health,
};

/// Processes that are remembered.
const MAX_PROCESSES: usize = 4096;
/// Contexts that are remembered of one process.
const MAX_CONTEXTS: usize = 256;
/// Devices that are remembered of one process.
const MAX_DEVICES: usize = 64;

/// How it is known on which device something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// The process asked its driver for the identity of the context's device.
    Driver,
    /// NVML has the process on this device and on no other.
    Nvml,
    /// The environment that it was started with lists the device at this place.
    Environment,
    /// It has the file of this device open and of no other.
    OpenFile,
    /// There is no other device.
    OnlyDevice,
}

impl Known {
    /// It could be otherwise.
    pub fn is_inferred(self) -> bool {
        !matches!(self, Self::Driver | Self::Nvml)
    }
}

/// A device, and how it is known that it is this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// UUID, as NVML has it; as `GPU-…` where NVML does not tell.
    pub device: String,
    /// How it is known.
    pub known: Known,
}

/// What is known of contexts and devices, by process.
#[derive(Debug, Default)]
pub struct Placements {
    by_pid: BTreeMap<u32, Process>,
}

#[derive(Debug, Default)]
struct Process {
    /// `CUdevice` by context.
    contexts: BTreeMap<u64, i32>,
    /// What was told of each `CUdevice`.
    devices: BTreeMap<i32, Told>,
    seen: Option<GpuProcessSeen>,
    /// When it was last heard of, ns.
    last_ns: u64,
    /// The next that is heard under its number is another one.
    ended: bool,
    /// Start of the one that had its number before, of which more word may come; 0 where that is not known.
    before_ticks: Option<u64>,
}

/// What a process was told of a `CUdevice`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    uuid: Option<[u8; 16]>,
    bus: Option<String>,
    ordinal: Option<i32>,
}

impl Placements {
    /// Takes what says something of it; other events are none of its business.
    pub fn observe(&mut self, event: &Event<'_>, health: &mut Health) {
        match event {
            Event::Context(context) => {
                let header = &context.header;
                if let Some(process) = self.process(header.tgid, header.time_ns, health) {
                    process.take(context, health);
                }
            }
            Event::Exec(record) => {
                self.by_pid.remove(&record.header.tgid);
            }
            Event::Exit(record) => self.ended(record.header.tgid, None),
            Event::Observation(at, observation) => match &**observation {
                Observation::GpuProcess(seen) => {
                    if let Some(process) = self.process_seen(seen, at.time_ns, health) {
                        process.seen = Some(seen.clone());
                    }
                }
                Observation::ProcessGone { pid, start_ticks } => self.ended(*pid, Some(*start_ticks)),
                _ => {}
            },
            _ => {}
        }
    }

    /// What `/proc` told of a process.
    pub fn seen(&self, pid: u32) -> Option<&GpuProcessSeen> {
        self.by_pid.get(&pid)?.seen.as_ref()
    }

    /// Where a context of a process is, as far as is known at `now_ns`; context 0 is one that is not known.
    pub fn place(&self, pid: u32, context: u64, devices: &Devices, now_ns: u64) -> Option<Place> {
        let process = self.by_pid.get(&pid);
        let device = process.and_then(|process| process.contexts.get(&context)).copied();
        // A process with all its contexts on one device needs not say which of them it means.
        let device = device.or_else(|| process?.only_device());
        let on = Nodes { devices, now_ns, pid };
        let told = process.zip(device).and_then(|(process, device)| process.devices.get(&device));
        if let Some(place) = told.and_then(|told| on.told(told)) {
            return Some(place);
        }
        on.only(|device| on.lists(device), Known::Nvml)
            // The numbers of a container's environment are its own; its device files are those of the node.
            .or_else(|| on.open(&process?.seen.as_ref()?.open_devices))
            .or_else(|| {
                on.environment(process?.seen.as_ref()?, told.and_then(|told| told.ordinal).or(device))
            })
            .or_else(|| on.only(|_| true, Known::OnlyDevice))
    }

    /// A process ended; where /proc tells, of one that started then.
    fn ended(&mut self, pid: u32, start_ticks: Option<u64>) {
        let Some(process) = self.by_pid.get_mut(&pid) else { return };
        match (start_ticks, process.start_ticks()) {
            (Some(ticks), 0) if process.is_before(ticks) => process.before_ticks = None,
            (Some(ticks), own) if own != 0 && own != ticks => {}
            _ => process.ended = true,
        }
    }

    /// The process that /proc tells of: not the one that is known if it started at another time.
    fn process_seen(
        &mut self,
        seen: &GpuProcessSeen,
        now_ns: u64,
        health: &mut Health,
    ) -> Option<&mut Process> {
        let known = self.by_pid.get_mut(&seen.pid);
        if let Some(process) = known.filter(|process| process.start_ticks() != 0) {
            let is_same = process.start_ticks() == seen.start_ticks;
            if is_same && process.ended {
                return None;
            }
            process.ended |= !is_same;
        }
        self.process(seen.pid, now_ns, health)
    }

    fn process(&mut self, pid: u32, now_ns: u64, health: &mut Health) -> Option<&mut Process> {
        if !self.by_pid.contains_key(&pid) && self.by_pid.len() >= MAX_PROCESSES {
            health.limit("gpu_processes");
            let key = |(_, process): &(&u32, &Process)| (!process.ended, process.last_ns);
            let oldest = self.by_pid.iter().min_by_key(key).map(|(pid, _)| *pid)?;
            self.by_pid.remove(&oldest);
        }
        let process = self.by_pid.entry(pid).or_default();
        if process.ended {
            *process = Process { before_ticks: Some(process.start_ticks()), ..Process::default() };
        }
        process.last_ns = now_ns;
        Some(process)
    }
}

impl Process {
    /// When it started; 0 where /proc did not tell yet.
    fn start_ticks(&self) -> u64 {
        self.seen.as_ref().map_or(0, |seen| seen.start_ticks)
    }

    /// The one that had its number before started then, as far as is known.
    fn is_before(&self, start_ticks: u64) -> bool {
        self.before_ticks.is_some_and(|before| [0, start_ticks].contains(&before))
    }

    fn take(&mut self, call: &cuda::Context, health: &mut Health) {
        match Class::from_u8(call.class) {
            Some(Class::ContextCreate | Class::ContextRetain) => {
                if self.contexts.len() >= MAX_CONTEXTS && !self.contexts.contains_key(&call.context) {
                    return health.limit("contexts");
                }
                self.contexts.insert(call.context, call.device);
            }
            Some(Class::ContextDestroy) => {
                self.contexts.remove(&call.context);
            }
            Some(Class::DeviceGet) => self.tell(call, health, |told| told.ordinal = Some(call.ordinal)),
            Some(Class::DeviceUuid) => {
                let uuid = call.text.first_chunk::<16>().copied();
                self.tell(call, health, |told| told.uuid = uuid);
            }
            Some(Class::DeviceBus | Class::DeviceByBus) => {
                let bus = text(&call.text);
                self.tell(call, health, |told| told.bus = Some(bus));
            }
            // A primary context keeps its handle's meaning: the next that retains it is told again.
            _ => {}
        }
    }

    fn tell(&mut self, call: &cuda::Context, health: &mut Health, change: impl FnOnce(&mut Told)) {
        if self.devices.len() >= MAX_DEVICES && !self.devices.contains_key(&call.device) {
            return health.limit("devices_of_process");
        }
        change(self.devices.entry(call.device).or_default());
    }

    fn only_device(&self) -> Option<i32> {
        let mut devices = self.contexts.values();
        let first = devices.next()?;
        devices.all(|device| device == first).then_some(*first)
    }
}

/// The devices of the node, for one question of one process.
#[derive(Clone, Copy)]
struct Nodes<'a> {
    devices: &'a Devices,
    now_ns: u64,
    pid: u32,
}

impl<'a> Nodes<'a> {
    /// Devices that work can be on: a divided GPU is not one.
    fn all(self) -> impl Iterator<Item = &'a Device> {
        self.devices.iter().filter(|device| !device.seen().mig.is_some_and(|mig| mig.enabled))
    }

    fn lists(self, device: &Device) -> bool {
        let usage = device.usage(self.now_ns).and_then(|usage| usage.processes.as_ref());
        usage.is_some_and(|processes| processes.iter().any(|process| process.pid == self.pid))
    }

    /// The one device that is so.
    fn only(self, is_so: impl Fn(&Device) -> bool, known: Known) -> Option<Place> {
        let mut found = self.all().filter(|device| is_so(device));
        let device = found.next()?.seen().uuid.clone();
        found.next().is_none().then_some(Place { device, known })
    }

    /// The device of an identity. One of a divided GPU leaves its instances, of which NVML may know the one.
    fn told(self, told: &Told) -> Option<Place> {
        let known = Known::Driver;
        let is_it = |device: &Device| match (&told.uuid, &told.bus) {
            (Some(uuid), _) => digits(&device.seen().uuid) == hex(uuid),
            (None, Some(bus)) => device.seen().pci_bus_id.as_deref().is_some_and(|own| same_bus(own, bus)),
            (None, None) => false,
        };
        if let Some(found) = self.devices.iter().find(|device| is_it(device)) {
            let uuid = &found.seen().uuid;
            if !found.seen().mig.is_some_and(|mig| mig.enabled) {
                return Some(Place { device: uuid.clone(), known });
            }
            let is_part =
                |device: &Device| device.seen().instance.as_ref().is_some_and(|i| &i.parent == uuid);
            let lists = self.only(|device| is_part(device) && self.lists(device), known);
            return lists.or_else(|| self.only(is_part, known));
        }
        told.uuid.map(|uuid| Place { device: name(&uuid), known })
    }

    /// The device at a place of `CUDA_VISIBLE_DEVICES`. Its numbers are NVML's where CUDA counts as the PCI bus does,
    /// or where all devices are alike.
    fn environment(self, seen: &GpuProcessSeen, ordinal: Option<i32>) -> Option<Place> {
        let known = Known::Environment;
        let list = seen.visible_devices.as_ref()?;
        let entry = match ordinal {
            Some(ordinal) => list.get(usize::try_from(ordinal).ok()?)?,
            None => list.first().filter(|_| list.len() == 1)?,
        };
        if let Ok(number) = entry.parse::<u32>() {
            let mut names = self.all().map(|device| &device.seen().name);
            let first = names.next();
            let alike = names.all(|name| Some(name) == first);
            let is_it = |device: &Device| (seen.pci_order || alike) && device.seen().index == number;
            return self.only(|device| is_it(device) && is_open(device, &seen.open_devices), known);
        }
        let found = self.only(|device| device.seen().uuid.starts_with(entry), known);
        // Without NVML a whole UUID is still one.
        found.or_else(|| (digits(entry).len() == 32).then(|| Place { device: entry.clone(), known }))
    }

    fn open(self, addresses: &[String]) -> Option<Place> {
        let [address] = addresses else { return None };
        let is_it =
            |device: &Device| device.seen().pci_bus_id.as_deref().is_some_and(|own| same_bus(own, address));
        self.only(is_it, Known::OpenFile)
    }
}

/// Its file is among those that are open, or none is known to be.
fn is_open(device: &Device, addresses: &[String]) -> bool {
    let own = device.seen().pci_bus_id.as_deref();
    addresses.is_empty() || own.is_none_or(|own| addresses.iter().any(|address| same_bus(own, address)))
}

/// The domain has four digits with CUDA and `/proc`, eight with NVML.
fn same_bus(one: &str, other: &str) -> bool {
    let parts = |address: &str| {
        let (domain, rest) = address.split_once(':')?;
        Some((u32::from_str_radix(domain, 16).ok()?, rest.to_ascii_lowercase()))
    };
    parts(one).is_some_and(|one| Some(one) == parts(other))
}

fn digits(uuid: &str) -> String {
    let digits = uuid.split_once('-').map_or(uuid, |(_, rest)| rest);
    digits.chars().filter(char::is_ascii_hexdigit).map(|digit| digit.to_ascii_lowercase()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `GPU-8-4-4-4-12`.
fn name(uuid: &[u8; 16]) -> String {
    let hex = hex(uuid);
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests;
