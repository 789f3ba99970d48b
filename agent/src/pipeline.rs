//! The loop's body over one closed enum of events, and the only owner of the core's state.

mod delivery;
mod diagnosis;
mod gpus;

use std::collections::BTreeMap;

use delivery::Deliveries;

use crate::{
    coverage::Coverage,
    decode::{Event, blank, decode},
    device::Devices,
    diagnose::Diagnosis,
    health::Health,
    memory::{self, Incident, Ledgers, Sources},
    occupancy::{Occupancy, View},
    request::{Ended, RequestRecord, Requests, Settled, StepRecord, Waiting},
    stage::{Names, report},
    track::{ServiceId, TlsCounts, TrackSettings, Tracked, Tracker, Traffic},
    versions::{self, Rule},
};

/// Names of services whose totals are kept.
const NAMES_KEPT: usize = 4096;

/// What the pipeline hands out while it works.
#[derive(Debug)]
pub enum Output {
    /// A request is over and its assignment final.
    Request(Box<RequestRecord>),
    /// A GPU step of a process of `service` (for the GPU metrics).
    Step {
        /// Service name, as exported.
        service: String,
        /// The step as the kernel side reported it.
        step: wire::cuda::Step,
    },
    /// A step, and which requests were in it: when none can claim it any more.
    Told(Box<StepRecord>),
    /// Work of a process of `service` that was not counted before.
    Counted {
        /// Service name, as exported.
        service: String,
        /// The work.
        work: wire::cuda::Work,
        /// Launches that went into a capture instead.
        captured: u64,
    },
    /// A memory call of a process of `service`.
    Memory {
        /// Service name, as exported.
        service: String,
        /// The call as the kernel side reported it.
        memory: wire::memory::Call,
    },
    /// An allocation failed or an allocator had to retry, in a process of `service`.
    Incident {
        /// Service name, as exported.
        service: String,
        /// What happened.
        incident: Box<Incident>,
    },
    /// Kernels were loaded or compiled, or a graph made executable, by a process of `service`.
    Rare {
        /// Service name, as exported.
        service: String,
        /// The call as the kernel side reported it.
        rare: wire::rare::Rare,
    },
    /// From now on, long calls on this socket should be captured whole. For a live run; a replay has what it has.
    WantWhole(wire::socket::SockId),
}

/// Settings of the core; everything that changes what a recording replays to.
#[derive(Clone, Debug)]
pub struct Settings {}

/// Everything from `decode` to `stage`. Fed record by record; pure.
#[derive(Debug)]
pub struct Pipeline {
    health: Health,
    tracker: Tracker,
    devices: Devices,
    memory: Ledgers,
    occupancy: Occupancy,
    coverage: Coverage,
    requests: Requests,
    deliveries: Deliveries,
    diagnosis: Diagnosis,
    /// Time of the last record, ns.
    now_ns: u64,
    /// What services moved over the network, by name.
    moved: BTreeMap<String, Traffic>,
    versions: Vec<Rule>,
    tracked: Vec<Tracked>,
    settled: Vec<Settled>,
}

impl Pipeline {
    /// An empty pipeline.
    pub fn new(_settings: Settings) -> Self {
        Self {
            health: Health::default(),
            tracker: Tracker::new(TrackSettings::default()),
            devices: Devices::default(),
            memory: Ledgers::default(),
            occupancy: Occupancy::default(),
            coverage: Coverage::default(),
            requests: Requests::new(),
            deliveries: Deliveries::default(),
            diagnosis: Diagnosis::default(),
            now_ns: 0,
            moved: BTreeMap::new(),
            versions: Vec::new(),
            tracked: Vec::new(),
            settled: Vec::new(),
        }
    }

    /// With rules by which names of models tell versions.
    #[must_use]
    pub fn with_versions(mut self, rules: &[Rule]) -> Self {
        self.versions = rules.to_vec();
        self
    }

    /// Takes one record, masks its payload in place, and appends what became final to `out`.
    pub fn process(&mut self, record: &mut [u8], out: &mut Vec<Output>) {
        let before = out.len();
        self.health.seen += 1;
        self.now_ns = self.now_ns.max(diagnosis::time_of(record));
        match decode(record) {
            Ok(event) => {
                self.health.decoded += 1;
                diagnosis::event(&mut self.diagnosis, &event, &mut self.health);
                self.devices.observe(&event, &mut self.health);
                self.occupancy.observe(&event, &mut self.health);
                self.coverage.observe(&event, &mut self.health);
                let from = Sources { devices: &self.devices, placements: self.occupancy.placements() };
                self.memory.observe(&event, from, &mut self.health);
                out.extend(rare(&event, &self.tracker, &mut self.health));
                // Before the tracker forgets a process that ends.
                out.extend(self.memory.take_incidents().map(|it| incident(it, &self.tracker)));
                self.tracker.feed(event, &mut self.health, &mut self.tracked);
            }
            Err(error) => {
                self.health.fail(error.reason());
                blank(record);
            }
        }
        let mut news = std::mem::take(&mut self.tracked);
        for tracked in news.drain(..) {
            let before = out.len();
            if let Tracked::WantWhole(socket) = tracked {
                out.push(Output::WantWhole(socket));
            }
            let limit = Deliveries::limit(&tracked);
            let time = Time::of(&tracked);
            self.requests.apply(tracked, &mut self.health, &mut self.settled);
            for settled in self.settled.drain(..) {
                if let Settled::Step(id, step) = &settled {
                    let alone = self.requests.is_idle(*id);
                    let service = [self.tracker.service_key(*id), self.tracker.service_name(*id)];
                    self.occupancy.step(service, alone, step, &mut self.health);
                }
                out.extend(output(settled, &self.tracker, &mut self.deliveries, &mut self.health));
            }
            // What became final just now may be late too, and nothing comes after the end.
            let expired = limit.map(|limit| self.deliveries.expired(limit, &mut self.health));
            let expired = expired.into_iter().flatten();
            out.extend(expired.map(|ended| request(ended, &self.tracker, &mut self.health)));
            self.name_versions(&mut out[before..]);
            self.count_requests(&mut out[before..]);
            self.pass(time);
        }
        // Its room is used again.
        self.tracked = news;
        for output in &out[before..] {
            diagnosis::output(&mut self.diagnosis, output, self.now_ns, &mut self.health);
        }
    }

    fn name_versions(&self, out: &mut [Output]) {
        for output in out {
            if let Output::Request(record) = output {
                versions::apply(&self.versions, &mut record.model, &mut record.model_version);
            }
        }
    }

    fn count_requests(&mut self, out: &mut [Output]) {
        for output in out {
            if let Output::Request(record) = output {
                let last_ns = record.t_last_byte_out_ns.or(record.t_first_byte_in_ns).unwrap_or(0);
                let key = |pid| self.tracker.service_key_at(pid, last_ns);
                let services = [key(record.pid), record.inner_pid.and_then(key)];
                self.occupancy.request(record, services[0], services[1]);
                gpus::fill(record, services, &self.occupancy, &self.coverage, &self.devices);
            }
        }
    }

    fn pass(&mut self, time: Option<Time>) {
        match time {
            Some(Time::Now(now_ns)) => {
                self.count_moved();
                let wall_ns = self.tracker.wall_ns(now_ns);
                self.occupancy.tick(now_ns, wall_ns, &self.devices, &mut self.health);
                self.diagnose(now_ns, wall_ns);
            }
            Some(Time::End(now_ns)) => self.occupancy.end(now_ns, &self.devices, &mut self.health),
            None => {}
        }
    }

    /// While their services are known by name.
    fn count_moved(&mut self) {
        let moved: Vec<_> = self.tracker.take_moved().collect();
        for (id, traffic) in moved {
            let name = self.tracker.service_name(id);
            if self.moved.len() >= NAMES_KEPT && !self.moved.contains_key(name) {
                self.health.limit("service_names");
                continue;
            }
            self.moved.entry(name.to_owned()).or_default().add(traffic);
        }
    }

    /// What services moved over the network and their open connections, by name. Totals stay when a service is gone.
    pub fn traffic(&self) -> BTreeMap<String, Traffic> {
        let mut by_name = self.moved.clone();
        for id in self.tracker.accepted() {
            let open = Traffic { connections: 1, ..Traffic::default() };
            by_name.entry(self.tracker.service_name(id).to_owned()).or_default().add(open);
        }
        by_name
    }

    /// Requests in flight, by name of their service; services with none are among them.
    pub fn in_flight(&self) -> BTreeMap<String, u64> {
        let mut by_name = BTreeMap::new();
        for (id, n) in self.requests.in_flight() {
            *by_name.entry(self.tracker.service_name(id).to_owned()).or_default() += n as u64;
        }
        by_name
    }

    /// Requests that wait for an engine, by name of their service.
    pub fn waiting(&self) -> BTreeMap<String, Waiting> {
        let mut by_name = BTreeMap::<String, Waiting>::new();
        for (id, waiting) in self.requests.waiting() {
            let sum = by_name.entry(self.tracker.service_name(id).to_owned()).or_insert(Waiting::NONE);
            sum.requests += waiting.requests;
            sum.confidence = sum.confidence.max(waiting.confidence);
        }
        by_name
    }

    /// The GPUs, as far as NVML told.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// What processes hold of the GPUs' memory.
    pub fn memory(&self) -> Vec<memory::ProcessMemory> {
        self.memory.view()
    }

    /// Who is on them, as of the last second.
    pub fn occupancy(&self) -> &View {
        self.occupancy.view()
    }

    /// Whose work on a GPU is seen.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// TLS of services, as far as it was seen, by name; services with the same one are added up.
    pub fn tls(&self) -> BTreeMap<String, TlsCounts> {
        let mut by_name = BTreeMap::<String, TlsCounts>::new();
        for (id, counts) in self.tracker.tls() {
            by_name.entry(self.tracker.service_name(id).to_owned()).or_default().add(&counts);
        }
        by_name
    }

    /// Connections that services had accepted before they were watched, by the services' keys.
    pub fn older(&self) -> BTreeMap<String, u64> {
        self.tracker.older().map(|(id, n)| (self.tracker.service_key(id).to_owned(), n)).collect()
    }

    /// Its counters.
    pub fn health(&self) -> &Health {
        &self.health
    }
}

/// How far time has come with a piece of news, if it says so.
#[derive(Clone, Copy, Debug)]
enum Time {
    Now(u64),
    End(u64),
}

impl Time {
    fn of(tracked: &Tracked) -> Option<Self> {
        match tracked {
            Tracked::Tick { time_ns } => Some(Self::Now(*time_ns)),
            Tracked::End { time_ns } => Some(Self::End(*time_ns)),
            _ => None,
        }
    }
}

fn output(
    settled: Settled,
    tracker: &Tracker,
    deliveries: &mut Deliveries,
    health: &mut Health,
) -> Option<Output> {
    let name = |id| tracker.service_name(id).to_owned();
    match settled {
        Settled::Request(ended) => {
            deliveries.over(ended, health).map(|ended| request(*ended, tracker, health))
        }
        Settled::Delivered(id, delivery) => {
            deliveries.delivered(id, delivery).map(|ended| request(*ended, tracker, health))
        }
        Settled::Step(id, step) => Some(Output::Step { service: name(id), step }),
        Settled::Told(id, told) => {
            Some(Output::Told(Box::new(StepRecord::new(tracker.service_name(id), told))))
        }
        Settled::Counted(id, work, captured) => Some(Output::Counted { service: name(id), work, captured }),
        Settled::Memory(id, memory) => Some(Output::Memory { service: name(id), memory }),
    }
}

fn incident(incident: Incident, tracker: &Tracker) -> Output {
    let (pid, t_ns) = match &incident {
        Incident::Failure(failure) => (failure.pid, failure.t_ns),
        Incident::Storm(storm) => (storm.pid, storm.t_ns),
    };
    let service = tracker.service_of(pid, t_ns).unwrap_or_default().to_owned();
    Output::Incident { service, incident: Box::new(incident) }
}

fn rare(event: &Event<'_>, tracker: &Tracker, health: &mut Health) -> Option<Output> {
    let Event::Rare(rare) = event else { return None };
    let Some(service) = tracker.service_of(rare.header.tgid, rare.header.time_ns) else {
        health.ignore("rare_without_service");
        return None;
    };
    Some(Output::Rare { service: service.to_owned(), rare: *rare })
}

fn request(ended: Ended, tracker: &Tracker, health: &mut Health) -> Output {
    Output::Request(Box::new(report(ended, tracker, health)))
}

impl Names for Tracker {
    fn service_name(&self, service: ServiceId) -> &str {
        Self::service_name(self, service)
    }

    fn comm(&self, pid: u32) -> Option<&str> {
        Self::comm(self, pid)
    }

    fn container(&self, pid: u32) -> Option<&str> {
        Self::container(self, pid)
    }

    fn wall_ns(&self, mono_ns: u64) -> Option<u64> {
        Self::wall_ns(self, mono_ns)
    }
}

#[cfg(test)]
mod tests;
