//! Process landscapes and the services in them.

use super::*;

const NETNS: u32 = 4_026_531_840;

/// pid, parent, group, session, program; `port` 0: none.
fn process(pid: u32, ppid: u32, pgrp: u32, session: u32, exe: &str, gpu: bool, port: u16) -> Facts {
    Facts {
        pid,
        start_ticks: u64::from(pid) * 10,
        comm: exe.to_owned(),
        ppid,
        pgrp,
        session,
        exe: format!("/usr/bin/{exe}"),
        container: None,
        gpu,
        ports: if port == 0 { Vec::new() } else { vec![ListenPort { netns: NETNS, port }] },
        linked: BTreeSet::new(),
    }
}

fn linked(mut facts: Facts, fronts: &[u32]) -> Facts {
    facts.linked = fronts.iter().copied().collect();
    facts
}

fn contained(mut facts: Facts, id: &str) -> Facts {
    facts.container = Some(id.to_owned());
    facts
}

fn found(facts: &[Facts], wanted: &Wanted) -> Vec<(String, Vec<u32>)> {
    services(facts, wanted, &Assigned::new())
        .into_iter()
        .map(|service| (service.name, service.pids))
        .collect()
}

fn everything() -> Wanted {
    Wanted { own: 999, ..Wanted::default() }
}

#[track_caller]
fn check(facts: &[Facts], expected: &[(&str, &[u32])]) {
    let mut found = found(facts, &everything());
    found.sort();
    let mut expected: Vec<(String, Vec<u32>)> =
        expected.iter().map(|(name, pids)| ((*name).to_owned(), pids.to_vec())).collect();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn one_process_that_does_everything() {
    check(&[process(10, 1, 10, 10, "server", true, 8000)], &[("server:8000", &[10])]);
}

#[test]
fn listening_parent_and_engine_child_are_one_service() {
    check(
        &[
            process(10, 1, 10, 10, "front", false, 8000),
            process(11, 10, 10, 10, "engine", true, 0),
            process(12, 11, 10, 10, "worker", false, 0),
            process(13, 10, 10, 10, "tokenizer", false, 0),
        ],
        &[("front:8000", &[10, 11, 12, 13])],
    );
}

#[test]
fn an_engine_port_of_its_own_does_not_hide_the_front() {
    check(
        &[process(10, 1, 10, 10, "api", false, 8000), process(11, 10, 10, 10, "engine", true, 29500)],
        &[("api:8000", &[10, 11])],
    );
}

#[test]
fn the_shell_and_its_other_jobs_stay_out() {
    check(
        &[
            process(5, 1, 5, 5, "bash", false, 0),
            process(10, 5, 10, 5, "python3", true, 8000),
            process(11, 5, 11, 5, "python3", true, 0),
            process(12, 5, 12, 5, "python3", false, 9000),
        ],
        &[("python3", &[11]), ("python3:8000", &[10])],
    );
}

#[test]
fn a_launcher_may_start_front_and_engine_side_by_side() {
    check(
        &[
            process(5, 1, 5, 5, "sh", false, 0),
            process(10, 5, 5, 5, "python3", false, 8000),
            process(11, 5, 5, 5, "python3", true, 0),
            process(12, 5, 5, 5, "python3", true, 0),
            process(13, 5, 5, 5, "prometheus", false, 9090),
            process(14, 5, 5, 5, "python3", false, 0),
        ],
        &[("python3:8000", &[10, 11, 12])],
    );
}

#[test]
fn two_complete_servers_of_one_launcher_are_two_services() {
    check(
        &[
            process(5, 1, 5, 5, "sh", false, 0),
            process(10, 5, 5, 5, "python3", true, 8000),
            process(11, 5, 5, 5, "python3", true, 8001),
        ],
        &[("python3:8000", &[10]), ("python3:8001", &[11])],
    );
}

#[test]
fn neither_sshd_nor_a_supervisor_is_a_front() {
    check(
        &[
            process(2, 1, 2, 2, "sshd", false, 22),
            process(5, 2, 5, 5, "bash", false, 0),
            process(10, 5, 10, 5, "server", true, 8000),
            process(20, 1, 20, 20, "supervisord", false, 9001),
            process(21, 20, 21, 20, "engine", true, 8100),
        ],
        &[("server:8000", &[10]), ("engine:8100", &[21])],
    );
}

#[test]
fn a_container_is_a_service_whatever_its_tree() {
    check(
        &[
            process(2, 1, 2, 2, "shim", false, 1234),
            contained(process(10, 2, 10, 10, "tini", false, 0), "aa"),
            contained(process(11, 10, 11, 11, "api", false, 8000), "aa"),
            contained(process(12, 10, 12, 12, "engine", true, 0), "aa"),
            contained(process(20, 2, 20, 20, "other", false, 8000), "bb"),
        ],
        &[("api:8000", &[10, 11, 12])],
    );
}

#[test]
fn processes_without_gpu_are_nothing_unless_asked_for() {
    let facts = [
        process(10, 1, 10, 10, "nginx", false, 80),
        process(20, 1, 20, 20, "server", true, 8000),
        process(999, 1, 999, 999, "agent", true, 9414),
    ];
    let ask = |pids: &[u32], ports: &[u16]| {
        let wanted =
            Wanted { pids: pids.iter().copied().collect(), ports: ports.iter().copied().collect(), own: 999 };
        found(&facts, &wanted).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(ask(&[], &[]), ["server:8000"]);
    assert_eq!(ask(&[10], &[]), ["nginx:80"]);
    assert_eq!(ask(&[20], &[]), ["server:8000"]);
    assert_eq!(ask(&[], &[80]), ["nginx:80"]);
    assert_eq!(ask(&[], &[9414]), [""; 0]);
    assert_eq!(ask(&[20], &[80]), ["nginx:80", "server:8000"]);
}

/// The key must not change when the front is found after the engine, nor when the engine is restarted.
#[test]
fn a_process_keeps_its_service() {
    let engine = process(11, 10, 10, 10, "engine", true, 0);
    let silent = process(10, 1, 10, 10, "front", false, 0);
    let front = process(10, 1, 10, 10, "front", false, 8000);
    let mut assigned = Assigned::new();
    let mut step = |facts: &[Facts]| {
        let services = services(facts, &everything(), &assigned);
        for service in &services {
            for one in facts.iter().filter(|one| service.pids.contains(&one.pid)) {
                assigned.insert((one.pid, one.start_ticks), service.key.clone());
            }
        }
        services
    };
    let first = step(&[silent.clone(), engine.clone()]);
    assert_eq!(first[0].pids, [11]);
    let second = step(&[front.clone(), engine]);
    assert_eq!((second.len(), &second[0].key, second[0].pids.as_slice()), (1, &first[0].key, &[10, 11][..]));
    let without_engine = step(std::slice::from_ref(&front));
    assert_eq!(without_engine[0].pids, [10]);
    let restarted = step(&[front, process(15, 10, 10, 10, "engine", true, 0)]);
    assert_eq!((restarted.len(), &restarted[0].key), (1, &first[0].key));
    // Pid 10 is reused by something else: no service.
    let mut reused = process(10, 1, 10, 10, "cron", false, 0);
    reused.start_ticks = 5;
    assert_eq!(step(&[reused]), []);
}

#[test]
fn loops_and_orphans_in_proc_are_survived() {
    let mut one = process(10, 11, 10, 10, "a", true, 1);
    one.ppid = 11;
    let two = process(11, 10, 10, 10, "b", true, 2);
    assert!(!found(&[one, two, process(12, 4242, 12, 12, "c", true, 0)], &everything()).is_empty());
}

#[test]
fn an_engine_belongs_to_the_front_that_it_is_linked_to() {
    // Started by two units of one supervisor, in sessions of their own.
    let apart = [
        process(10, 1, 10, 10, "front", false, 8000),
        process(11, 10, 10, 10, "tokenizer", false, 0),
        linked(process(20, 1, 20, 20, "engine", true, 0), &[11]),
        process(21, 20, 20, 20, "worker", false, 0),
    ];
    check(&apart, &[("front:8000", &[10, 11, 20, 21])]);
    // A log daemon that does not listen, and a server with a GPU of its own, are no fronts.
    let others = [
        process(10, 1, 10, 10, "journald", false, 0),
        process(12, 1, 12, 12, "other", true, 9000),
        linked(process(20, 1, 20, 20, "engine", true, 0), &[10, 12]),
    ];
    check(&others, &[("engine", &[20]), ("other:9000", &[12])]);
}

#[test]
fn two_servers_of_one_program_in_one_job_are_two() {
    let shell = process(5, 1, 5, 5, "bash", false, 0);
    let server = |front: u32, port: u16| {
        let engine = linked(process(front + 1, 5, 9, 5, "serve", true, 0), &[front]);
        [process(front, 5, 9, 5, "serve", false, port), engine]
    };
    let [a, b] = [server(10, 8000), server(20, 8001)];
    let all: Vec<Facts> = [shell].into_iter().chain(a).chain(b).collect();
    check(&all, &[("serve:8000", &[10, 11]), ("serve:8001", &[20, 21])]);
}

#[test]
fn two_fronts_of_one_engine_are_one_service() {
    let all = [
        process(10, 1, 9, 9, "api", false, 8000),
        process(11, 1, 9, 9, "api", false, 8000),
        linked(process(12, 1, 12, 12, "engine", true, 0), &[10, 11]),
    ];
    check(&all, &[("api:8000", &[10, 11, 12])]);
}
