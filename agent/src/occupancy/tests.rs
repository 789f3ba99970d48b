use wire::{Header, Kind, cuda::Work, process};

use super::*;
use crate::{
    contention::Verdict,
    decode::{DeviceSeen, GpuProcessSeen, NvmlSeen, Sign, Stamp},
    placement::Known,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const SERVER: u32 = 10;
const JOB: u32 = 20;

struct Rig {
    occupancy: Occupancy,
    devices: Devices,
    health: Health,
}

impl Rig {
    /// So many devices, a server and a training job that are known by name.
    fn new(devices: u32) -> Self {
        let mut rig =
            Self { occupancy: Occupancy::default(), devices: Devices::default(), health: Health::default() };
        for index in 0..devices {
            let seen = DeviceSeen { uuid: format!("GPU-{index}"), index, ..DeviceSeen::default() };
            rig.tell(Observation::Nvml(NvmlSeen::Device(seen)));
        }
        rig.process(SERVER, "server", 8000);
        rig.process(JOB, "job", 0);
        rig
    }

    fn tell(&mut self, observation: Observation) {
        let at = Stamp { time_ns: 1, tgid: 0, tid: 0 };
        let event = Event::Observation(at, Box::new(observation));
        self.devices.observe(&event, &mut self.health);
        self.occupancy.observe(&event, &mut self.health);
    }

    fn process(&mut self, pid: u32, name: &str, port: u16) {
        let ports = (port > 0).then_some(crate::decode::ListenPort { netns: 1, port }).into_iter().collect();
        self.tell(Observation::Process(ProcessSeen {
            pid,
            start_ticks: 1,
            comm: name.to_owned(),
            service: name.to_owned(),
            service_name: name.to_owned(),
            container: None,
            cuda: true,
            ports,
        }));
    }

    /// What `/proc` says of it: the number of its only device, and that it trains.
    fn proc(&mut self, pid: u32, device: u32, signs: Vec<Sign>) {
        let visible_devices = Some(vec![device.to_string()]);
        self.tell(Observation::GpuProcess(GpuProcessSeen {
            pid,
            visible_devices,
            signs,
            ..GpuProcessSeen::default()
        }));
    }

    fn step(&mut self, pid: u32, begin: u64, end: u64) {
        let header =
            Header { abi: wire::ABI, kind: Kind::Step as u16, len: 0, time_ns: end, tgid: pid, tid: pid };
        let work = Work { launches: 4, ..Work::default() };
        let (first_ns, enter_ns) = (begin, end - 1);
        let step = cuda::Step {
            header,
            work,
            enter_ns,
            first_ns,
            last_ns: begin,
            stream: 1,
            event: 0,
            graph: 0,
            row: 0,
            flags: 0,
            result: 0,
            context: 0,
        };
        let service = if pid == SERVER { "server" } else { "job" };
        self.occupancy.step([service; 2], pid == JOB, &step, &mut self.health);
    }

    fn request(&mut self) {
        let record = RequestRecord {
            service: "server".into(),
            local_port: Some(8000),
            steps: Some(3),
            ..RequestRecord::default()
        };
        self.occupancy.request(&record, Some("server"), None);
    }

    fn tick(&mut self, now: u64) {
        self.occupancy.tick(now, Some(5_000 + now), &self.devices, &mut self.health);
    }

    /// The server works alone for a while, then with the job at its side.
    fn play(&mut self) {
        (0..10).for_each(|_| self.request());
        for i in 0..400 {
            let (begin, length) = (SECOND + i * 10 * MS, if i < 200 { 3 } else { 6 });
            self.step(SERVER, begin, begin + length * MS);
            if i >= 200 {
                self.step(JOB, begin, begin + 9 * MS);
            }
            if i % 100 == 99 {
                self.tick(begin + 10 * MS);
            }
        }
        for i in 5..12 {
            self.tick(i * SECOND);
        }
    }
}

fn train() -> Vec<Sign> {
    vec![Sign::TrainingCommand { word: "train".into() }]
}

#[test]
fn a_training_job_beside_a_server_is_named_and_measured() {
    let mut rig = Rig::new(2);
    rig.proc(SERVER, 1, Vec::new());
    rig.proc(JOB, 1, train());
    rig.play();
    let view = rig.occupancy.view();
    let pairs = &view.contention["GPU-1"];
    let pair = pairs.iter().find(|pair| pair.victim.pid == SERVER).unwrap();
    assert_eq!((&*pair.aggressor.workload, pair.aggressor.role), ("job", Role::Training));
    assert_eq!((pair.victim.role, pair.verdict), (Role::Inference, Verdict::Contended));
    assert!((pair.overlap_s - 200.0 * 0.006).abs() < 1e-9, "{pair:?}");
    assert!((pair.inflation_ratio.unwrap() - 2.0).abs() < 0.03, "{pair:?}");
    let [event] = &view.neighbours[..] else { panic!("{view:?}") };
    assert_eq!((event.inference.pid, event.training.pid, &*event.device), (SERVER, JOB, "GPU-1"));
    assert!(event.first_ns < event.last_ns);

    let active: Vec<_> = view.active.iter().map(|one| (&*one.device, &*one.workload)).collect();
    assert!(active.contains(&("GPU-1", "server")) && active.contains(&("GPU-1", "job")), "{active:?}");
    let of = |workload| {
        view.active.iter().filter(|one| one.workload == workload).map(|one| one.seconds).sum::<f64>()
    };
    assert!((of("server") - 1.8).abs() < 1e-9 && (of("job") - 1.8).abs() < 1e-9, "{view:?}");
    let server = view.processes.iter().find(|process| process.party.pid == SERVER).unwrap();
    assert_eq!(server.devices[0].known, Some(Known::Environment));
}

#[test]
fn on_devices_of_their_own_they_are_no_neighbours() {
    let mut rig = Rig::new(2);
    rig.proc(SERVER, 0, Vec::new());
    rig.proc(JOB, 1, train());
    rig.play();
    let view = rig.occupancy.view();
    assert!(
        view.contention.values().all(Vec::is_empty) && view.neighbours.is_empty() && view.overlaps.is_empty(),
        "{view:?}"
    );
}

#[test]
fn steps_wait_for_their_device_and_are_given_up_as_unknown() {
    let mut rig = Rig::new(2);
    rig.step(SERVER, SECOND, SECOND + MS);
    rig.tick(2 * SECOND);
    assert!(rig.occupancy.view().active.is_empty());
    rig.proc(SERVER, 1, Vec::new());
    rig.tick(4 * SECOND);
    assert_eq!(rig.occupancy.view().active[0].device, "GPU-1");

    rig.step(JOB, SECOND, SECOND + MS);
    rig.tick(20 * SECOND);
    let view = rig.occupancy.view();
    let unknown = view.active.iter().find(|one| one.workload == "job").unwrap();
    assert_eq!((&*unknown.device, unknown.seconds), ("unknown", 0.001));
    assert_eq!(rig.health.limits["steps_without_device"], 1);
    let job = view.processes.iter().find(|process| process.party.pid == JOB).unwrap();
    assert_eq!((&job.devices[0].device, job.devices[0].known), (&None, None));
}

#[test]
fn the_end_leaves_nothing_waiting() {
    let mut rig = Rig::new(1);
    rig.step(SERVER, SECOND, 2 * SECOND);
    rig.step(JOB, SECOND, 2 * SECOND);
    rig.occupancy.end(2 * SECOND, &rig.devices, &mut rig.health);
    let view = rig.occupancy.view();
    assert!((view.contention["GPU-0"][0].overlap_s - 1.0).abs() < 1e-9);
    assert!((view.active.iter().map(|one| one.seconds).sum::<f64>() - 2.0).abs() < 1e-9);
}

#[test]
fn a_process_that_ended_is_forgotten_and_its_time_is_not() {
    let mut rig = Rig::new(1);
    rig.step(JOB, SECOND, 2 * SECOND);
    let header =
        Header { abi: wire::ABI, kind: Kind::Exit as u16, len: 48, time_ns: 3 * SECOND, tgid: JOB, tid: JOB };
    let exit = process::Process { header, child: 0, row: 0, comm: [0; 16] };
    rig.occupancy.observe(&Event::Exit(exit), &mut rig.health);
    rig.tick(4 * SECOND);
    let view = rig.occupancy.view();
    assert!(view.processes.iter().all(|process| process.party.pid != JOB));
    assert!((view.active[0].seconds - 1.0).abs() < 1e-9);
    rig.tick(100 * SECOND);
    assert!(!rig.occupancy.processes.contains_key(&JOB));
    assert!(rig.occupancy.matrices.is_empty(), "so is a device without any");
    assert!((rig.occupancy.view().active[0].seconds - 1.0).abs() < 1e-9);
}

fn exit(pid: u32, time_ns: u64) -> Event<'static> {
    let header = Header { abi: wire::ABI, kind: Kind::Exit as u16, len: 48, time_ns, tgid: pid, tid: pid };
    Event::Exit(process::Process { header, child: 0, row: 0, comm: [0; 16] })
}

#[test]
fn who_has_a_number_anew_is_another() {
    let mut rig = Rig::new(1);
    let is_there =
        |rig: &Rig, pid| rig.occupancy.view().processes.iter().any(|process| process.party.pid == pid);
    // One that nobody saw, its end, its last step, and then the next.
    rig.step(30, SECOND, 2 * SECOND);
    rig.occupancy.observe(&exit(30, 3 * SECOND), &mut rig.health);
    rig.step(30, 2 * SECOND, 3 * SECOND);
    rig.tick(4 * SECOND);
    assert!(!is_there(&rig, 30));
    rig.step(30, 4 * SECOND, 5 * SECOND);
    rig.tick(6 * SECOND);
    assert!(is_there(&rig, 30));
    rig.tick(70 * SECOND);
    assert!(is_there(&rig, 30), "it lives");

    // One that was seen: word of its end comes late.
    rig.step(JOB, SECOND, 2 * SECOND);
    rig.occupancy.observe(&exit(JOB, 3 * SECOND), &mut rig.health);
    rig.step(JOB, 4 * SECOND, 5 * SECOND);
    rig.tell(Observation::ProcessGone { pid: JOB, start_ticks: 1 });
    rig.tick(72 * SECOND);
    assert!(is_there(&rig, JOB));
    rig.tell(Observation::ProcessGone { pid: JOB, start_ticks: 2 });
    rig.tick(74 * SECOND);
    assert!(!is_there(&rig, JOB));
}

#[test]
fn services_of_one_name_have_requests_of_their_own() {
    let mut rig = Rig::new(1);
    for i in 0..100 {
        rig.step(JOB, SECOND + i * 10 * MS, SECOND + i * 10 * MS + MS);
    }
    rig.occupancy.processes.get_mut(&JOB).unwrap().workload = "server".into();
    (0..10).for_each(|_| rig.request());
    rig.tick(4 * SECOND);
    let view = rig.occupancy.view();
    let job = view.processes.iter().find(|process| process.party.pid == JOB).unwrap();
    let is_request = |it: &crate::role::Evidence| matches!(it, crate::role::Evidence::Requests { .. });
    assert_eq!(job.party.role, Role::Batch);
    assert!(!job.evidence.iter().any(is_request), "{job:?}");
}

#[test]
fn sums_are_bounded_also_by_device() {
    let mut sums = BTreeMap::new();
    let others = |key: Option<(u32, u32)>| key.map_or((u32::MAX, u32::MAX), |(device, _)| (device, u32::MAX));
    for device in 0..10_000 {
        add(&mut sums, (device, 1), others, 2);
    }
    assert_eq!((sums.len(), sums.values().sum::<u64>()), (MAX_LABELS + MAX_DEVICES + 1, 20_000));
}

#[test]
fn processes_are_bounded() {
    let mut rig = Rig::new(1);
    for pid in 100..100 + u32::try_from(MAX_PROCESSES).unwrap() {
        rig.step(pid, SECOND, SECOND + u64::from(pid));
    }
    assert_eq!((rig.occupancy.processes.len(), rig.health.limits["occupancy_processes"]), (MAX_PROCESSES, 2));
}

#[test]
fn two_services_of_one_name_are_told_apart_and_what_is_inferred_is_said() {
    let mut rig = Rig::new(2);
    // Another service of the server's name.
    rig.tell(Observation::Process(ProcessSeen {
        pid: JOB,
        start_ticks: 1,
        comm: "server".into(),
        service: "job".into(),
        service_name: "server".into(),
        container: Some("0123456789abcdef".into()),
        cuda: true,
        ports: Vec::new(),
    }));
    rig.proc(SERVER, 1, Vec::new());
    rig.proc(JOB, 1, train());
    rig.play();
    let view = rig.occupancy.view();
    let mut labels: Vec<_> =
        view.overlaps.iter().map(|one| (&*one.victim, &*one.aggressor, one.inferred)).collect();
    labels.sort_unstable();
    assert_eq!(
        labels,
        [("server@0123456789ab", "server@10", true), ("server@10", "server@0123456789ab", true)]
    );
    assert!(view.contention["GPU-1"].iter().all(|pair| pair.inferred), "by the environment alone");
    assert!(view.active.iter().all(|one| one.inferred));
}
