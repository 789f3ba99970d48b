//! A service from its healthy hour through an incident and back, and what is told of it.

use std::collections::BTreeMap;

use super::*;
use crate::{
    contention::Verdict,
    decode::{DeviceCondition, DeviceSeen, DeviceUsage, Event, NvmlSeen, Observation, Stamp, Throttle},
    memory::{Failure, FailureClass},
    occupancy::{Contention, OnDevice, Party, ProcessOnGpu},
    request::record::Outcome,
    role::Role,
};

pub(super) const S: u64 = 1_000_000_000;
const HOUR_S: u64 = 3600;

/// Numbers of a request, seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) accept: f64,
    pub(super) preprocess: f64,
    pub(super) queue: f64,
    pub(super) prefill: f64,
    pub(super) decode: f64,
    pub(super) postprocess: f64,
    pub(super) network_out: f64,
    pub(super) elsewhere: f64,
    pub(super) alloc: f64,
    pub(super) host_gap: f64,
    pub(super) load: f64,
    pub(super) sat_out: f64,
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) stall: f64,
    pub(super) outcome: Outcome,
}

/// 35 ms to the first token, 100 tokens of 10 ms.
pub(super) const HEALTHY: Shape = Shape {
    accept: 0.001,
    preprocess: 0.003,
    queue: 0.005,
    prefill: 0.030,
    decode: 1.0,
    postprocess: 0.002,
    network_out: 0.0001,
    elsewhere: 0.0,
    alloc: 0.001,
    host_gap: 0.02,
    load: 0.0,
    sat_out: 0.0,
    input: 200,
    output: 100,
    stall: 0.012,
    outcome: Outcome::Ok,
};

/// A service with one model on one GPU.
pub(super) struct Rig {
    pub(super) diagnosis: Diagnosis,
    pub(super) devices: Devices,
    pub(super) view: View,
    pub(super) in_flight: u64,
    /// Of steps, seconds, by process.
    pub(super) steps: Vec<(u32, f64)>,
    pub(super) now_s: u64,
    /// Share of the periods of its CPU quota in which it is stopped, percent.
    pub(super) throttled: u64,
    periods: [u64; 2],
    health: Health,
    n: u64,
}

impl Default for Rig {
    fn default() -> Self {
        let mut rig = Self {
            diagnosis: Diagnosis::default(),
            devices: Devices::default(),
            view: View { processes: vec![process(7, "svc", Role::Inference)], ..View::default() },
            in_flight: 4,
            steps: vec![(7, 0.01)],
            now_s: 1000,
            throttled: 0,
            periods: [0, 0],
            health: Health::default(),
            n: 0,
        };
        rig.nvml(NvmlSeen::Device(DeviceSeen {
            uuid: "GPU-1".into(),
            name: Some("H100".into()),
            ..DeviceSeen::default()
        }));
        rig
    }
}

pub(super) fn party(pid: u32, workload: &str, role: Role) -> Party {
    let comm = Some(format!("{workload}-main"));
    Party { pid, workload: workload.into(), comm, container: None, pod: None, role }
}

pub(super) fn process(pid: u32, workload: &str, role: Role) -> ProcessOnGpu {
    let on = OnDevice { device: Some("GPU-1".into()), known: None, active_s: 0.0, waits: 1 };
    ProcessOnGpu { party: party(pid, workload, role), evidence: Vec::new(), steps: 1, devices: vec![on] }
}

impl Rig {
    fn nvml(&mut self, seen: NvmlSeen) {
        let at = Stamp { time_ns: self.now_s * S, tgid: 0, tid: 0 };
        let event = Event::Observation(at, Box::new(Observation::Nvml(seen)));
        self.devices.observe(&event, &mut self.health);
        self.diagnosis.changes_mut().observe(&event, &mut self.health);
    }

    /// What NVML tells of the GPU from now on.
    pub(super) fn condition(&mut self, throttle: &[Throttle], mhz: u32) {
        self.nvml(NvmlSeen::Condition(DeviceCondition {
            uuid: "GPU-1".into(),
            valid_ms: 1 << 40,
            sm_clock_mhz: Some(mhz),
            throttle: Some(throttle.to_vec()),
            ..DeviceCondition::default()
        }));
        self.nvml(NvmlSeen::Usage(DeviceUsage {
            uuid: "GPU-1".into(),
            valid_ms: 1 << 40,
            utilization_percent: Some(60),
            ..DeviceUsage::default()
        }));
    }

    /// An allocation fails now.
    pub(super) fn fail(&mut self, class: FailureClass) {
        let failure = Failure {
            t_ns: self.now_s * S,
            pid: 7,
            function: "cuMemAlloc".into(),
            kind: crate::memory::Kind::Device,
            class,
            result: 2,
            requested_bytes: 2 << 30,
            device: Some("GPU-1".into()),
            free_bytes: Some(6 << 30),
            total_bytes: Some(80 << 30),
            free_source: None,
            free_age_s: None,
            own_bytes: 70 << 30,
            others_bytes: 0,
            holders: Vec::new(),
            largest_success_bytes: Some(1 << 20),
            smallest_failure_bytes: 2 << 30,
            partial: false,
        };
        let incident = Incident::Failure(failure);
        self.diagnosis.incident("svc", &incident, self.now_s * S, &mut self.health);
    }

    /// Somebody else's work lies over the service's.
    pub(super) fn company(&mut self, overlap_s: f64, inflation: f64) {
        let pair = Contention {
            victim: party(7, "svc", Role::Inference),
            aggressor: party(9, "train", Role::Training),
            overlap_s,
            inflation_ratio: Some(inflation),
            solo_steps: 100,
            company_steps: 100,
            verdict: Verdict::Contended,
            inferred: false,
            labels: [String::new(), String::new()],
        };
        self.view.contention = [("GPU-1".to_owned(), vec![pair])].into();
    }

    fn request(&mut self, shape: Shape) {
        self.n += 1;
        // The same every time, and never twice alike: within a tenth.
        let percent = 95 + self.n * 7919 % 11;
        let vary = percent as f64 / 100.0;
        let stages = [
            ("network_in_s", 0.0001),
            ("accept_wait_s", shape.accept),
            ("preprocess_s", shape.preprocess),
            ("queue_s", shape.queue),
            ("prefill_s", shape.prefill),
            ("decode_s", shape.decode),
            ("postprocess_s", shape.postprocess),
            ("network_out_s", shape.network_out),
            ("unattributed_s", shape.elsewhere),
        ];
        let stages: BTreeMap<String, f64> =
            stages.iter().map(|(name, s)| ((*name).to_owned(), s * vary)).collect();
        let gap = shape.decode / shape.output.max(1) as f64;
        let record = RequestRecord {
            service: "svc".into(),
            model: Some("m".into()),
            request_id: Some(format!("r{}", self.n)),
            outcome: Some(shape.outcome),
            e2e_s: Some(stages.values().sum()),
            ttft_s: Some(shape.accept + shape.preprocess + shape.queue + shape.prefill),
            tpot_s: Some(gap),
            tbt_max_s: Some(shape.stall * vary),
            tbt_gaps_s: vec![gap; 4],
            stages,
            input_tokens: Some(shape.input * percent / 100),
            output_tokens: Some(shape.output * percent / 100),
            alloc_wait_s: Some(shape.alloc),
            host_gap_s: Some(shape.host_gap),
            sat_out_s: (shape.sat_out > 0.0).then_some(shape.sat_out),
            module_load_s: (shape.load > 0.0).then_some(shape.load),
            ..RequestRecord::default()
        };
        self.diagnosis.request(&record, self.now_s * S, &mut self.health);
    }

    /// Runs for some seconds, four requests in each, which `shape` gives by their number.
    pub(super) fn run(&mut self, seconds: u64, shape: impl Fn(u64) -> Shape) {
        for _ in 0..seconds {
            self.now_s += 1;
            for each in 0..4 {
                self.request(shape(self.now_s * 4 + each));
            }
            for (pid, step_s) in self.steps.clone() {
                for _ in 0..10 {
                    self.diagnosis.step("svc", pid, step_s, self.now_s * S, &mut self.health);
                }
            }
            self.periods = [self.periods[0] + 10, self.periods[1] + self.throttled / 10];
            let (service, periods) = ("svc".into(), Some(self.periods));
            let used = ServiceUse { service, cpu_ms: self.now_s * 800, periods };
            self.diagnosis.used(&used, self.now_s * S);
            self.tick();
        }
    }

    /// Lets a second's look happen.
    pub(super) fn tick(&mut self) {
        let now_ns = self.now_s * S;
        let wall_ns = (500_000 * HOUR_S + self.now_s) * S;
        let clock = Observation::Clock { wall_ns };
        let event = Event::Observation(Stamp { time_ns: now_ns, tgid: 0, tid: 0 }, Box::new(clock));
        self.diagnosis.changes_mut().observe(&event, &mut self.health);
        if !self.diagnosis.is_due(now_ns) {
            return;
        }
        let sight = Sight {
            now_ns,
            wall_ns: Some(wall_ns),
            devices: &self.devices,
            occupancy: &self.view,
            coverage: &Coverage::default(),
            in_flight: &[("svc".to_owned(), self.in_flight)].into(),
            waiting: &BTreeMap::new(),
        };
        self.diagnosis.tick(sight, &mut self.health);
    }

    /// Rules of the findings that go on, the first one first.
    pub(super) fn active(&self) -> Vec<String> {
        let all = self.diagnosis.findings();
        all.into_iter().filter(|it| it.state == State::Active).map(|it| it.rule).collect()
    }
}

#[test]
fn a_finding_opens_goes_on_and_closes_once() {
    let mut rig = Rig::default();
    rig.run(120, |_| HEALTHY);
    assert_eq!(rig.active(), [""; 0]);
    let slow = Shape { queue: 0.5, ..HEALTHY };
    rig.run(5, |_| slow);
    assert_eq!(rig.active(), [""; 0], "not at once");
    rig.run(40, |_| slow);
    assert_eq!(rig.active(), ["queue_buildup"]);
    let found = rig.diagnosis.findings().remove(0);
    assert!(found.explains_ratio.unwrap() > 0.95 && (found.explains_s.unwrap() - 0.495).abs() < 0.03);
    assert_eq!((found.basis, found.requests.len()), (Some(Basis::Rolling), 3));
    assert!(found.incomplete.is_empty() && found.opened_ns > 0, "{found:?}");
    rig.run(70, |_| HEALTHY);
    assert_eq!(rig.active(), [""; 0]);
    let closed = rig.diagnosis.findings();
    assert_eq!((closed.len(), closed[0].id, closed[0].state), (1, found.id, State::Closed));
    // Soon again: the same one.
    rig.run(40, |_| slow);
    assert_eq!(rig.diagnosis.findings().len(), 1);
    assert_eq!(rig.diagnosis.findings()[0].id, found.id);
}

#[test]
fn what_lasts_does_not_become_usual_within_the_hour_and_does_after_it() {
    let mut rig = Rig::default();
    rig.run(120, |_| HEALTHY);
    let slow = Shape { queue: 0.5, ..HEALTHY };
    rig.run(1800, |_| slow);
    assert_eq!(rig.active(), ["queue_buildup"]);
    rig.run(6000, |_| slow);
    assert_eq!(rig.active(), [""; 0]);
}

#[test]
fn without_a_baseline_nothing_is_unusual() {
    let mut rig = Rig::default();
    rig.run(5, |_| Shape { queue: 0.5, ..HEALTHY });
    assert_eq!(rig.diagnosis.findings(), []);
}

#[test]
fn a_service_without_requests_has_no_finding_for_long() {
    let mut rig = Rig::default();
    rig.run(120, |_| HEALTHY);
    rig.run(60, |_| Shape { queue: 0.5, ..HEALTHY });
    assert_eq!(rig.active(), ["queue_buildup"]);
    for _ in 0..400 {
        rig.now_s += 1;
        rig.tick();
    }
    assert_eq!(rig.active(), [""; 0]);
}

#[test]
fn what_is_usual_comes_back_after_a_restart() {
    let mut before = Rig::default();
    before.run(120, |_| HEALTHY);
    let json = serde_json::to_string(&before.diagnosis.save()).unwrap();
    let mut after = Rig { now_s: before.now_s, ..Rig::default() };
    assert!(after.diagnosis.restore(serde_json::from_str(&json).unwrap()));
    after.run(40, |_| Shape { queue: 0.5, ..HEALTHY });
    assert_eq!(after.active(), ["queue_buildup"]);
    let newer = SavedState { version: STATE_VERSION + 1, ..SavedState::default() };
    assert!(!after.diagnosis.restore(newer));
}

#[test]
fn services_and_models_are_bounded() {
    let mut rig = Rig::default();
    for n in 0..2 * MAX_SUBJECTS {
        let record = RequestRecord { service: format!("s{n}"), e2e_s: Some(1.0), ..RequestRecord::default() };
        rig.diagnosis.request(&record, S, &mut rig.health);
    }
    assert!(rig.diagnosis.watched.len() <= MAX_SUBJECTS && rig.diagnosis.services.len() <= MAX_SUBJECTS);
    assert!(rig.health.limits["diagnosed_subjects"] > 0 && rig.health.limits["diagnosed_services"] > 0);
}
