//! The scanner on a fake `/proc`.

use std::{fs, os::unix::fs::symlink, path::Path};

use super::*;

const NET_HEAD: &str = "  sl  local_address rem_address   st\n";

struct Fake(tempfile::TempDir);

impl Fake {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, pid: u32) -> std::path::PathBuf {
        self.0.path().join(pid.to_string())
    }

    fn process(&self, pid: u32, comm: &str, session: u32) {
        for name in ["fd", "ns", "net"] {
            fs::create_dir_all(self.path(pid).join(name)).unwrap();
        }
        self.stat(pid, comm, session, 4096);
        fs::write(self.path(pid).join("cgroup"), "0::/\n").unwrap();
        fs::write(self.path(pid).join("maps"), "").unwrap();
        fs::write(self.path(pid).join("net/tcp"), NET_HEAD).unwrap();
        symlink(Path::new("/bin").join(comm), self.path(pid).join("exe")).unwrap();
        symlink("net:[77]", self.path(pid).join("ns/net")).unwrap();
    }

    fn stat(&self, pid: u32, comm: &str, session: u32, vsize: u64) {
        let text =
            format!("{pid} ({comm}) S 1 {session} {session} 0 -1 0 1 0 0 0 1 2 0 0 20 0 1 0 55 {vsize} 12");
        fs::write(self.path(pid).join("stat"), text).unwrap();
    }

    fn map_driver(&self, pid: u32) {
        fs::write(self.path(pid).join("maps"), "1000-2000 r-xp 0 fe:01 9   /lib/libcuda.so.1\n").unwrap();
    }

    fn listen(&self, pids: &[u32], owner: u32, port: u16) {
        let line = format!(" 0: 00000000:{port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 4242 1\n");
        for &pid in pids {
            fs::write(self.path(pid).join("net/tcp"), format!("{NET_HEAD}{line}")).unwrap();
        }
        symlink("socket:[4242]", self.path(owner).join("fd/3")).unwrap();
    }

    fn scanner(&self) -> Scanner {
        Scanner::new(ProcFs::new(self.0.path()))
    }
}

fn gpu_pids(scanner: &Scanner) -> Vec<u32> {
    scanner
        .facts(|_, mapped| !mapped.cuda.is_empty())
        .into_iter()
        .filter(|facts| facts.gpu)
        .map(|facts| facts.pid)
        .collect()
}

#[test]
fn a_driver_loaded_later_is_found_when_the_address_space_changes() {
    let fake = Fake::new();
    fake.process(10, "server", 10);
    let mut scanner = fake.scanner();
    let wanted = Wanted::default();
    scanner.full(&wanted).unwrap();
    assert_eq!(gpu_pids(&scanner), [0; 0]);
    fake.map_driver(10);
    scanner.full(&wanted).unwrap();
    assert_eq!(gpu_pids(&scanner), [0; 0], "same size: not looked at");
    fake.stat(10, "server", 10, 8192);
    scanner.full(&wanted).unwrap();
    assert_eq!(gpu_pids(&scanner), [10]);
}

#[test]
fn a_hint_is_enough() {
    let fake = Fake::new();
    fake.process(10, "server", 10);
    let mut scanner = fake.scanner();
    scanner.full(&Wanted::default()).unwrap();
    fake.map_driver(10);
    scanner.some(&BTreeSet::from([10, 4242]), &Wanted::default());
    assert_eq!(gpu_pids(&scanner), [10]);
}

#[test]
fn an_unnoticed_change_is_noticed_in_the_end() {
    let fake = Fake::new();
    fake.process(10, "server", 10);
    let mut scanner = fake.scanner();
    scanner.full(&Wanted::default()).unwrap();
    fake.map_driver(10);
    for _ in 0..STALE_AFTER {
        scanner.full(&Wanted::default()).unwrap();
    }
    assert_eq!(gpu_pids(&scanner), [10]);
}

#[test]
fn ports_are_looked_for_only_where_they_can_matter() {
    let fake = Fake::new();
    fake.process(10, "engine", 10);
    fake.process(11, "front", 10);
    fake.process(20, "nginx", 20);
    fake.map_driver(10);
    let mut scanner = fake.scanner();
    let ports = |scanner: &Scanner| {
        let facts = scanner
            .facts(|_, mapped| !mapped.cuda.is_empty())
            .into_iter()
            .filter(|facts| !facts.ports.is_empty());
        facts.map(|facts| (facts.pid, facts.ports[0].port)).collect::<Vec<_>>()
    };
    scanner.full(&Wanted::default()).unwrap();
    assert_eq!(ports(&scanner), []);
    fake.listen(&[10, 11, 20], 11, 8000);
    symlink("socket:[4242]", fake.path(20).join("fd/3")).unwrap();
    scanner.full(&Wanted::default()).unwrap();
    assert_eq!(ports(&scanner), [(11, 8000)]);
    scanner.full(&Wanted { ports: BTreeSet::from([8000]), ..Wanted::default() }).unwrap();
    assert_eq!(ports(&scanner), [(11, 8000), (20, 8000)]);
}

/// The first process of a namespace is any that happens to run in it, for as short as it likes.
#[test]
fn a_port_is_not_lost_with_another_process_of_the_namespace() {
    let fake = Fake::new();
    fake.process(9, "curl", 10);
    fake.process(10, "server", 10);
    fake.map_driver(10);
    fake.listen(&[9, 10], 10, 8000);
    let mut scanner = fake.scanner();
    let ports = |scanner: &Scanner| {
        scanner
            .facts(|_, mapped| !mapped.cuda.is_empty())
            .into_iter()
            .flat_map(|facts| facts.ports)
            .map(|at| at.port)
            .collect::<Vec<_>>()
    };
    scanner.full(&Wanted::default()).unwrap();
    assert_eq!(ports(&scanner), [8000]);
    fs::remove_dir_all(fake.path(9)).unwrap();
    scanner.some(&BTreeSet::from([10]), &Wanted::default());
    assert_eq!(ports(&scanner), [8000]);
    fs::remove_dir_all(fake.path(10).join("fd")).unwrap();
    scanner.some(&BTreeSet::from([10]), &Wanted::default());
    assert_eq!(ports(&scanner), [8000], "cannot be looked at, which is not the same as closed");
}

#[test]
fn processes_that_end_are_forgotten() {
    let fake = Fake::new();
    fake.process(10, "server", 10);
    fake.process(11, "kthread", 11);
    fake.stat(11, "kthread", 11, 0);
    let mut scanner = fake.scanner();
    scanner.full(&Wanted::default()).unwrap();
    assert!(scanner.is_alive(10) && !scanner.is_alive(11));
    fs::remove_dir_all(fake.path(10)).unwrap();
    scanner.full(&Wanted::default()).unwrap();
    assert_eq!(scanner.len(), 0);
}

/// Under its own number the kernel then shows nothing but its name.
#[test]
fn a_process_whose_first_thread_has_ended_is_seen_by_another() {
    let fake = Fake::new();
    fake.process(10, "server", 10);
    fake.process(12, "server", 10);
    fake.map_driver(12);
    fake.listen(&[12], 12, 8000);
    let gone = "10 (server) Z 1 10 10 0 -1 0 1 0 0 0 1 2 0 0 20 0 2 0 55 0 12";
    fs::write(fake.path(10).join("stat"), gone).unwrap();
    for name in ["exe", "maps", "ns", "net", "fd"] {
        let path = fake.path(10).join(name);
        fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)).unwrap();
    }
    for thread in ["10", "12"] {
        fs::create_dir_all(fake.path(10).join("task").join(thread)).unwrap();
    }
    let mut scanner = fake.scanner();
    scanner.full(&Wanted::default()).unwrap();
    let facts =
        scanner.facts(|_, mapped| !mapped.cuda.is_empty()).into_iter().find(|facts| facts.pid == 10).unwrap();
    assert_eq!((facts.gpu, facts.start_ticks, facts.ports[0].port), (true, 55, 8000));
    assert_eq!((scanner.view(10), scanner.view(12)), (12, 12));
    // A zombie that nobody has waited for has no other thread.
    fs::write(fake.path(10).join("stat"), gone.replace("20 0 2 0", "20 0 1 0")).unwrap();
    scanner.full(&Wanted::default()).unwrap();
    assert!(!scanner.is_alive(10));
}
