//! What is kept of one service: its GPU processes, its requests in flight, its writers and its lags.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    busy::Busy,
    deadlines::Deadlines,
    lag::Lags,
    live::{Doubts, Writers},
    queue::Flow,
    ranks::Ranks,
    replicas::{self, Models, Seek},
    step::{StepInfo, StepLog},
    told::Told,
};
use crate::track::ExchangeId;

/// GPU processes kept per service.
const PROCESSES_KEPT: usize = 64;
/// Disjoint intervals of calls of a kind kept per process.
const CALLS_KEPT: usize = 16_384;
/// An engine without a step for this long has nothing left to do.
const IDLE_NS: u64 = 100_000_000;
/// An engine may go on with an aborted request for as long as this.
const LEFTOVER_NS: u64 = 30_000_000_000;
/// A service has requests without content events when it had one within this time.
const BLUR_NS: u64 = 60_000_000_000;

/// One GPU process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// Its steps.
    pub(crate) log: StepLog,
    /// Its memory calls.
    pub(crate) memory: Calls,
    /// Its waits for mere copies.
    pub(crate) copies: Calls,
}

/// When a process was in calls of a kind.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    busy: Busy,
    lost_ns: u64,
}

impl Calls {
    /// Adds a call; true when an old one had to go for it.
    pub(crate) fn add(&mut self, begin: u64, end: u64) -> bool {
        self.busy.add(begin, end);
        if self.busy.len() <= CALLS_KEPT {
            return false;
        }
        self.lost_ns = self.busy.drop_oldest().unwrap_or_default();
        true
    }

    /// Time in them within `[from, to]`; `None` when some were forgotten.
    pub(crate) fn within(&self, from: u64, to: u64) -> Option<u64> {
        (self.lost_ns < from || self.lost_ns == 0).then(|| self.busy.measure(from, to))
    }
}

/// The process whose steps are a request's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Engine {
    /// Its process id.
    pub(crate) pid: u32,
    /// No other process of the service had steps meanwhile.
    pub(crate) only: bool,
}

/// What can be said of the process that worked for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// No process had a step that could be the request's.
    Idle,
    /// This one.
    One(Engine),
    /// Several had, and nothing tells which counts.
    Several,
}

/// One service.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// Its GPU processes, by process id.
    pub(crate) processes: BTreeMap<u32, Process>,
    /// Requests in flight, by the time they were read.
    pub(crate) live: BTreeSet<(u64, ExchangeId)>,
    /// Its writing threads.
    pub(crate) writers: Writers,
    /// How long its results take to the socket.
    pub(crate) lags: Lags,
    /// How long its requests were silent while the engine worked for them.
    pub(crate) flow: Flow,
    /// After how long its clients give up.
    pub(crate) deadlines: Deadlines,
    /// Which of its GPU processes run each step together.
    ranks: Ranks,
    /// At which of its engines the requests of each model were.
    models: Models,
    /// End of the last request that was cut off, while the engine may still be busy with it.
    cut_off_ns: Option<u64>,
    /// Ends that tell something of all requests in flight.
    pub(crate) doubts: Doubts,
    /// End of the last request whose steps are not known.
    blurred_ns: Option<u64>,
    /// End of the last request.
    left_ns: u64,
    /// End of the last step that no request can have been in: a dummy, a probe, background work.
    stray_ns: Option<u64>,
    /// End of the last request that was seen to get several tokens in a step.
    pub(crate) bursts_ns: Option<u64>,
    /// Steps that no request can claim any more, until they are taken.
    over: Vec<Told>,
}

impl Service {
    /// The process with this id; makes room for it by forgetting the one that was silent longest, and says whether
    /// that was necessary.
    pub(crate) fn process(&mut self, pid: u32) -> (&mut Process, bool) {
        let full = !self.processes.contains_key(&pid) && self.processes.len() >= PROCESSES_KEPT;
        if full {
            let silent = self.processes.iter().min_by_key(|(_, p)| p.log.last_end()).map(|(pid, _)| *pid);
            silent.map(|pid| self.processes.remove(&pid));
        }
        (self.processes.entry(pid).or_default(), full)
    }

    /// Adds a step; true when something old had to go for it.
    pub(crate) fn step(&mut self, pid: u32, step: StepInfo, returns_data: bool) -> bool {
        self.writers.step(step.tid);
        let compared = self.ranks.told(pid, &self.processes);
        let is_stray = self.live.is_empty() && step.begin > self.left_ns;
        let (process, forgot) = self.process(pid);
        let idle_before = step.begin > process.log.last_end().saturating_add(IDLE_NS);
        process.log.returns_data |= returns_data;
        let evicted = process.log.push(step);
        if idle_before {
            self.cut_off_ns = None;
        }
        if is_stray && !self.leftovers(step.begin) {
            self.stray_ns = self.stray_ns.max(Some(step.end));
        }
        // Those that are in flight may still have been in it.
        self.over.extend(evicted.map(|step| Told { pid, step: StepInfo { doubtful: 1, ..step } }));
        forgot || evicted.is_some() || !compared
    }

    /// A request was cut off: the engine may not know yet.
    pub(crate) fn cut_off(&mut self, time_ns: u64) {
        self.cut_off_ns = self.cut_off_ns.max(Some(time_ns));
    }

    /// A request is over.
    pub(crate) fn left(&mut self, time_ns: u64) {
        self.left_ns = self.left_ns.max(time_ns);
    }

    /// Around `t` the engine runs steps for no request, so that one between the read of a request and its own may be
    /// such a one.
    pub(crate) fn strays(&self, t: u64) -> bool {
        self.stray_ns.is_some_and(|last| t < last.saturating_add(BLUR_NS))
    }

    /// Around `t` a step gives a request several tokens, as with speculative decoding.
    pub(crate) fn bursts(&self, t: u64) -> bool {
        self.bursts_ns.is_some_and(|last| t < last.saturating_add(BLUR_NS))
    }

    /// At `t` the engine may still have been busy with a request that is over.
    pub(crate) fn leftovers(&self, t: u64) -> bool {
        self.cut_off_ns.is_some_and(|cut| t < cut.saturating_add(LEFTOVER_NS))
    }

    /// A request ended whose steps are not known.
    pub(crate) fn blur(&mut self, time_ns: u64) {
        self.blurred_ns = self.blurred_ns.max(Some(time_ns));
        self.doubts.blurs += 1;
    }

    /// A request ended whose steps are likely at best: until then it was in none, for all that was known.
    pub(crate) fn haze(&mut self, time_ns: u64) {
        self.blurred_ns = self.blurred_ns.max(Some(time_ns));
    }

    /// Around `t`, a request in flight without content may be in any step, for all that is known.
    pub(crate) fn blurred(&self, t: u64) -> bool {
        self.blurred_ns.is_some_and(|last| t < last.saturating_add(BLUR_NS))
    }

    /// Processes with a step that may be of a request that lived in `[from, to]`, and whether they bring results back.
    fn active(&self, from: u64, to: u64) -> Vec<(u32, bool)> {
        let active = self.processes.iter().filter(|(_, p)| p.log.begun_after(from) < p.log.ended_by(to));
        active.map(|(pid, p)| (*pid, p.log.returns_data)).collect()
    }

    /// The engine of a request that process `reader` read and that lived in `[from, to]`: the reader itself if it
    /// has steps, else the only process that has, else the only one that brings results back, else the first of those
    /// that run each step together.
    pub(crate) fn engine(&self, reader: u32, from: u64, to: u64) -> Choice {
        let active = self.active(from, to);
        let one = |pid| Choice::One(Engine { pid, only: active.len() == 1 });
        let mut outputs = active.iter().filter(|(_, returns)| *returns);
        match (active.as_slice(), outputs.next(), outputs.next()) {
            ([], ..) => Choice::Idle,
            ([(pid, _)], ..) => one(*pid),
            _ if active.iter().any(|(pid, _)| *pid == reader) => one(reader),
            (_, Some((pid, _)), None) => one(*pid),
            _ => match self.ranks.engines(&active).as_slice() {
                [pid] => one(*pid),
                _ => Choice::Several,
            },
        }
    }

    /// The same where several engines may have had it: what its model and its token times tell.
    pub(crate) fn engine_of(&self, reader: u32, to: u64, seek: Seek<'_>) -> Choice {
        match self.engine(reader, seek.read, to) {
            Choice::Several => {
                let engines = self.ranks.engines(&self.active(seek.read, to));
                let chosen = replicas::choose(seek, &engines, &self.processes, &self.models);
                chosen.map_or(Choice::Several, |pid| Choice::One(Engine { pid, only: false }))
            }
            choice => choice,
        }
    }

    /// Engines that may have had a request that lived in `[from, to]`.
    pub(crate) fn engines(&self, from: u64, to: u64) -> Vec<u32> {
        self.ranks.engines(&self.active(from, to))
    }

    /// A request of a model was at an engine.
    pub(crate) fn was_at(&mut self, model: Option<&str>, engine: u32) {
        if let Some(model) = model.filter(|_| self.processes.len() > 1) {
            self.models.was_at(model, engine);
        }
    }

    /// Forgets what no request in flight, and none to come, can need; `now` is the time of the latest event.
    pub(crate) fn prune(&mut self, now: u64) {
        let floor = self.live.first().map_or(now, |(read, _)| *read);
        for (&pid, process) in &mut self.processes {
            process.log.prune(floor, &mut |step| self.over.push(Told { pid, step }));
            process.memory.busy.prune(floor);
            process.copies.busy.prune(floor);
        }
    }

    /// Takes the steps that no request can claim any more; of ranks those of the one that requests are given to.
    pub(crate) fn take_over(&mut self) -> impl Iterator<Item = Told> {
        let over = std::mem::take(&mut self.over);
        // Asked for with each event, and mostly there is none.
        let asked = if over.is_empty() { 0 } else { self.processes.len() };
        let all: Vec<_> =
            self.processes.iter().take(asked).map(|(pid, p)| (*pid, p.log.returns_data)).collect();
        let engines = self.ranks.engines(&all);
        let follows = move |pid: u32| all.iter().any(|one| one.0 == pid) && !engines.contains(&pid);
        over.into_iter().filter(move |told| !follows(told.pid))
    }

    /// Nothing comes any more: requests in flight may have been in any step since they were read.
    pub(crate) fn end(&mut self) {
        for (&pid, process) in &mut self.processes {
            self.live.iter().for_each(|(read, _)| process.log.doubt(*read, u64::MAX));
            process.log.prune(u64::MAX, &mut |step| self.over.push(Told { pid, step }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(begin: u64, end: u64) -> StepInfo {
        StepInfo { begin, end, tid: 1, ..StepInfo::default() }
    }

    /// Steps of processes 10, 11, … with whether they bring data back.
    fn service(processes: &[(&[(u64, u64)], bool)]) -> Service {
        let mut service = Service::default();
        for (pid, (steps, returns)) in (10..).zip(processes) {
            for (b, e) in *steps {
                service.step(pid, step(*b, *e), *returns);
            }
        }
        service
    }

    #[test]
    fn which_process_is_the_engine() {
        let busy: &[(u64, u64)] = &[(100, 200), (200, 300)];
        let early: &[(u64, u64)] = &[(1, 2)];
        let engine = |pid, only| Choice::One(Engine { pid, only });
        let cases = [
            ("none", service(&[]), 1, Choice::Idle),
            ("one", service(&[(busy, false)]), 1, engine(10, true)),
            ("one, another was busy once", service(&[(early, true), (busy, false)]), 1, engine(11, true)),
            ("reader among several", service(&[(busy, false), (busy, true)]), 10, engine(10, false)),
            ("output rank", service(&[(busy, false), (busy, true)]), 1, engine(11, false)),
            ("two that return data", service(&[(busy, true), (busy, true)]), 1, Choice::Several),
        ];
        for (name, service, reader, want) in cases {
            assert_eq!(service.engine(reader, 50, 400), want, "{name}");
        }
    }

    #[test]
    fn steps_of_ranks_are_told_once() {
        let told_by = |offset: u64| {
            let mut service = Service::default();
            for n in 1..30 {
                for pid in [10, 11] {
                    let begin = n * 20_000_000 + u64::from(pid - 10) * offset;
                    service.step(pid, step(begin, begin + 10_000_000), true);
                }
            }
            service.end();
            service.take_over().map(|told| told.pid).fold([0, 0], |mut count, pid| {
                count[usize::from(pid != 10)] += 1;
                count
            })
        };
        assert_eq!(told_by(100_000), [29, 0], "ranks");
        assert_eq!(told_by(7_000_000), [29, 29], "replicas");
    }

    #[test]
    fn leftovers_end_when_the_engine_was_idle() {
        let mut service = service(&[(&[(100, 200)], true)]);
        service.cut_off(250);
        service.step(10, step(210, 300), true);
        assert!(service.leftovers(300));
        service.step(10, step(301 + IDLE_NS, 400 + IDLE_NS), true);
        assert!(!service.leftovers(500 + IDLE_NS));
        service.cut_off(1_000_000_000);
        assert!(service.leftovers(2_000_000_000) && !service.leftovers(1_000_000_000 + LEFTOVER_NS));
    }

    #[test]
    fn processes_are_bounded() {
        let mut service = Service::default();
        let forgot = (0_u32..).take(PROCESSES_KEPT + 3).filter(|i| {
            let t = 100 * u64::from(*i);
            service.step(*i, step(t, t + 1), false)
        });
        assert_eq!(forgot.count(), 3);
        assert_eq!(service.processes.keys().next(), Some(&3));
    }
}
