//! What is kept of a service, and of each of its models.

use std::collections::{BTreeSet, VecDeque};

use super::{
    Sight,
    around::{Around, OnDevice, WINDOW_NS},
    baseline::{Baseline, Saved},
    case::Case,
    feature::Feature,
    finding::SlowRequest,
    watch::Now,
    window::{BUCKET_NS, Bucket, Window},
};
use crate::{decode::ServiceUse, device::Device, request::RequestRecord};

/// Requests of which the slowest are told.
const SLOW_KEPT: usize = 64;

impl Around {
    /// Takes what the rest of the core knows of it now.
    pub(super) fn see(&mut self, name: &str, sight: Sight<'_>, lost: (u64, u64)) {
        self.lost = lost;
        let pairs = sight.occupancy.contention.iter().flat_map(|(device, pairs)| {
            let of = pairs
                .iter()
                .filter(|pair| pair.victim.workload == name && pair.aggressor.pid != pair.victim.pid);
            of.filter(|pair| pair.aggressor.workload != name).map(move |pair| (device.as_str(), pair))
        });
        self.contended(pairs, sight.now_ns);
        self.devices = devices(name, sight);
        self.unseen = unseen(name, sight);
    }
}

/// Devices on which it has work.
fn devices(name: &str, sight: Sight<'_>) -> Vec<OnDevice> {
    let own = sight.occupancy.processes.iter().filter(|process| process.party.workload == name);
    let on: BTreeSet<&str> =
        own.flat_map(|process| &process.devices).filter_map(|on| on.device.as_deref()).collect();
    let is_on = |device: &&Device| on.contains(device.seen().uuid.as_str());
    sight.devices.iter().filter(is_on).map(|device| on_device(device, sight.now_ns)).collect()
}

fn on_device(device: &Device, now_ns: u64) -> OnDevice {
    let condition = device.condition(now_ns);
    let usage = device.usage(now_ns);
    let memory = usage.and_then(|usage| usage.memory);
    OnDevice {
        uuid: device.seen().uuid.clone(),
        model: device.seen().name.clone(),
        throttle: condition.and_then(|it| it.throttle.as_ref()).into_iter().flatten().copied().collect(),
        temperature_celsius: condition.and_then(|it| it.temperature_celsius),
        utilization: usage.and_then(|it| it.utilization_percent).map(|percent| f64::from(percent) / 100.0),
        sm_clock_hertz: condition.and_then(|it| it.sm_clock_mhz).map(|mhz| f64::from(mhz) * 1e6),
        memory_used: memory.map(|memory| memory.used as f64 / memory.total.max(1) as f64),
    }
}

fn unseen(name: &str, sight: Sight<'_>) -> Vec<String> {
    let own = sight.occupancy.processes.iter().filter(|process| process.party.workload == name);
    let blind = own.filter_map(|process| {
        let pid = process.party.pid;
        let (since, ..) = sight.coverage.get(pid)?.blind_since(sight.now_ns)?;
        let seconds = sight.now_ns.saturating_sub(since) / 1_000_000_000;
        Some(format!("process {pid} works on a GPU, and none of its calls were seen for {seconds} s"))
    });
    blind.collect()
}

/// A service, or one model of it.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) window: Window,
    pub(super) baseline: Baseline,
    /// When its last request was over.
    pub(super) last_ns: u64,
    slow: VecDeque<(u64, SlowRequest)>,
    /// When it was last told what its processes had used, and what.
    used: Option<(u64, ServiceUse)>,
}

impl Watched {
    pub(super) fn new(saved: Option<Saved>) -> Self {
        Self { baseline: saved.map(Baseline::load).unwrap_or_default(), ..Self::default() }
    }

    pub(super) fn request(&mut self, record: &RequestRecord, now_ns: u64) {
        self.last_ns = now_ns;
        self.window.request(record, now_ns);
        let Some(e2e_s) = record.e2e_s else { return };
        if self.slow.len() == SLOW_KEPT {
            // The oldest that is over, or the fastest: which of them is told hardly differs.
            self.slow.pop_front();
        }
        let (ts, request_id) = (record.ts.clone(), record.request_id.clone());
        self.slow.push_back((now_ns, SlowRequest { ts, request_id, e2e_s, outcome: record.outcome }));
    }

    /// Takes what its processes have used in all: what counts is how much since the last time.
    pub(super) fn used(&mut self, used: &ServiceUse, now_ns: u64) {
        let before = self.used.replace((now_ns, used.clone()));
        let Some((then_ns, before)) = before.filter(|(then_ns, _)| *then_ns < now_ns) else { return };
        let cpu_s = used.cpu_ms.saturating_sub(before.cpu_ms) as f64 / 1e3;
        self.window.add(Feature::Cpu, cpu_s / ((now_ns - then_ns) as f64 / 1e9), now_ns);
        let Some((now, then)) = used.periods.zip(before.periods) else { return };
        let [all, throttled] = [now[0].saturating_sub(then[0]), now[1].saturating_sub(then[1])];
        if all > 0 {
            self.window.add(Feature::CpuThrottled, throttled as f64 / all as f64, now_ns);
        }
    }

    /// Samples what is a state and no event. Of a whole service.
    pub(super) fn sample(&mut self, name: &str, around: &Around, sight: Sight<'_>) {
        let now_ns = sight.now_ns;
        let in_flight = sight.in_flight.get(name).copied().unwrap_or(0);
        self.window.add(Feature::InFlight, in_flight as f64, now_ns);
        if let Some(waiting) = sight.waiting.get(name) {
            self.window.add(Feature::Waiting, waiting.requests as f64, now_ns);
        }
        for on in &around.devices {
            for (feature, value) in [
                (Feature::Utilization, on.utilization),
                (Feature::SmClock, on.sm_clock_hertz),
                (Feature::MemoryUsed, on.memory_used),
            ] {
                if let Some(value) = value {
                    self.window.add(feature, value, now_ns);
                }
            }
        }
    }

    /// Lets time go on; what leaves the window becomes usual, unless something is wrong.
    pub(super) fn pass(&mut self, from_ns: u64, now: Now, frozen: bool) {
        let Self { window, baseline, .. } = self;
        let is_new_bucket = from_ns / BUCKET_NS != now.mono_ns / BUCKET_NS;
        window.pass(from_ns, now.mono_ns, |bucket| {
            if !frozen {
                baseline.absorb(bucket, now.wall_ns);
            }
        });
        if is_new_bucket {
            baseline.refresh(now.wall_ns);
        }
    }

    pub(super) fn recent(&self, now_ns: u64) -> Bucket {
        self.window.recent(now_ns)
    }

    pub(super) fn case<'a>(&'a self, recent: &'a Bucket, around: &'a Around, now_ns: u64) -> Case<'a> {
        Case {
            recent,
            usual: self.baseline.usual(),
            basis: self.baseline.basis(),
            around,
            now_ns,
            open: false,
        }
    }

    /// The slowest lately, the slowest first.
    pub(super) fn slow(&self, now_ns: u64) -> Vec<SlowRequest> {
        let lately = self.slow.iter().filter(|(at, _)| at.saturating_add(WINDOW_NS) > now_ns);
        let mut slow: Vec<SlowRequest> = lately.map(|(_, request)| request.clone()).collect();
        slow.sort_by(|a, b| b.e2e_s.total_cmp(&a.e2e_s));
        slow
    }
}
