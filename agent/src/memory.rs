//! [3] The memory ledger: what each process holds of each device, and why it could not have more.
//!
//! | module | knows |
//! |---|---|
//! | [`process`] | what a memory call does to its process's ledger |
//! | [`book`], [`blocks`], [`physical`], [`pool`] | sums by kind; addresses, handles and pools behind them |
//! | [`here`] | what a process holds of one device, and what happened to it there |
//! | [`exports`] | blocks that other processes may reach |
//! | [`places`], [`sight`] | on which device a context is; how much of that is free |
//! | [`cause`], [`failure`], [`pending`] | why an allocation failed |
//! | [`storm`] | allocators that free and retry |
//! | [`view`] | what is shown of it |
//!
//! What is counted: memory that the driver gave, once, with the process that asked for it. Reserved addresses are no
//! memory, a mapping is the memory behind it, and what another process gave is that process's. A process whose calls
//! were not all seen has lower bounds and is `partial`.
//!
//! What bounds it: 131,072 blocks, pieces of physical memory and mappings each of a process, 262,144 of all together
//! (limit `memory_blocks`; beyond, sums are kept and frees take their mean), 4,096 processes (limit `memory_processes`).

mod blocks;
mod book;
mod cause;
mod displaced;
mod exports;
mod failure;
mod here;
mod pending;
mod physical;
mod places;
mod pool;
mod process;
mod sight;
mod storm;
mod view;

use std::collections::BTreeMap;

use wire::{cookie::Class, memory::Call};

pub use book::{Counts, Kind};
pub use failure::{Failure, FailureClass, Holder};
pub use process::allocates;
pub use sight::Source;
pub use storm::Storm;
pub use view::ProcessMemory;

use crate::{
    decode::{DeviceUsage, Event, NvmlSeen, Observation, ProcessSeen},
    device::Devices,
    health::Health,
    placement::Placements,
};
use exports::Exports;
use failure::OUT_OF_MEMORY;
use pending::Pending;
use process::{Beside, Effect, Process};
use sight::{Seen, Sight, Span};

/// Processes with a ledger.
const MAX_PROCESSES: usize = 4096;
/// Blocks, pieces and mappings of all processes.
const MAX_BLOCKS: usize = 262_144;
/// `/proc` is read far more often than this: who is silent for so long and was not found there is gone.
const SILENT_NS: u64 = 60_000_000_000;
/// Failures that wait for somebody to tell how much was free.
const MAX_PENDING: usize = 256;
/// Within this of its end the memory of a process is given back.
const CLEAR_NS: u64 = 50_000_000;
/// The longest they wait: NVML is asked every second.
const PATIENCE_NS: u64 = 3_000_000_000;

/// What a device is known by: a place of its own for a process of which the device is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Device(usize),
    Process(u32),
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Incident {
    /// An allocation failed; final, a few seconds after it did.
    Failure(Failure),
    /// An allocator gave back and retried; at its end.
    Storm(Storm),
}

/// Where it is told which device a context is on.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The devices, and who NVML shows on them.
    pub devices: &'a Devices,
    /// What processes were told of their contexts.
    pub placements: &'a Placements,
}

/// The ledgers of all processes.
#[derive(Debug, Default)]
pub struct Ledgers {
    processes: BTreeMap<u32, Process>,
    /// UUIDs of the places that are devices.
    uuids: Vec<String>,
    sights: BTreeMap<Place, Sight>,
    pending: Vec<Pending>,
    exports: Exports,
    /// Names of the rows of the CUDA table.
    rows: Vec<String>,
    /// Blocks, pieces and mappings of all processes.
    blocks: usize,
    /// Records of memory calls that were lost, as last told.
    lost: u64,
    incidents: Vec<Incident>,
}

impl Ledgers {
    /// Takes one event, after those of `from` have.
    pub fn observe(&mut self, event: &Event<'_>, from: Sources<'_>, health: &mut Health) {
        match event {
            Event::Memory(call) => self.call(call, from, health),
            Event::Context(record) => self.context(record),
            Event::Exec(record) | Event::Exit(record) => {
                self.end(record.header.tgid, record.header.time_ns, from);
            }
            Event::Observation(at, observation) => self.observation(at.time_ns, observation, from),
            _ => {}
        }
    }

    /// What has happened since the last time.
    pub fn take_incidents(&mut self) -> impl Iterator<Item = Incident> {
        self.incidents.drain(..)
    }

    fn observation(&mut self, now_ns: u64, observation: &Observation, from: Sources<'_>) {
        match observation {
            Observation::Start { rows, .. } => self.rows.clone_from(rows),
            Observation::Clock { .. } => self.tick(now_ns, from),
            Observation::Process(seen) => self.seen(seen, now_ns, from),
            Observation::ProcessGone { pid, start_ticks } => {
                // One that was not found yet may be another with the same id.
                if self.processes.get(pid).is_some_and(|p| p.start_ticks == *start_ticks) {
                    self.end(*pid, now_ns, from);
                }
            }
            Observation::KernelCounters { counters } => self.counters(counters),
            Observation::Nvml(NvmlSeen::Usage(usage)) => self.usage(usage, now_ns, from),
            Observation::Nvml(_) | Observation::GpuProcess(_) | Observation::ServiceUse(_) => {}
            Observation::End => {
                self.tick(u64::MAX, from);
            }
        }
    }

    fn call(&mut self, call: &Call, from: Sources<'_>, health: &mut Health) {
        let pid = call.header.tgid;
        if !self.processes.contains_key(&pid) && !self.has_place(call.header.time_ns, from) {
            return health.limit("memory_processes");
        }
        let beside = Beside { has_room: self.blocks < MAX_BLOCKS, exported: self.exports.bytes(call.other) };
        let book = usize::from(self.processes.entry(pid).or_default().book(call.context));
        let place = self.place(pid, book, call.header.time_ns, from);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let (before, was_capped) = (process.kept(), process.is_capped);
        let effect = process.apply(call, beside);
        self.blocks = (self.blocks + process.kept()).saturating_sub(before);
        if process.is_capped && !was_capped {
            health.limit("memory_blocks");
        }
        let during = Span { begin_ns: call.enter_ns, end_ns: call.header.time_ns };
        process.last_ns = call.header.time_ns;
        let blurred = process.take_blurred();
        for (place, bytes) in process.take_moved() {
            self.moved(place, during, bytes);
        }
        for place in blurred {
            self.sights.entry(place).or_default().blurred(during);
        }
        self.info(call, place, from);
        self.effect(call, effect, place, from, health);
    }

    /// Whether one more process can be followed; one that never was found in `/proc` and is silent makes room.
    fn has_place(&mut self, now_ns: u64, from: Sources<'_>) -> bool {
        if self.processes.len() < MAX_PROCESSES {
            return true;
        }
        let is_gone =
            |(_, p): &(&u32, &Process)| p.start_ticks == 0 && p.last_ns.saturating_add(SILENT_NS) < now_ns;
        let gone = self.processes.iter().find(is_gone).map(|(&pid, _)| pid);
        if let Some(pid) = gone {
            self.end(pid, now_ns, from);
        }
        gone.is_some()
    }

    fn moved(&mut self, place: Place, during: Span, bytes: i64) {
        if bytes != 0 {
            self.sights.entry(place).or_default().moved(during, bytes);
        }
    }

    /// A context is gone, and with it what was allocated in it. That a primary context was given up says nothing: others
    /// may have it still.
    fn context(&mut self, record: &wire::cuda::Context) {
        const RESET: &str = "cuDevicePrimaryCtxReset";
        let Some(process) = self.processes.get_mut(&record.header.tgid) else { return };
        let before = process.kept();
        match Class::from_u8(record.class) {
            Some(Class::ContextRetain) => process.has_primary(record.device, record.context),
            Some(Class::ContextDestroy) => process.destroy_context(record.context),
            Some(Class::ContextReset)
                if self.rows.get(usize::from(record.row)).is_some_and(|row| row == RESET) =>
            {
                process.reset(record.device);
            }
            _ => return,
        }
        self.blocks = (self.blocks + process.kept()).saturating_sub(before);
        let at_ns = record.header.time_ns;
        let during = Span { begin_ns: at_ns.saturating_sub(CLEAR_NS), end_ns: at_ns };
        for (place, bytes) in process.take_moved() {
            self.moved(place, during, bytes);
        }
    }

    /// The process asked how much is free.
    fn info(&mut self, call: &Call, place: Place, from: Sources<'_>) {
        if call.class != Class::MemoryInfo as u8 || call.result != 0 || call.other == 0 {
            return;
        }
        let (free, total) = (call.bytes, call.other);
        let during = Span { begin_ns: call.enter_ns, end_ns: call.header.time_ns };
        let seen = Seen { during, free, total, source: Source::Process };
        self.told(place, seen, from);
    }

    fn effect(&mut self, call: &Call, effect: Effect, place: Place, from: Sources<'_>, health: &mut Health) {
        let (pid, tid, at_ns) = (call.header.tgid, call.header.tid, call.header.time_ns);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        match effect {
            Effect::Allocated(_, bytes) => {
                let storm = process.storms.succeeded(pid, tid, bytes, at_ns);
                self.storms(pid, storm);
            }
            Effect::Freed(bytes) => process.storms.freed(tid, bytes, at_ns),
            Effect::Exported(bytes) => {
                if !self.exports.add(call.other, bytes) {
                    health.limit("memory_exports");
                }
            }
            Effect::Failed(kind, bytes) => {
                if call.result == OUT_OF_MEMORY && kind != Kind::Host {
                    process.storms.failed(tid, place, bytes, at_ns);
                }
                self.failed(call, kind, place, from, health);
            }
            Effect::None => {}
        }
    }

    fn storms(&mut self, pid: u32, storms: impl IntoIterator<Item = (Place, Storm)>) {
        for (place, storm) in storms {
            if let Some(process) = self.processes.get_mut(&pid) {
                process.stormed(place, &storm);
            }
            self.incidents.push(Incident::Storm(storm));
        }
    }

    fn tick(&mut self, now_ns: u64, from: Sources<'_>) {
        let is_late = |pending: &mut Pending| now_ns.saturating_sub(pending.failure.t_ns) >= PATIENCE_NS;
        for pending in self.pending.extract_if(.., is_late).collect::<Vec<_>>() {
            self.complete(pending, from);
        }
        let idle = |(_, process): &(&u32, &mut Process)| !process.storms.is_idle();
        let over: Vec<(u32, Vec<(Place, Storm)>)> = self
            .processes
            .iter_mut()
            .filter(idle)
            .map(|(&pid, process)| (pid, process.storms.expired(pid, now_ns)))
            .collect();
        for (pid, storms) in over {
            self.storms(pid, storms);
        }
    }

    fn usage(&mut self, usage: &DeviceUsage, now_ns: u64, from: Sources<'_>) {
        // Which device a process is on may be known only now.
        let books = |(&pid, process): (&u32, &Process)| (pid, process.books.len());
        for (pid, books) in self.processes.iter().map(books).collect::<Vec<_>>() {
            for book in 0..books {
                self.look_up(pid, book, now_ns, from);
            }
        }
        let Some(place) = self.device(&usage.uuid) else { return };
        for listed in usage.processes.iter().flatten() {
            if let Some(process) = self.processes.get_mut(&listed.pid) {
                process.told(place);
            }
        }
        let Some(memory) = usage.memory else { return };
        let [begin_ns, end_ns] = usage.memory_asked_ns.unwrap_or([now_ns, now_ns]);
        let during = Span { begin_ns, end_ns };
        let seen = Seen { during, free: memory.free, total: memory.total, source: Source::Nvml };
        self.told(place, seen, from);
    }

    fn counters(&mut self, counters: &BTreeMap<String, u64>) {
        let lost = counters.get(wire::counter::Counter::DropMemory.name()).copied().unwrap_or_default();
        if lost > self.lost {
            self.processes.values_mut().for_each(|process| process.is_partial = true);
        }
        self.lost = lost;
    }

    fn seen(&mut self, seen: &ProcessSeen, now_ns: u64, from: Sources<'_>) {
        let is_other = |p: &Process| p.start_ticks != 0 && p.start_ticks != seen.start_ticks;
        if self.processes.get(&seen.pid).is_some_and(is_other) {
            self.end(seen.pid, now_ns, from);
        }
        if let Some(process) = self.processes.get_mut(&seen.pid) {
            process.start_ticks = seen.start_ticks;
        }
        if seen.cuda && (self.processes.len() < MAX_PROCESSES || self.processes.contains_key(&seen.pid)) {
            let process = self.processes.entry(seen.pid).or_default();
            process.start_ticks = seen.start_ticks;
            process.comm.clone_from(&seen.comm);
        }
    }

    /// A process is gone, with all that it held.
    fn end(&mut self, pid: u32, now_ns: u64, from: Sources<'_>) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let storms = process.storms.expired(pid, u64::MAX);
        self.storms(pid, storms);
        for pending in self.pending.extract_if(.., |p| p.failure.pid == pid).collect::<Vec<_>>() {
            self.complete(pending, from);
        }
        let Some(process) = self.processes.remove(&pid) else { return };
        self.blocks = self.blocks.saturating_sub(process.kept());
        for (place, book) in process.books.iter().filter_map(|book| Some((book.place?, book))) {
            let held = i64::try_from(book.held()).unwrap_or(i64::MAX);
            // The driver clears up some time around the end.
            let during =
                Span { begin_ns: now_ns.saturating_sub(CLEAR_NS), end_ns: now_ns.saturating_add(CLEAR_NS) };
            self.moved(place, during, -held);
        }
        self.sights.remove(&Place::Process(pid));
    }
}

#[cfg(test)]
mod tests;
