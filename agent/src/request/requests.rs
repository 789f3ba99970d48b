//! Joining what tracking says of requests and of steps, request by request.

mod settle;

use std::collections::{BTreeMap, VecDeque};

use wire::{counter::Counter, cuda};

use super::{
    align::Scratch,
    assign::Assignment,
    deadlines::Deadline,
    live::{First, Live},
    nesting::{Begun, Nesting},
    queue::Waiting,
    record::{Confidence, Outcome},
    services::Services,
    step::StepInfo,
    told::Told,
};
use crate::{
    health::Health,
    track::{Client, ContentEvent, Delivery, Exchange, ExchangeId, ServiceId, Sight, Tracked},
};

/// Requests in flight that are remembered.
const LIVE_KEPT: usize = 65_536;

/// Counters of losses after which a step or a request may be missing.
const LOSSES: [Counter; 4] = [Counter::DropSocket, Counter::DropStep, Counter::DropProcess, Counter::MapFull];

/// What became final.
#[derive(Debug)]
pub enum Settled {
    /// A request is over.
    Request(Box<Ended>),
    /// The answer of a request is with the client, or that will never be known.
    Delivered(ExchangeId, Option<Delivery>),
    /// A GPU step of a process of a service, of whatever work.
    Step(ServiceId, cuda::Step),
    /// A step, and which requests were in it: when none can claim it any more.
    Told(ServiceId, Told),
    /// Work of a process of a service that was not counted before, and captured launches.
    Counted(ServiceId, cuda::Work, u64),
    /// A memory call of a process of a service.
    Memory(ServiceId, wire::memory::Call),
}

/// A request that is over, and its steps.
#[derive(Debug)]
pub struct Ended {
    /// What the wire told.
    pub exchange: Exchange,
    /// Its steps; the default when its beginning or end was not seen.
    pub assignment: Assignment,
    /// When clients of the service give up, where this one did so.
    pub deadline: Option<Deadline>,
    /// The server behind the one that the client talked to, where a request went through several.
    pub inner: Option<Inner>,
}

/// What the last server in a chain says of a request that came to it through others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inner {
    /// Exchanges that belong to the request beside the client's own.
    pub count: u64,
    /// Service of the process.
    pub service: Option<ServiceId>,
    /// Process that read the request.
    pub pid: u32,
    /// Port it was accepted on.
    pub local_port: Option<u16>,
    /// First request byte arrived there.
    pub first_byte_in_ns: Option<u64>,
    /// Last request byte read.
    pub read_done_ns: Option<u64>,
    /// First content-bearing event written, of a stream.
    pub first_token_ns: Option<u64>,
    /// Last response byte written.
    pub last_byte_out_ns: Option<u64>,
}

/// Requests and steps of all services. Pure: time comes from what it is given.
#[derive(Debug, Default)]
pub struct Requests {
    live: BTreeMap<ExchangeId, Live>,
    services: Services,
    nesting: Nesting,
    /// Requests that became whole.
    whole: VecDeque<Box<Ended>>,
    scratch: Scratch,
    /// Records that the kernel side has lost, as last seen.
    losses: u64,
}

impl Requests {
    /// Nothing known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one piece of news and appends what became final to `out`.
    pub fn apply(&mut self, tracked: Tracked, health: &mut Health, out: &mut Vec<Settled>) {
        match tracked {
            Tracked::Begun { exchange, pid, listener, time_ns } => {
                let begun = Begun { pid, listener, time_ns };
                self.nesting.begun(exchange, begun, health, &mut self.whole);
            }
            Tracked::Forgotten { exchange } => {
                self.nesting.forget(exchange, health, &mut self.whole);
                self.hand_out(health, out);
            }
            Tracked::RequestRead { exchange, service, time_ns, tid, client, sight } => {
                self.forwarded(exchange, service, client, *sight);
                self.read(exchange, service, time_ns, tid, health);
            }
            Tracked::Content { exchange, event } => self.content(exchange, event, health),
            Tracked::Finished(exchange) => self.finished(*exchange, health, out),
            Tracked::Delivered { exchange, delivery } => {
                if !self.nesting.delivered(exchange, delivery) {
                    out.push(Settled::Delivered(exchange, delivery));
                }
            }
            Tracked::Step { service, step } => {
                self.step(service, &step, health);
                out.push(Settled::Step(service, step));
            }
            Tracked::Counted { service, work, captured } => {
                out.push(Settled::Counted(service, work, captured));
            }
            Tracked::Memory { service, memory } => {
                self.memory(service, &memory, health);
                out.push(Settled::Memory(service, memory));
            }
            // Its steps stop by themselves, and are needed until the requests that they served are over.
            Tracked::ProcessExit { service, last, time_ns, .. } => self.process_left(service, last, time_ns),
            Tracked::WantWhole(_) => {}
            Tracked::Tick { time_ns } => {
                self.notice_losses(health);
                self.services.prune(time_ns);
                out.extend(self.services.over().map(|(id, told)| Settled::Told(id, told)));
                self.nesting.tick(time_ns, health, &mut self.whole);
                self.hand_out(health, out);
            }
            Tracked::End { .. } => {
                self.nesting.end(health, &mut self.whole);
                self.hand_out(health, out);
                self.services.end();
                out.extend(self.services.over().map(|(id, told)| Settled::Told(id, told)));
                health.limit_by("requests_unfinished_at_end", self.live.len() as u64);
                *self = Self::default();
            }
        }
    }

    /// Requests in flight, by service; services with none are among them.
    pub fn in_flight(&self) -> impl Iterator<Item = (ServiceId, usize)> {
        self.services.iter().map(|(id, service)| (id, service.live.len()))
    }

    /// Requests that wait for an engine, by service.
    pub fn waiting(&self) -> impl Iterator<Item = (ServiceId, Waiting)> {
        let is_silent = |id: &ExchangeId| self.live.get(id).is_some_and(|live| live.first.is_none());
        self.services.iter().map(move |(id, service)| {
            let silent = service.live.iter().filter(|(_, id)| is_silent(id)).count() as u64;
            (id, service.flow.waiting(silent))
        })
    }

    /// A service has no request in flight.
    pub fn is_idle(&self, service: ServiceId) -> bool {
        self.services.get(service).is_none_or(|service| service.live.is_empty())
    }

    /// A request that one in flight seems to be forwarded by takes its place in the books of a common service, so
    /// that nothing counts twice.
    fn forwarded(&mut self, id: ExchangeId, service: ServiceId, client: Option<Client>, sight: Sight) {
        let Some(outer) = self.nesting.read(id, client, sight) else { return };
        let Some(live) = self.live.get_mut(&outer).filter(|live| live.service == service) else { return };
        live.forwarded = true;
        if let (Some(service), Some(read)) = (self.services.get_mut(service), live.read_ns) {
            service.live.remove(&(read, outer));
        }
    }

    fn read(&mut self, id: ExchangeId, service_id: ServiceId, read: u64, tid: u32, health: &mut Health) {
        if self.live.len() >= LIVE_KEPT {
            health.limit("requests_in_flight");
            self.forget_oldest();
        }
        let Some(service) = self.services.open(service_id, health) else { return };
        // Only the first of several can have been alone until now.
        if let (1, Some((_, only))) = (service.live.len(), service.live.first())
            && let Some(other) = self.live.get_mut(only)
        {
            other.joined_ns.get_or_insert(read);
        }
        let live = Live {
            service: service_id,
            read_ns: Some(read),
            reader_tid: tid,
            alone_at_read: service.live.is_empty(),
            doubts: service.doubts,
            joined_ns: None,
            forwarded: false,
            blurred: false,
            first: None,
            boundary_ns: 0,
            one_thread: true,
        };
        service.live.insert((read, id));
        self.live.insert(id, live);
    }

    fn content(&mut self, id: ExchangeId, event: ContentEvent, health: &mut Health) {
        let known = self.live.get_mut(&id);
        let Some((live, service)) = known.and_then(|l| self.services.get_mut(l.service).map(|s| (l, s)))
        else {
            health.ignore("content_of_unknown_request");
            return;
        };
        if live.forwarded {
            return;
        }
        live.one_thread &= event.tid == live.reader_tid;
        if live.first.is_some() {
            service.writers.more(id, event);
            return;
        }
        let boundary_ns = service.writers.begin(id, event);
        let company = service.live.len() > 1;
        live.first = Some(First { time_ns: event.time_ns, tid: event.tid, boundary_ns, company });
    }

    fn step(&mut self, id: ServiceId, step: &cuda::Step, health: &mut Health) {
        let Some(service) = self.services.open(id, health) else { return };
        let Some(info) = StepInfo::new(step) else {
            health.ignore("marker_without_launch");
            if step.work.copies > 0
                && service.process(step.header.tgid).0.copies.add(step.enter_ns, step.header.time_ns)
            {
                health.limit("copy_waits");
            }
            return;
        };
        if service.step(step.header.tgid, info, step.work.d2h_bytes > 0) {
            health.limit("steps");
        }
    }

    fn memory(&mut self, id: ServiceId, memory: &wire::memory::Call, health: &mut Health) {
        let Some(service) = self.services.open(id, health) else { return };
        let (process, forgot) = service.process(memory.header.tgid);
        let evicted = process.memory.add(memory.enter_ns, memory.header.time_ns);
        if forgot || evicted {
            health.limit("memory_calls");
        }
    }

    fn finished(&mut self, mut exchange: Exchange, health: &mut Health, out: &mut Vec<Settled>) {
        let live = self.leave(&exchange);
        // The steps of a request that was forwarded are those of the request that it became, unless this service has
        // some too.
        let is_forwarded = self.nesting.answered(&exchange, health, &mut self.whole);
        let deadline = self.deadline(&exchange);
        if deadline.is_some() {
            exchange.outcome = Some(Outcome::Timeout);
        }
        let own = live.filter(|live| !exchange.probe && !live.forwarded);
        let own = own.filter(|live| !is_forwarded || self.may_work(&exchange, live));
        let assignment = own.map(|live| self.settle(&exchange, &live)).unwrap_or_default();
        let now =
            exchange.last_byte_out_ns.max(exchange.close_ns).max(exchange.read_done_ns).unwrap_or_default();
        let ended = Box::new(Ended { exchange, assignment, deadline, inner: None });
        self.nesting.over(ended, now, health, &mut self.whole);
        self.hand_out(health, out);
    }

    /// The deadline of the client, if it ran out. What a proxy gives up is its client's, which counts there.
    fn deadline(&mut self, exchange: &Exchange) -> Option<Deadline> {
        if exchange.probe || exchange.id.is_some_and(|id| self.nesting.is_inner(id)) {
            return None;
        }
        self.services.get_mut(exchange.service?)?.deadlines.over(exchange)
    }

    /// Hands out the requests that became whole.
    fn hand_out(&mut self, health: &mut Health, out: &mut Vec<Settled>) {
        for ended in self.whole.drain(..) {
            if ended.exchange.probe {
                health.count("probe");
                continue;
            }
            health.count(match ended.assignment.confidence {
                Some(Confidence::Exact) => "exact",
                Some(Confidence::Estimated) => "estimated",
                Some(Confidence::Bounded) => "bounded",
                None => "without_stages",
            });
            out.push(Settled::Request(ended));
        }
    }

    /// Takes a request out of the books.
    fn leave(&mut self, exchange: &Exchange) -> Option<Live> {
        let live = exchange.id.and_then(|id| self.live.remove(&id));
        let id = live.as_ref().map(|l| l.service).or(exchange.service)?;
        let service = self.services.get_mut(id)?;
        let end = exchange.last_byte_out_ns.max(exchange.close_ns);
        if live.as_ref().is_some_and(|live| live.forwarded) {
            return live;
        }
        service.left(end.unwrap_or_default());
        if cut_off(exchange.outcome)
            && let Some(end) = end
        {
            service.cut_off(end);
        }
        let Some(mut live) = live else {
            // It was in flight all the time without being known: nobody was as alone as it seemed.
            service.doubts.strangers += 1;
            return None;
        };
        live.doubt(service.doubts);
        let id = exchange.id?;
        if let Some(read) = live.read_ns {
            service.live.remove(&(read, id));
        }
        if let Some(time_ns) = exchange.last_byte_out_ns {
            let last = ContentEvent { time_ns, tid: live.first.map_or(live.reader_tid, |f| f.tid) };
            let worked = !exchange.probe && exchange.status.is_none_or(|s| s < 400);
            live.boundary_ns = service.writers.end(id, last, live.first.is_some(), worked);
        }
        Some(live)
    }

    /// Where the kernel side lost records, a step or a request may be missing: what is in flight is not exact.
    fn notice_losses(&mut self, health: &Health) {
        let lost = LOSSES.iter().filter_map(|counter| health.kernel.get(counter.name())).sum();
        if lost > self.losses {
            for live in self.live.values_mut() {
                live.alone_at_read = false;
                live.one_thread = false;
            }
        }
        self.losses = lost;
    }

    fn process_left(&mut self, id: ServiceId, last: bool, now: u64) {
        if let Some(service) = self.services.get_mut(id) {
            service.prune(now);
        }
        if last {
            self.services.left(id);
        }
    }

    fn forget_oldest(&mut self) {
        let Some((id, live)) = self.live.pop_first() else { return };
        if let (Some(service), Some(read)) = (self.services.get_mut(live.service), live.read_ns) {
            service.live.remove(&(read, id));
            service.cut_off(read);
        }
    }
}

/// The engine may go on with a request that ended like this.
fn cut_off(outcome: Option<Outcome>) -> bool {
    matches!(
        outcome,
        None | Some(Outcome::ClientDisconnect | Outcome::Truncated | Outcome::Timeout | Outcome::Unknown)
    )
}

#[cfg(test)]
#[path = "requests/tests.rs"]
mod tests;
