//! [5] Who stands in whose way on a device: overlap in time, and what it does to the time of steps.
//!
//! A process has work on a device from the first launch of a step to its result: an upper bound, since the device may
//! idle in between. Two processes overlap while both have. Whether that costs anything is seen from the steps
//! themselves: the median time of those in company against that of like ones alone. Without enough of both there is
//! no answer.
//!
//! Steps are compared once everything that can overlap them is known: records come at the end of a step, so that the
//! longest step of the device says how long that takes.

mod samples;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wire::cuda;

use crate::{health::Health, request::Busy};
use samples::{Class, Times};

/// Processes that are told apart on one device.
const MAX_PARTIES: usize = 32;
/// Classes of steps that are told apart of one process.
const MAX_CLASSES: usize = 8;
/// Steps of one device that wait to be compared.
const MAX_WAITING: usize = 65_536;
/// Intervals kept of one process.
const MAX_SPANS: usize = 65_536;
/// A step is compared this long after its end, or after the longest step of the last minute.
const PATIENCE_NS: u64 = 2_000_000_000;
/// A longer one is not waited for, nor compared: training that looks at its loss once a minute is.
const MAX_PATIENCE_NS: u64 = 90_000_000_000;
/// For how long the longest step is remembered.
const MEMORY_NS: u64 = 60_000_000_000;
/// A step is in the company of another process if that had work during this share of it (in percent), and alone if
/// all others together had during less than the second.
const COMPANY_PERCENT: u64 = 10;
const SOLO_PERCENT: u64 = 1;
/// Of the time that a process was compared in, so much (in percent) may turn out to have been in company: the median
/// of what counted as alone is then the 67th percentile of what was.
const LATE_PERCENT: u64 = 25;
/// Steps after which what was late counts half.
const LATE_STEPS: u64 = 2_048;
/// Steps alone and in company that an answer takes.
const MIN_STEPS: u64 = 20;
/// Steps this much longer are a finding.
const INFLATED: f64 = 1.1;

/// What company does to the steps of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// They are longer.
    Contended,
    /// They are not.
    NoEffect,
    /// There are too few of them alone, or in company, to tell.
    InsufficientData,
}

/// A process whose steps are looked at, and another one on the same device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pair {
    pub(crate) victim: u32,
    pub(crate) aggressor: u32,
    /// How long both had work there, ns.
    pub(crate) overlap_ns: u64,
    /// Median time of the victim's steps in company over that of like ones alone, over the classes that have enough of
    /// both, weighted by the steps in company.
    pub(crate) inflation: Option<f64>,
    /// Steps alone and in company that it rests on, or that there are.
    pub(crate) solo: u64,
    pub(crate) company: u64,
}

impl Pair {
    pub(crate) fn verdict(&self) -> Verdict {
        match self.inflation {
            Some(ratio) if ratio >= INFLATED && self.overlap_ns > 0 => Verdict::Contended,
            Some(_) => Verdict::NoEffect,
            None => Verdict::InsufficientData,
        }
    }
}

/// One device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matrix {
    parties: BTreeMap<u32, Party>,
    /// By end, process and number.
    waiting: BTreeMap<(u64, u32, u64), Waiting>,
    number: u64,
    /// Everything that ended before is compared.
    done_ns: u64,
    longest: Longest,
    /// By the smaller and the larger process id, ns.
    overlaps: BTreeMap<(u32, u32), u64>,
    /// What of it came to light when its time was already compared.
    late: BTreeMap<(u32, u32), u64>,
}

#[derive(Clone, Debug, Default)]
struct Party {
    busy: Busy,
    /// Result of the last step that was compared.
    last_end: u64,
    /// End of the last step of all.
    last_ns: u64,
    classes: BTreeMap<Class, Times>,
    /// Steps compared, and their time, ns; how much of it was in company that came to light too late, ns.
    compared: u64,
    compared_ns: u64,
    late_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    begin: u64,
    class: Option<Class>,
}

/// The longest step of the last minute or two.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "each says its unit")]
struct Longest {
    since_ns: u64,
    now_ns: u64,
    before_ns: u64,
}

impl Longest {
    fn add(&mut self, step_ns: u64, at_ns: u64) {
        if at_ns > self.since_ns.saturating_add(MEMORY_NS) {
            *self = Self { since_ns: at_ns, now_ns: 0, before_ns: self.now_ns };
        }
        self.now_ns = self.now_ns.max(step_ns);
    }

    fn patience(self) -> u64 {
        self.now_ns.max(self.before_ns).clamp(PATIENCE_NS, MAX_PATIENCE_NS)
    }
}

impl Matrix {
    /// Takes a step of a process; how much longer its work has taken by that, ns.
    pub(crate) fn add(&mut self, pid: u32, begin: u64, step: &cuda::Step, health: &mut Health) -> u64 {
        let end = step.header.time_ns;
        self.make_room(pid, health);
        self.longest.add(end - begin, end);
        self.parties.entry(pid).or_default();
        let known = self.shared(pid, begin, end);
        let party = self.parties.entry(pid).or_default();
        let before = party.busy.measure(0, u64::MAX);
        party.busy.add(begin, end);
        party.last_ns = party.last_ns.max(end);
        let more = party.busy.measure(0, u64::MAX) - before;
        if party.busy.len() > MAX_SPANS {
            party.busy.drop_oldest();
            health.limit("contention_spans");
        }
        self.late(pid, &known, begin, end, health);
        if end <= self.done_ns {
            health.limit("contention_uncompared");
        } else if self.waiting.len() >= MAX_WAITING {
            health.limit("contention_waiting");
        } else {
            let is_long = end - begin > MAX_PATIENCE_NS;
            if is_long {
                health.limit("contention_long");
            }
            let class = Class::of(&step.work, step.graph).filter(|_| !is_long);
            self.number += 1;
            self.waiting.insert((end, pid, self.number), Waiting { begin, class });
        }
        more
    }

    /// How long a process is known to have had work together with each other one, of the time that is compared, ns.
    fn shared(&self, pid: u32, begin: u64, end: u64) -> Vec<(u32, u64)> {
        let to = end.min(self.done_ns);
        let Some(own) = self.parties.get(&pid).filter(|_| begin < to) else { return Vec::new() };
        let others = self.parties.iter().filter(|(other, _)| **other != pid);
        others.map(|(other, party)| (*other, own.busy.overlap(&party.busy, begin, to))).collect()
    }

    /// A step reaches into the time that is compared: that overlap is made up for. Steps of the others counted as alone
    /// there; where they are too many, all are forgotten.
    fn late(&mut self, pid: u32, known: &[(u32, u64)], begin: u64, end: u64, health: &mut Health) {
        if begin >= end.min(self.done_ns) {
            return;
        }
        health.limit("contention_late");
        for ((other, after), (_, before)) in self.shared(pid, begin, end).into_iter().zip(known) {
            let ns = after - before;
            if let Some(party) = self.parties.get_mut(&other).filter(|_| ns > 0) {
                let late = self.late.entry((pid.min(other), pid.max(other))).or_default();
                *late = late.saturating_add(ns);
                party.doubt(ns, health);
            }
        }
    }

    fn make_room(&mut self, pid: u32, health: &mut Health) {
        if self.parties.len() >= MAX_PARTIES && !self.parties.contains_key(&pid) {
            health.limit("contention_processes");
            let oldest = self.parties.iter().min_by_key(|(_, party)| party.last_ns).map(|(pid, _)| *pid);
            if let Some(pid) = oldest {
                self.forget(pid);
            }
        }
    }

    /// Nobody has work there.
    pub(crate) fn is_empty(&self) -> bool {
        self.parties.is_empty()
    }

    /// Forgets a process that will not come again.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.parties.remove(&pid);
        self.overlaps.retain(|(one, other), _| *one != pid && *other != pid);
        self.late.retain(|(one, other), _| *one != pid && *other != pid);
        for party in self.parties.values_mut() {
            party.classes.values_mut().for_each(|times| drop(times.with.remove(&pid)));
        }
    }

    /// Compares all that is old enough; returns how long which two processes overlapped in that time, ns.
    pub(crate) fn evaluate(&mut self, now_ns: u64, health: &mut Health) -> Vec<(u32, u32, u64)> {
        self.evaluate_until(now_ns.saturating_sub(self.longest.patience()), health)
    }

    /// The same, up to a moment.
    pub(crate) fn evaluate_until(&mut self, until: u64, health: &mut Health) -> Vec<(u32, u32, u64)> {
        if until <= self.done_ns {
            return Vec::new();
        }
        while let Some(entry) = self.waiting.first_entry().filter(|entry| entry.key().0 <= until) {
            let ((end, pid, _), step) = entry.remove_entry();
            self.compare(pid, step, end, health);
        }
        let mut overlaps = self.overlap(self.done_ns, until);
        overlaps
            .extend(std::mem::take(&mut self.late).into_iter().map(|((one, other), ns)| (one, other, ns)));
        for &(one, other, ns) in &overlaps {
            let overlap = self.overlaps.entry((one, other)).or_default();
            *overlap = overlap.saturating_add(ns);
        }
        self.done_ns = until;
        let old = until.saturating_sub(MAX_PATIENCE_NS);
        self.parties.values_mut().for_each(|party| party.busy.prune(old));
        overlaps
    }

    fn overlap(&self, from: u64, to: u64) -> Vec<(u32, u32, u64)> {
        let mut found = Vec::new();
        for (one, party) in &self.parties {
            for (other, company) in self.parties.range(one + 1..) {
                let ns = party.busy.overlap(&company.busy, from, to);
                found.extend((ns > 0).then_some((*one, *other, ns)));
            }
        }
        found
    }

    fn compare(&mut self, pid: u32, step: Waiting, end: u64, health: &mut Health) {
        let Some(party) = self.parties.get_mut(&pid) else { return };
        // Steps of one process wait for each other: what counts is the time since the last one.
        let begin = step.begin.max(party.last_end);
        party.last_end = party.last_end.max(end);
        let Some(class) = step.class.filter(|_| end > begin) else { return };
        let others = self.parties.iter().filter(|(other, _)| **other != pid);
        let company: Vec<(u32, u64)> = others
            .map(|(other, party)| (*other, party.busy.measure(begin, end) * 100 / (end - begin)))
            .collect();
        let Some(party) = self.parties.get_mut(&pid) else { return };
        party.count(end - begin);
        let times = party.times(class, end, health);
        let seconds = (end - begin) as f64 / 1e9;
        let all = company.iter().map(|(_, percent)| percent).sum::<u64>();
        if all < SOLO_PERCENT {
            times.solo.add(seconds);
        }
        // With a third at work, nobody can say which of them it was.
        let is_company = |percent: u64| percent >= COMPANY_PERCENT && all - percent < SOLO_PERCENT;
        for (other, _) in company.into_iter().filter(|(_, percent)| is_company(*percent)) {
            if !times.add_with(other, seconds) {
                health.limit("contention_companies");
            }
        }
    }

    /// Every two processes that have overlapped, each as the victim of the other.
    pub(crate) fn pairs(&self) -> Vec<Pair> {
        let both = |(&(one, other), &ns): (&(u32, u32), &u64)| [(one, other, ns), (other, one, ns)];
        let pairs = self.overlaps.iter().flat_map(both);
        pairs.filter_map(|(victim, aggressor, ns)| self.pair(victim, aggressor, ns)).collect()
    }

    fn pair(&self, victim: u32, aggressor: u32, overlap_ns: u64) -> Option<Pair> {
        let classes = self.parties.get(&victim)?.classes.values();
        let mut pair = Pair { victim, aggressor, overlap_ns, inflation: None, solo: 0, company: 0 };
        let (mut sum, mut weight) = (0.0, 0);
        for times in classes {
            let Some(with) = times.with.get(&aggressor) else { continue };
            let (solo, company) = (times.solo.count(), with.count());
            pair.solo += solo;
            pair.company += company;
            let enough = solo >= MIN_STEPS && company >= MIN_STEPS;
            if let (true, Some(alone), Some(together)) = (enough, times.solo.median(), with.median()) {
                sum += together / alone * company as f64;
                weight += company;
            }
        }
        pair.inflation = (weight > 0).then(|| sum / weight as f64);
        Some(pair)
    }
}

impl Party {
    /// A step was compared.
    fn count(&mut self, ns: u64) {
        self.compared += 1;
        self.compared_ns = self.compared_ns.saturating_add(ns);
        if self.compared.is_multiple_of(LATE_STEPS) {
            self.compared_ns /= 2;
            self.late_ns /= 2;
        }
    }

    /// So much of the time that was compared was in company nobody knew of.
    fn doubt(&mut self, ns: u64, health: &mut Health) {
        self.late_ns = self.late_ns.saturating_add(ns);
        if self.late_ns * 100 > self.compared_ns * LATE_PERCENT && !self.classes.is_empty() {
            self.classes.clear();
            (self.compared_ns, self.late_ns) = (0, 0);
            health.limit("contention_doubtful");
        }
    }

    /// The times of a class; the class that was used longest ago makes room for a new one.
    fn times(&mut self, class: Class, at_ns: u64, health: &mut Health) -> &mut Times {
        if self.classes.len() >= MAX_CLASSES && !self.classes.contains_key(&class) {
            health.limit("contention_classes");
            let oldest = self.classes.iter().min_by_key(|(_, times)| times.last_ns).map(|(class, _)| *class);
            if let Some(class) = oldest {
                self.classes.remove(&class);
            }
        }
        let times = self.classes.entry(class).or_default();
        times.last_ns = at_ns;
        times
    }
}

#[cfg(test)]
mod tests;
