//! What is known of a service beside its requests: memory incidents, loads of kernels, company on its GPUs, and what of
//! it is not seen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::window::{BUCKET_NS, RECENT};
use crate::{
    coverage::RareKind,
    decode::Throttle,
    health::Health,
    memory::Incident,
    occupancy::{Contention, Party},
};

/// Incidents and loads that are kept of a service.
const KEPT: usize = 256;
/// How long what happened counts.
pub(super) const WINDOW_NS: u64 = RECENT as u64 * BUCKET_NS;
/// Pairs of processes whose company is followed, of one service.
const MAX_PAIRS: usize = 64;

/// Another process in company of the service's, lately.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Company {
    pub(super) device: String,
    pub(super) aggressor: Party,
    /// For how long within the window, seconds.
    pub(super) overlap_s: f64,
    /// Of the service's steps, as the contention matrix says.
    pub(super) inflation_ratio: Option<f64>,
    pub(super) inferred: bool,
}

/// A device of the service.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OnDevice {
    pub(super) uuid: String,
    pub(super) model: Option<String>,
    pub(super) throttle: BTreeSet<Throttle>,
    pub(super) temperature_celsius: Option<u32>,
    /// 0 to 1.
    pub(super) utilization: Option<f64>,
    pub(super) sm_clock_hertz: Option<f64>,
    /// 0 to 1.
    pub(super) memory_used: Option<f64>,
}

/// A call that loaded or compiled kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) at_ns: u64,
    pub(super) kind: RareKind,
    pub(super) seconds: f64,
}

/// Steps of one process, in the window and usually: samples and their sum in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    buckets: VecDeque<(u64, u64, f64)>,
    usual: (u64, f64),
}

impl Pace {
    fn add(&mut self, seconds: f64, now_ns: u64) {
        let begin = now_ns - now_ns % BUCKET_NS;
        match self.buckets.back_mut() {
            Some(last) if last.0 == begin => (last.1, last.2) = (last.1 + 1, last.2 + seconds),
            _ => self.buckets.push_back((begin, 1, seconds)),
        }
        while self.buckets.len() > RECENT {
            let (_, n, sum) = self.buckets.pop_front().unwrap_or_default();
            self.usual = (self.usual.0 + n, self.usual.1 + sum);
        }
    }

    /// Mean of a step lately, and usually.
    pub(super) fn means(&self) -> Option<(f64, f64)> {
        let (n, sum) = self.buckets.iter().fold((0, 0.0), |(n, sum), bucket| (n + bucket.1, sum + bucket.2));
        (n >= 20 && self.usual.0 >= 50).then(|| (sum / n as f64, self.usual.1 / self.usual.0 as f64))
    }
}

/// Everything beside the requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Around {
    incidents: VecDeque<(u64, Incident)>,
    loads: VecDeque<Load>,
    /// Overlap by device and aggressor, as told over time: when and how much in all, seconds.
    overlaps: BTreeMap<(String, u32), VecDeque<(u64, f64)>>,
    pub(super) company: Vec<Company>,
    pub(super) devices: Vec<OnDevice>,
    /// What of it is not seen, in sentences.
    pub(super) unseen: Vec<String>,
    /// Records lost on the node within the window, of how many.
    pub(super) lost: (u64, u64),
    /// When its newest process started.
    pub(super) started_ns: Option<u64>,
    /// Steps by process.
    pub(super) paces: BTreeMap<u32, Pace>,
    /// Its processes, by id and start time.
    met: BTreeSet<[u64; 2]>,
}

impl Around {
    /// Whether this process was not met before.
    pub(super) fn meet(&mut self, process: [u64; 2]) -> bool {
        if self.met.len() >= KEPT {
            self.met.pop_first();
        }
        self.met.insert(process)
    }

    pub(super) fn incident(&mut self, incident: Incident, now_ns: u64) {
        push(&mut self.incidents, (now_ns, incident));
    }

    pub(super) fn load(&mut self, load: Load) {
        push(&mut self.loads, load);
    }

    pub(super) fn step(&mut self, pid: u32, seconds: f64, now_ns: u64) {
        if self.paces.len() < MAX_PAIRS || self.paces.contains_key(&pid) {
            self.paces.entry(pid).or_default().add(seconds, now_ns);
        }
    }

    /// Takes what the contention matrix says now of pairs in which the victim is of the service.
    pub(super) fn contended<'a>(
        &mut self,
        pairs: impl Iterator<Item = (&'a str, &'a Contention)>,
        now_ns: u64,
    ) {
        self.company.clear();
        let mut seen = BTreeSet::new();
        for (device, pair) in pairs.take(MAX_PAIRS) {
            let key = (device.to_owned(), pair.aggressor.pid);
            let told = self.overlaps.entry(key.clone()).or_default();
            seen.insert(key);
            told.push_back((now_ns, pair.overlap_s));
            while told.get(1).is_some_and(|(at, _)| at.saturating_add(WINDOW_NS) <= now_ns) {
                told.pop_front();
            }
            let before = told.front().map_or(pair.overlap_s, |(_, overlap)| *overlap);
            self.company.push(Company {
                device: device.to_owned(),
                aggressor: pair.aggressor.clone(),
                overlap_s: (pair.overlap_s - before).max(0.0),
                inflation_ratio: pair.inflation_ratio,
                inferred: pair.inferred,
            });
        }
        self.overlaps.retain(|key, _| seen.contains(key));
    }

    /// Incidents of the window, newest first.
    pub(super) fn incidents(&self, now_ns: u64) -> impl Iterator<Item = &Incident> {
        let lately = move |(at, _): &&(u64, Incident)| at.saturating_add(WINDOW_NS) > now_ns;
        self.incidents.iter().rev().take_while(lately).map(|(_, incident)| incident)
    }

    /// Loads of the window, newest first.
    pub(super) fn loads(&self, now_ns: u64) -> impl Iterator<Item = &Load> {
        self.loads.iter().rev().take_while(move |load| load.at_ns.saturating_add(WINDOW_NS) > now_ns)
    }
}

/// Records that the kernel side had to drop, over the window.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    /// When, lost in all, seen in all.
    told: VecDeque<(u64, u64, u64)>,
}

impl Losses {
    pub(super) fn told(&mut self, health: &Health, now_ns: u64) {
        let dropped = health.kernel.iter().filter(|(name, _)| name.starts_with("drop_"));
        self.told.push_back((now_ns, dropped.map(|(_, n)| *n).sum(), health.seen));
        while self.told.get(1).is_some_and(|(at, ..)| at.saturating_add(WINDOW_NS) <= now_ns) {
            self.told.pop_front();
        }
    }

    /// Lost within the window, of how many.
    pub(super) fn lately(&self) -> (u64, u64) {
        let (Some(first), Some(last)) = (self.told.front(), self.told.back()) else { return (0, 0) };
        let lost = last.1.saturating_sub(first.1);
        (lost, last.2.saturating_sub(first.2).saturating_add(lost))
    }
}

fn push<T>(to: &mut VecDeque<T>, value: T) {
    if to.len() == KEPT {
        to.pop_front();
    }
    to.push_back(value);
}
