//! Which process belongs to which service.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};
use wire::process::Process as Record;

use super::ServiceId;
use crate::{decode::ProcessSeen, health::Health};

/// Services that are told apart in one run.
pub(super) const MAX_SERVICES: usize = 4096;
/// Listening ports remembered per service.
const MAX_PORTS: usize = 256;
/// Ended processes whose name is still known, for records that are finished after them.
const MAX_ENDED: usize = 1024;

#[derive(Clone, Debug)]
struct Process {
    service: ServiceId,
    comm: String,
    container: Option<String>,
    /// 0 as long as only its parent is known.
    start_ticks: u64,
    ended: bool,
    /// When, `CLOCK_MONOTONIC` ns: what it did before may be told after.
    ended_ns: u64,
}

#[derive(Debug)]
struct Service {
    key: String,
    name: String,
    /// Processes of it in the table, those that ended lately among them. Without any, it is forgotten.
    processes: usize,
    /// Those of them that have not ended.
    living: usize,
    ports: FxHashSet<(u32, u16)>,
}

/// The processes of services.
#[derive(Debug)]
pub(super) struct Processes {
    max: usize,
    by_pid: FxHashMap<u32, Process>,
    services: FxHashMap<ServiceId, Service>,
    next_service: u32,
    by_key: FxHashMap<String, ServiceId>,
    /// Ended processes, oldest first.
    ended: VecDeque<u32>,
}

impl Processes {
    /// None yet; at most `max`.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            by_pid: FxHashMap::default(),
            services: FxHashMap::default(),
            next_service: 0,
            by_key: FxHashMap::default(),
            ended: VecDeque::new(),
        }
    }

    /// Service of a living process.
    pub(super) fn service(&self, pid: u32) -> Option<ServiceId> {
        self.by_pid.get(&pid).filter(|p| !p.ended).map(|p| p.service)
    }

    /// Service of a process that did something at a time. /proc may have told of its end since.
    pub(super) fn service_at(&self, pid: u32, time_ns: u64) -> Option<ServiceId> {
        self.by_pid.get(&pid).filter(|p| !p.ended || time_ns <= p.ended_ns).map(|p| p.service)
    }

    /// Name of a service; empty for an id that was never given.
    pub(super) fn service_name(&self, id: ServiceId) -> &str {
        self.services.get(&id).map_or("", |service| service.name.as_str())
    }

    /// Key of a service, likewise.
    pub(super) fn service_key(&self, id: ServiceId) -> &str {
        self.services.get(&id).map_or("", |service| service.key.as_str())
    }

    /// Name of a process, also of one that ended lately.
    pub(super) fn comm(&self, pid: u32) -> Option<&str> {
        self.by_pid.get(&pid).map(|p| p.comm.as_str())
    }

    /// Container of a process, likewise.
    pub(super) fn container(&self, pid: u32) -> Option<&str> {
        self.by_pid.get(&pid)?.container.as_deref()
    }

    /// The process's service listens there.
    pub(super) fn listens(&self, pid: u32, netns: u32, port: u16) -> bool {
        let service = self.service(pid).and_then(|id| self.services.get(&id));
        service.is_some_and(|service| service.ports.contains(&(netns, port)))
    }

    /// A process of a service was seen. If another one had its number and the end of that was missed: its service.
    pub(super) fn seen(&mut self, seen: &ProcessSeen, health: &mut Health) -> Option<ServiceId> {
        let service = self.intern(&seen.service, &seen.service_name, health)?;
        for port in &seen.ports {
            self.add_port(service, (port.netns, port.port), health);
        }
        let ticks = seen.start_ticks;
        let stale = |p: &&Process| !p.ended && p.start_ticks != 0 && p.start_ticks != ticks;
        let before = self.by_pid.get(&seen.pid).filter(stale).map(|p| p.service);
        let process = Process {
            service,
            comm: seen.comm.clone(),
            container: seen.container.clone(),
            start_ticks: seen.start_ticks,
            ended: false,
            ended_ns: 0,
        };
        self.insert(seen.pid, process, health);
        before
    }

    /// A process calls CUDA and is watched from this call on, before anything else is known of it. Those of one name are
    /// one service, until it is known better.
    pub(super) fn admitted(&mut self, record: &Record, health: &mut Health) {
        let pid = record.header.tgid;
        if self.service(pid).is_some() {
            return;
        }
        let comm = comm(&record.comm);
        if let Some(service) = self.intern(&format!("comm:{comm}"), &comm, health) {
            let process =
                Process { service, comm, container: None, start_ticks: 0, ended: false, ended_ns: 0 };
            self.insert(pid, process, health);
        }
    }

    fn intern(&mut self, key: &str, name: &str, health: &mut Health) -> Option<ServiceId> {
        if let Some(id) = self.by_key.get(key) {
            if let Some(service) = self.services.get_mut(id).filter(|service| service.name != name) {
                name.clone_into(&mut service.name);
            }
            return Some(*id);
        }
        while self.services.len() >= MAX_SERVICES {
            let Some(oldest) = self.ended.pop_front() else {
                health.ignore("service_table_full");
                return None;
            };
            self.forget(oldest);
        }
        let id = ServiceId(self.next_service);
        self.next_service = self.next_service.checked_add(1)?;
        let (key, name) = (key.to_owned(), name.to_owned());
        self.by_key.insert(key.clone(), id);
        self.services.insert(id, Service { key, name, processes: 0, living: 0, ports: FxHashSet::default() });
        Some(id)
    }

    fn add_port(&mut self, service: ServiceId, port: (u32, u16), health: &mut Health) {
        let Some(ports) = self.services.get_mut(&service).map(|service| &mut service.ports) else { return };
        if ports.len() < MAX_PORTS {
            ports.insert(port);
        } else if !ports.contains(&port) {
            health.ignore("port_table_full");
        }
    }

    fn insert(&mut self, pid: u32, process: Process, health: &mut Health) {
        while self.by_pid.len() >= self.max && !self.by_pid.contains_key(&pid) {
            let Some(oldest) = self.ended.pop_front() else {
                health.ignore("process_table_full");
                return self.forget_unused(process.service);
            };
            self.forget(oldest);
        }
        if let Some(service) = self.services.get_mut(&process.service) {
            service.processes += 1;
            service.living += 1;
        }
        if let Some(before) = self.by_pid.insert(pid, process) {
            self.ended_one(before.service, !before.ended);
            self.leave(before.service);
        }
    }

    /// One process of the service has ended, if it `was_living`.
    fn ended_one(&mut self, id: ServiceId, was_living: bool) {
        if let Some(service) = self.services.get_mut(&id).filter(|_| was_living) {
            service.living = service.living.saturating_sub(1);
        }
    }

    /// A process of the service runs, as far as is known.
    pub(super) fn is_living(&self, id: ServiceId) -> bool {
        self.services.get(&id).is_some_and(|service| service.living > 0)
    }

    /// The service has processes, or had some lately.
    pub(super) fn knows(&self, id: ServiceId) -> bool {
        self.services.contains_key(&id)
    }

    /// One process of the service less.
    fn leave(&mut self, id: ServiceId) {
        if let Some(service) = self.services.get_mut(&id) {
            service.processes = service.processes.saturating_sub(1);
        }
        self.forget_unused(id);
    }

    /// Drops a service without processes.
    fn forget_unused(&mut self, id: ServiceId) {
        if let Some(service) = self.services.get(&id).filter(|service| service.processes == 0) {
            self.by_key.remove(&service.key);
            self.services.remove(&id);
        }
    }

    /// Drops an ended process, unless its number is in use again.
    fn forget(&mut self, pid: u32) {
        if self.by_pid.get(&pid).is_some_and(|p| p.ended)
            && let Some(process) = self.by_pid.remove(&pid)
        {
            self.leave(process.service);
        }
    }

    /// A process listens on one more port.
    pub(super) fn listen(&mut self, pid: u32, netns: u32, port: u16, health: &mut Health) {
        if let Some(service) = self.service(pid) {
            self.add_port(service, (netns, port), health);
        }
    }

    /// A child belongs to its parent's service until something else is seen of it.
    pub(super) fn fork(&mut self, record: &Record, health: &mut Health) {
        let Some(parent) = self.by_pid.get(&record.header.tgid).filter(|p| !p.ended) else { return };
        // Discovery may have been faster than the record.
        if self.service(record.child).is_some() {
            return;
        }
        let child = Process { start_ticks: 0, ..parent.clone() };
        self.insert(record.child, child, health);
    }

    /// A process has a new image, and with it a new name.
    pub(super) fn exec(&mut self, record: &Record) {
        if let Some(process) = self.by_pid.get_mut(&record.header.tgid).filter(|p| !p.ended) {
            process.comm = comm(&record.comm);
        }
    }

    /// A process ended; its service, if it had one and its end is news. `start_ticks` is 0 when not known.
    pub(super) fn exit(&mut self, pid: u32, start_ticks: u64, time_ns: u64) -> Option<ServiceId> {
        let process = self.by_pid.get_mut(&pid).filter(|p| !p.ended)?;
        if start_ticks != 0 && process.start_ticks != 0 && start_ticks != process.start_ticks {
            return None;
        }
        process.ended = true;
        process.ended_ns = time_ns;
        let service = process.service;
        self.ended_one(service, true);
        self.ended.push_back(pid);
        if self.ended.len() > MAX_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.forget(oldest);
        }
        Some(service)
    }
}

/// A task's name from its NUL-padded bytes.
fn comm(bytes: &[u8; 16]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::ListenPort;

    fn seen(pid: u32, start_ticks: u64, service: &str) -> ProcessSeen {
        ProcessSeen {
            pid,
            start_ticks,
            comm: "python".into(),
            service: service.into(),
            service_name: format!("name of {service}"),
            container: Some("c".repeat(64)),
            cuda: true,
            ports: vec![ListenPort { netns: 1, port: 8000 }],
        }
    }

    fn record(tgid: u32, child: u32) -> Record {
        let header = wire::Header {
            abi: wire::ABI,
            kind: wire::Kind::Fork as u16,
            len: 48,
            time_ns: 1,
            tgid,
            tid: tgid,
        };
        Record { header, child, row: 0, comm: *b"worker\0\0\0\0\0\0\0\0\0\0" }
    }

    #[test]
    fn children_inherit_and_names_outlive_processes() {
        let (mut table, mut health) = (Processes::new(8), Health::default());
        table.seen(&seen(1, 5, "a"), &mut health);
        table.fork(&record(1, 2), &mut health);
        table.exec(&record(2, 0));
        assert_eq!((table.service(2), table.comm(2)), (Some(ServiceId(0)), Some("worker")));
        assert!(table.listens(2, 1, 8000));
        assert!(!table.listens(2, 2, 8000));
        assert_eq!(table.exit(2, 0, 10), Some(ServiceId(0)));
        assert_eq!(table.exit(2, 0, 10), None);
        assert_eq!((table.service(2), table.comm(2)), (None, Some("worker")));
        assert_eq!((table.service_at(2, 10), table.service_at(2, 11)), (Some(ServiceId(0)), None));
        assert_eq!(table.service_name(ServiceId(0)), "name of a");
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let (mut table, mut health) = (Processes::new(8), Health::default());
        assert_eq!(table.seen(&seen(1, 5, "a"), &mut health), None);
        assert_eq!(table.seen(&seen(1, 5, "a"), &mut health), None);
        assert_eq!(table.seen(&seen(1, 6, "b"), &mut health), Some(ServiceId(0)));
        assert_eq!(table.exit(1, 5, 10), None);
        assert_eq!(table.service(1), Some(ServiceId(1)));
        assert_eq!(table.exit(1, 6, 10), Some(ServiceId(1)));
    }

    #[test]
    fn a_service_goes_with_its_last_process() {
        let (mut table, mut health) = (Processes::new(16_384), Health::default());
        for n in 0..20_000_u32 {
            table.admitted(&record(n + 1, n + 1), &mut health);
            table.seen(&seen(n + 1, u64::from(n) + 1, &format!("service {n}")), &mut health);
            assert!(table.service(n + 1).is_some(), "{n}: {health:?}");
            table.exit(n + 1, 0, 10);
        }
        assert!(table.services.len() <= MAX_ENDED + 1, "{}", table.services.len());
        assert_eq!(table.services.len(), table.by_key.len());
        assert_eq!(health.ignored, std::collections::BTreeMap::new());
    }

    #[test]
    fn a_process_that_calls_before_it_is_known_goes_by_its_name() {
        let (mut table, mut health) = (Processes::new(8), Health::default());
        table.admitted(&record(7, 7), &mut health);
        let early = table.service(7).unwrap();
        assert_eq!(table.service_name(early), "worker");
        table.admitted(&record(8, 8), &mut health);
        assert_eq!(table.service(8), Some(early));
        assert_eq!(table.seen(&seen(7, 5, "a"), &mut health), None, "it did not end");
        assert_eq!(table.service_name(table.service(7).unwrap()), "name of a");
    }

    #[test]
    fn the_table_is_bounded_and_says_so() {
        let (mut table, mut health) = (Processes::new(4), Health::default());
        for pid in 1..=4 {
            table.seen(&seen(pid, 1, "a"), &mut health);
        }
        table.seen(&seen(5, 1, "a"), &mut health);
        assert_eq!((table.service(5), health.ignored["process_table_full"]), (None, 1));
        table.exit(1, 1, 10);
        table.seen(&seen(6, 1, "a"), &mut health);
        assert!(table.service(6).is_some());
        assert_eq!(table.comm(1), None);
    }
}
