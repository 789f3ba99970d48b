//! [3] Events to the state of processes, connections and exchanges on them.
//!
//! `Tracker::feed` takes one event and appends what it means to a list of [`Tracked`] values.
//!
//! | module | knows |
//! |---|---|
//! | [`process`] | which process belongs to which service, and which services still run |
//! | [`connection`], [`ends`] | which side of a connection is the server; which two are the ends of one; what moves |
//! | [`accepted`], [`call`] | which protocol a connection speaks; what one call on it came to |
//! | [`server`], [`http1`] | HTTP/1.1: offsets, gaps and messages of one connection |
//! | [`http2`] | HTTP/2: the same, frames, header blocks and streams |
//! | [`exchanges`], [`open`] | requests and their answers, in order; how each ended |
//! | [`arrival`], [`delivery`] | when requests arrived and answers were acknowledged |
//! | [`body`], [`sse`], [`lines`], [`json`], [`grpc`] | what a body tells |
//! | [`older`] | how many connections of a service are older than the agent |
//! | [`secure`] | how much of a service's TLS is in sight |
//! | [`mask`] | what stays of captured bytes |
//! | [`api`] | what a path tells |
//! | [`memory`] | what bounds all of that |

mod accepted;
mod api;
mod arrival;
mod body;
mod call;
mod connection;
mod delivery;
mod ends;
mod exchange;
mod exchanges;
mod grpc;
mod http1;
mod http2;
mod json;
mod lines;
mod mask;
mod memory;
mod older;
mod open;
mod process;
mod secure;
mod server;
mod sse;

pub use connection::Traffic;
pub use exchange::{
    Client, ContentEvent, Delivery, Exchange, ExchangeId, MAX_CONTENT, ServiceId, Sight, Tracked,
};
pub use secure::TlsCounts;

use wire::{Header, cuda};

use crate::{
    decode::{Event, Observation, Stamp},
    health::Health,
};
use connection::Connections;
use exchanges::Context;
use memory::Held;
use older::Older;
use process::Processes;
use secure::Secure;

/// Limits of what is tracked. What goes over them is counted in [`Health`] and forgotten, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct TrackSettings {
    /// Connections, those included that carry no exchanges.
    pub max_connections: usize,
    /// Processes of services.
    pub max_processes: usize,
    /// Bytes held for what peers have sent, on all connections together.
    pub max_held: usize,
}

impl Default for TrackSettings {
    fn default() -> Self {
        Self { max_connections: 16_384, max_processes: 16_384, max_held: memory::MAX_HELD }
    }
}

/// The state of everything watched, as far as events told.
#[derive(Debug)]
pub struct Tracker {
    processes: Processes,
    connections: Connections,
    secure: Secure,
    held: Held,
    older: Older,
    next_exchange: u64,
    /// Wall clock minus monotonic clock, ns, as last observed.
    wall_offset_ns: Option<i128>,
}

impl Tracker {
    /// Knows nothing yet.
    pub fn new(settings: TrackSettings) -> Self {
        Self {
            processes: Processes::new(settings.max_processes),
            connections: Connections::new(settings.max_connections),
            secure: Secure::default(),
            held: Held::new(settings.max_held),
            older: Older::default(),
            next_exchange: 0,
            wall_offset_ns: None,
        }
    }

    /// Takes one event, masks its payload in place, and appends what it means to `out`.
    pub fn feed(&mut self, event: Event<'_>, health: &mut Health, out: &mut Vec<Tracked>) {
        match event {
            Event::SocketData(data, payload) => {
                let (connections, mut cx) = self.split(health, out);
                connections.data(&data, payload, &mut cx);
            }
            Event::SocketOpen(open) => {
                let (connections, mut cx) = self.split(health, out);
                connections.open(&open, &mut cx);
            }
            Event::SocketState(state) => {
                let (connections, mut cx) = self.split(health, out);
                connections.state(&state, &mut cx);
            }
            Event::SocketAck(ack) => {
                let (connections, mut cx) = self.split(health, out);
                connections.ack(&ack, &mut cx);
            }
            Event::SocketListen(listen) => {
                self.processes.listen(listen.header.tgid, listen.netns, listen.port, health);
            }
            event @ (Event::Step(_) | Event::Tally(_) | Event::Memory(_)) => self.cuda(&event, health, out),
            Event::Exec(record) => self.processes.exec(&record),
            Event::Fork(record) => self.processes.fork(&record, health),
            Event::Exit(record) => self.exit(record.header.tgid, 0, Stamp::from(&record.header), health, out),
            Event::TlsVerdict(found) => match self.processes.service(found.header.tgid) {
                Some(service) => self.secure.found(service, &found, |id| self.processes.knows(id)),
                None => health.ignore("tls_without_service"),
            },
            // For discovery; it answers with an observation when the process matters.
            Event::CudaSeen(record) if record.child == record.header.tgid => {
                self.processes.admitted(&record, health);
            }
            Event::CudaSeen(_) => health.ignore("cuda_seen"),
            // What they tell is kept beside the tracker, in `coverage` and `placement`.
            Event::Resolved(_) | Event::Rare(_) | Event::Context(_) => {}
            Event::Observation(at, observation) => self.observation(at, *observation, health, out),
        }
    }

    /// Work of a process's GPU goes to the service that it belonged to then.
    fn cuda(&self, event: &Event<'_>, health: &mut Health, out: &mut Vec<Tracked>) {
        let service = |header: &Header| self.processes.service_at(header.tgid, header.time_ns);
        match *event {
            Event::Step(cuda::CountedStep { step, fresh: work }) => match service(&step.header) {
                Some(service) => {
                    out.push(Tracked::Counted { service, work, captured: 0 });
                    out.push(Tracked::Step { service, step });
                }
                None => health.ignore("step_without_service"),
            },
            Event::Tally(cuda::Tally { header, work, captured, .. }) => match service(&header) {
                Some(service) => out.push(Tracked::Counted { service, work, captured }),
                None => health.ignore("tally_without_service"),
            },
            Event::Memory(memory) => match service(&memory.header) {
                Some(service) => out.push(Tracked::Memory { service, memory }),
                None => health.ignore("memory_without_service"),
            },
            _ => {}
        }
    }

    /// Name of a service, as exported; empty for an id that was never given, or whose processes are gone for long.
    pub fn service_name(&self, id: ServiceId) -> &str {
        self.processes.service_name(id)
    }

    /// Key of a service: unlike its name no other has it. Empty for an id that was never given.
    pub fn service_key(&self, id: ServiceId) -> &str {
        self.processes.service_key(id)
    }

    /// Key of the service of a process that did something at a time.
    pub fn service_key_at(&self, pid: u32, time_ns: u64) -> Option<&str> {
        self.processes.service_at(pid, time_ns).map(|id| self.service_key(id))
    }

    /// Name of the service of a process that did something at a time.
    pub fn service_of(&self, pid: u32, time_ns: u64) -> Option<&str> {
        self.processes.service_at(pid, time_ns).map(|id| self.service_name(id))
    }

    /// Name of a process of a service, also for a while after its end.
    pub fn comm(&self, pid: u32) -> Option<&str> {
        self.processes.comm(pid)
    }

    /// Container of a process of a service, likewise; `None` when it is in none.
    pub fn container(&self, pid: u32) -> Option<&str> {
        self.processes.container(pid)
    }

    /// The wall clock (ns since the Unix epoch) at a monotonic time, by the last clock observation.
    pub fn wall_ns(&self, mono_ns: u64) -> Option<u64> {
        u64::try_from(i128::from(mono_ns) + self.wall_offset_ns?).ok()
    }

    /// TLS of services, as far as it was seen.
    pub fn tls(&self) -> impl Iterator<Item = (ServiceId, TlsCounts)> {
        self.secure.iter()
    }

    /// Connections that services had accepted before they were watched, as far as they were found.
    pub fn older(&self) -> impl Iterator<Item = (ServiceId, u64)> {
        self.older.iter()
    }

    /// Connections that services have accepted and not closed.
    pub fn accepted(&self) -> impl Iterator<Item = ServiceId> {
        self.connections.accepted(&self.processes)
    }

    /// Bytes that services moved over the network since this was last asked.
    pub fn take_moved(&mut self) -> impl Iterator<Item = (ServiceId, Traffic)> + '_ {
        self.connections.moved.take()
    }

    /// Connections in the table, those included that carry no exchanges.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Bytes held for what peers have sent, about: what a connection costs by itself is not in it.
    pub fn held(&self) -> usize {
        self.held.bytes()
    }

    fn split<'a>(
        &'a mut self,
        health: &'a mut Health,
        out: &'a mut Vec<Tracked>,
    ) -> (&'a mut Connections, Context<'a>) {
        let cx = Context {
            processes: &self.processes,
            health,
            out,
            held: &mut self.held,
            next_exchange: &mut self.next_exchange,
            older: &mut self.older,
            client: None,
        };
        (&mut self.connections, cx)
    }

    fn observation(
        &mut self,
        at: Stamp,
        observation: Observation,
        health: &mut Health,
        out: &mut Vec<Tracked>,
    ) {
        match observation {
            Observation::Clock { wall_ns } => {
                self.wall_offset_ns = Some(i128::from(wall_ns) - i128::from(at.time_ns));
                out.push(Tracked::Tick { time_ns: at.time_ns });
            }
            Observation::Process(seen) => {
                if let Some(service) = self.processes.seen(&seen, health) {
                    self.ended(seen.pid, service, at, health, out);
                }
            }
            Observation::ProcessGone { pid, start_ticks } => self.exit(pid, start_ticks, at, health, out),
            Observation::KernelCounters { counters } => health.kernel = counters,
            // What is open now has not ended: it is not reported as if it had.
            Observation::End => out.push(Tracked::End { time_ns: at.time_ns }),
            // What is told of GPUs is kept beside the tracker, in `device` and `placement`.
            Observation::Start { .. }
            | Observation::Nvml(_)
            | Observation::GpuProcess(_)
            | Observation::ServiceUse(_) => {}
        }
    }

    fn exit(&mut self, pid: u32, start_ticks: u64, at: Stamp, health: &mut Health, out: &mut Vec<Tracked>) {
        if let Some(service) = self.processes.exit(pid, start_ticks, at.time_ns) {
            self.ended(pid, service, at, health, out);
        }
    }

    fn ended(
        &mut self,
        pid: u32,
        service: ServiceId,
        at: Stamp,
        health: &mut Health,
        out: &mut Vec<Tracked>,
    ) {
        let last = !self.processes.is_living(service);
        let (connections, mut cx) = self.split(health, out);
        if last {
            connections.exit(pid, at, &mut cx);
        }
        out.push(Tracked::ProcessExit { service, pid, last, time_ns: at.time_ns });
    }
}

#[cfg(test)]
mod tests;
