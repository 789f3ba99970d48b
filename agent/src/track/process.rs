//! Which process belongs to which service.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use wire::process::Process as Record;

use super::{ServiceId, service::Services};
use crate::{decode::ProcessSeen, health::Health};

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
}

/// The processes of services.
#[derive(Debug)]
pub(super) struct Processes {
    max: usize,
    by_pid: FxHashMap<u32, Process>,
    services: Services,
    /// Ended processes, oldest first.
    ended: VecDeque<u32>,
}

impl Processes {
    /// None yet; at most `max`.
    pub(super) fn new(max: usize) -> Self {
        Self { max, by_pid: FxHashMap::default(), services: Services::default(), ended: VecDeque::new() }
    }

    /// Service of a living process.
    pub(super) fn service(&self, pid: u32) -> Option<ServiceId> {
        self.by_pid.get(&pid).filter(|p| !p.ended).map(|p| p.service)
    }

    /// The services.
    pub(super) fn services(&self) -> &Services {
        &self.services
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
        self.service(pid).is_some_and(|id| self.services.listens(id, netns, port))
    }

    /// A process of a service was seen. If another one had its number and the end of that was missed: its service.
    pub(super) fn seen(&mut self, seen: &ProcessSeen, health: &mut Health) -> Option<ServiceId> {
        let service = self.services.intern(seen, health)?;
        for port in &seen.ports {
            self.services.add_port(service, (port.netns, port.port), health);
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
        };
        self.insert(seen.pid, process, health);
        before
    }

    fn insert(&mut self, pid: u32, process: Process, health: &mut Health) {
        while self.by_pid.len() >= self.max && !self.by_pid.contains_key(&pid) {
            let Some(oldest) = self.ended.pop_front() else {
                health.ignore("process_table_full");
                return;
            };
            self.forget(oldest);
        }
        self.services.joined(process.service);
        if let Some(before) = self.by_pid.insert(pid, process).filter(|p| !p.ended) {
            self.services.left(before.service);
        }
    }

    /// Drops an ended process, unless its number is in use again.
    fn forget(&mut self, pid: u32) {
        if self.by_pid.get(&pid).is_some_and(|p| p.ended) {
            self.by_pid.remove(&pid);
        }
    }

    /// A process listens on one more port.
    pub(super) fn listen(&mut self, pid: u32, netns: u32, port: u16, health: &mut Health) {
        if let Some(service) = self.service(pid) {
            self.services.add_port(service, (netns, port), health);
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
    pub(super) fn exit(&mut self, pid: u32, start_ticks: u64) -> Option<ServiceId> {
        let process = self.by_pid.get_mut(&pid).filter(|p| !p.ended)?;
        if start_ticks != 0 && process.start_ticks != 0 && start_ticks != process.start_ticks {
            return None;
        }
        process.ended = true;
        let service = process.service;
        self.services.left(service);
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
        assert_eq!(table.exit(2, 0), Some(ServiceId(0)));
        assert_eq!(table.exit(2, 0), None);
        assert_eq!((table.service(2), table.comm(2)), (None, Some("worker")));
        assert_eq!(table.services().name(ServiceId(0)), "name of a");
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let (mut table, mut health) = (Processes::new(8), Health::default());
        assert_eq!(table.seen(&seen(1, 5, "a"), &mut health), None);
        assert_eq!(table.seen(&seen(1, 5, "a"), &mut health), None);
        assert_eq!(table.seen(&seen(1, 6, "b"), &mut health), Some(ServiceId(0)));
        assert_eq!(table.exit(1, 5), None);
        assert_eq!(table.service(1), Some(ServiceId(1)));
        assert_eq!(table.exit(1, 6), Some(ServiceId(1)));
    }

    #[test]
    fn the_table_is_bounded_and_says_so() {
        let (mut table, mut health) = (Processes::new(4), Health::default());
        for pid in 1..=4 {
            table.seen(&seen(pid, 1, "a"), &mut health);
        }
        table.seen(&seen(5, 1, "a"), &mut health);
        assert_eq!((table.service(5), health.ignored["process_table_full"]), (None, 1));
        table.exit(1, 1);
        table.seen(&seen(6, 1, "a"), &mut health);
        assert!(table.service(6).is_some());
        assert_eq!(table.comm(1), None);
    }
}
