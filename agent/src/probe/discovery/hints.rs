//! Hints to discovery: what the ring buffer says of processes, so that news need not wait for the next scan.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use super::super::table::{self, Symbol};
use wire::{Header, Kind, process::Process, rare};
use zerocopy::FromBytes;

/// Hints waiting to be read by discovery; more are dropped and counted, and the next scan sees what they said.
const QUEUE: usize = 1024;
/// Processes waiting for a look.
const PENDING: usize = 1024;
/// Processes looked at per round, and the least time between rounds: a compile farm must not turn into a scan farm.
pub(super) const PER_ROUND: usize = 16;
/// See [`PER_ROUND`].
pub(super) const ROUND: Duration = Duration::from_millis(20);
/// When a process that replaced its image is looked at: the loader needs a moment to map libraries.
const AFTER_EXEC: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(50), Duration::from_millis(300)];

/// A function of the table that a process was given the address of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Process.
    pub pid: u32,
    /// Row of the table.
    pub row: u16,
    /// Which of its symbols, as far as the name told.
    pub symbol: Symbol,
    /// Where the function is in the process.
    pub address: u64,
}

/// One message to the discovery thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Look at the process now.
    Look(u32),
    /// The process was given the address of a function: compare it with what is attached to.
    Resolved(Resolved),
    /// The process replaced its image: look soon, and again a little later.
    Exec(u32),
    /// Stop.
    Stop,
}

/// Sends hints; cheap to clone, never blocks.
#[derive(Clone, Debug)]
pub struct Hints {
    sender: SyncSender<Hint>,
    dropped: Arc<AtomicU64>,
}

impl Hints {
    /// A queue, and its reading end.
    pub fn channel() -> (Self, Receiver<Hint>) {
        let (sender, receiver) = sync_channel(QUEUE);
        (Self { sender, dropped: Arc::default() }, receiver)
    }

    /// Something happened to this process: look at it now.
    pub fn hint(&self, pid: u32) {
        self.send(Hint::Look(pid));
    }

    /// Reads what a record from the ring buffer tells about processes. Call it for every record: it costs a
    /// comparison for those that tell nothing.
    pub fn observe(&self, record: &[u8]) {
        hints_in(record).into_iter().flatten().for_each(|hint| self.send(hint));
    }

    /// Hints that did not fit the queue.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(in crate::probe) fn stop(&self) -> bool {
        self.sender.try_send(Hint::Stop).is_ok()
    }

    fn send(&self, hint: Hint) {
        if self.sender.try_send(hint).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn hints_in(record: &[u8]) -> [Option<Hint>; 2] {
    let Ok((header, _)) = Header::read_from_prefix(record) else { return [None; 2] };
    if header.abi != wire::ABI {
        return [None; 2];
    }
    let look = |pid: u32| (pid != 0).then_some(Hint::Look(pid));
    match Kind::from_u16(header.kind) {
        Some(Kind::Exec) => [Some(Hint::Exec(header.tgid)), None],
        Some(Kind::Exit | Kind::CudaSeen | Kind::SocketListen) => [look(header.tgid), None],
        Some(Kind::Resolved) => [resolved(record).map(Hint::Resolved), None],
        Some(Kind::Fork) => {
            let child = Process::read_from_prefix(record).map_or(0, |(process, _)| process.child);
            [look(child), None]
        }
        _ => [None; 2],
    }
}

/// Only functions of the table are of interest.
fn resolved(record: &[u8]) -> Option<Resolved> {
    let (found, _) = rare::Resolved::read_from_prefix(record).ok()?;
    let end = found.name.iter().position(|b| *b == 0)?;
    let name = std::str::from_utf8(&found.name[..end]).ok()?;
    let own_stream = found.flags & rare::RESOLVE_PER_THREAD != 0;
    let (row, symbol) = table::find(name, own_stream, found.version)?;
    Some(Resolved { pid: found.header.tgid, row, symbol, address: found.address })
}

/// Which processes are to be looked at, and when. Bounded.
#[derive(Debug, Default)]
pub(super) struct Pending {
    due: BTreeMap<u32, (Instant, usize)>,
    resolved: Vec<Resolved>,
    not_before: Option<Instant>,
    stopped: bool,
}

/// Why waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// Something may be due.
    Due,
    /// Discovery is to end.
    Stop,
}

impl Pending {
    /// Waits for hints until `deadline`, or until a process is due, whichever is first.
    pub(super) fn wait(&mut self, receiver: &Receiver<Hint>, deadline: Instant) -> Wake {
        loop {
            let until = self.next_due().map_or(deadline, |due| due.min(deadline));
            match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(hint) => self.note(hint, Instant::now()),
                Err(RecvTimeoutError::Timeout) => return Wake::Due,
                Err(RecvTimeoutError::Disconnected) => return Wake::Stop,
            }
            receiver.try_iter().take(QUEUE).for_each(|hint| self.note(hint, Instant::now()));
            if self.stopped {
                return Wake::Stop;
            }
            // Checked here too: a receiver that always has something never times out.
            if Instant::now() >= until {
                return Wake::Due;
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let first = self.due.values().map(|(at, _)| *at).min()?;
        Some(self.not_before.map_or(first, |not_before| first.max(not_before)))
    }

    fn note(&mut self, hint: Hint, now: Instant) {
        let (pid, at, round) = match hint {
            Hint::Look(pid) => (pid, now, AFTER_EXEC.len()),
            Hint::Exec(pid) => (pid, now + AFTER_EXEC[0], 1),
            Hint::Resolved(found) => {
                // Looked at too, since what it maps is needed; the others of a burst are in the queue by then.
                if self.resolved.len() < PENDING {
                    self.resolved.push(found);
                }
                (found.pid, now, AFTER_EXEC.len())
            }
            Hint::Stop => {
                self.stopped = true;
                return;
            }
        };
        if self.due.len() < PENDING || self.due.contains_key(&pid) {
            let entry = self.due.entry(pid).or_insert((at, round));
            *entry = (entry.0.min(at), entry.1.min(round));
        }
    }

    /// Takes the addresses that were given to these processes.
    pub(super) fn take_resolved(&mut self, pids: &BTreeSet<u32>) -> Vec<Resolved> {
        self.resolved.extract_if(.., |found| pids.contains(&found.pid)).collect()
    }

    /// Takes the processes that are due, at most [`PER_ROUND`], and schedules their next look.
    pub(super) fn take(&mut self, now: Instant) -> BTreeSet<u32> {
        let mut due: Vec<(Instant, u32)> =
            self.due.iter().filter(|(_, (at, _))| *at <= now).map(|(pid, (at, _))| (*at, *pid)).collect();
        due.sort_unstable();
        due.truncate(PER_ROUND);
        if !due.is_empty() {
            self.not_before = Some(now + ROUND);
        }
        for (_, pid) in &due {
            let round = self.due.get(pid).map_or(AFTER_EXEC.len(), |(_, round)| *round);
            match AFTER_EXEC.get(round) {
                Some(later) => self.due.insert(*pid, (now + *later, round + 1)),
                None => self.due.remove(pid),
            };
        }
        due.into_iter().map(|(_, pid)| pid).collect()
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn record(kind: Kind, tgid: u32, child: u32) -> Vec<u8> {
        let header = Header { abi: wire::ABI, kind: kind as u16, len: 48, time_ns: 1, tgid, tid: tgid };
        Process { header, child, row: 0, comm: [0; 16] }.as_bytes().to_vec()
    }

    #[test]
    fn records_become_hints() {
        let cases = [
            (record(Kind::Exec, 7, 0), Some(Hint::Exec(7))),
            (record(Kind::Fork, 7, 8), Some(Hint::Look(8))),
            (record(Kind::Exit, 7, 0), Some(Hint::Look(7))),
            (record(Kind::CudaSeen, 7, 0), Some(Hint::Look(7))),
            (record(Kind::SocketListen, 7, 0), Some(Hint::Look(7))),
            (record(Kind::SocketListen, 0, 0), None),
            (record(Kind::SocketData, 7, 0), None),
            (vec![1, 2, 3], None),
            (vec![0xff; 64], None),
        ];
        for (record, hint) in cases {
            assert_eq!(hints_in(&record), [hint, None], "{record:?}");
        }
    }

    fn resolved(name: &str, flags: u16, version: u32) -> Vec<u8> {
        let header =
            Header { abi: wire::ABI, kind: Kind::Resolved as u16, len: 96, time_ns: 1, tgid: 7, tid: 7 };
        let mut text = [0; rare::NAME];
        text[..name.len()].copy_from_slice(name.as_bytes());
        let (address, row) = (0x7f00, 0);
        let record =
            rare::Resolved { header, address, status: 0, result: 0, row, flags, version, name: text };
        record.as_bytes().to_vec()
    }

    #[test]
    fn addresses_of_functions_in_the_table_are_kept_until_their_process_is_looked_at() {
        let of = |name: &str, flags, version| match hints_in(&resolved(name, flags, version)) {
            [Some(Hint::Resolved(found)), None] => Some((found.pid, found.address, found.symbol.name)),
            _ => None,
        };
        let symbol = |name: &str, flags| of(name, flags, 12_080);
        assert_eq!(symbol("cuLaunchKernel", 0), Some((7, 0x7f00, "cuLaunchKernel")));
        assert_eq!(
            symbol("cuLaunchKernel", rare::RESOLVE_PER_THREAD),
            Some((7, 0x7f00, "cuLaunchKernel_ptsz"))
        );
        assert_eq!((symbol("cuDeviceGetName", 0), symbol(&"x".repeat(rare::NAME), 0)), (None, None));

        let batch = |version| of("cuMemcpyBatchAsync", 0, version).map(|(.., name)| name);
        assert_eq!(batch(12_080), Some("cuMemcpyBatchAsync"));
        assert_eq!(batch(13_000), Some("cuMemcpyBatchAsync_v2"));

        let (start, mut pending) = (Instant::now(), Pending::default());
        for hint in hints_in(&resolved("cuLaunchKernel", 0, 0)).into_iter().flatten() {
            pending.note(hint, start);
        }
        assert!(pending.take_resolved(&[8].into()).is_empty());
        let due = pending.take(start);
        assert_eq!((pending.take_resolved(&due).len(), pending.take_resolved(&due).len()), (1, 0));
    }

    #[test]
    fn a_new_image_is_looked_at_three_times_and_a_hint_once() {
        let start = Instant::now();
        let mut pending = Pending::default();
        pending.note(Hint::Exec(7), start);
        pending.note(Hint::Look(8), start);
        assert_eq!(pending.take(start), [8].into());
        let mut looks = 0;
        for ms in 0..1000 {
            looks += pending.take(start + Duration::from_millis(ms)).len();
        }
        assert_eq!((looks, pending.next_due()), (3, None));
    }

    #[test]
    fn a_flood_is_bounded_and_counted() {
        let (hints, receiver) = Hints::channel();
        for pid in 1..=u32::try_from(QUEUE).unwrap() + 5 {
            hints.hint(pid);
        }
        assert_eq!(hints.dropped(), 5);
        assert!(!hints.stop(), "no room: the flag beside the queue stops the thread");
        let mut pending = Pending::default();
        assert_eq!(pending.wait(&receiver, Instant::now()), Wake::Due);
        assert!(pending.take(Instant::now()).len() <= PER_ROUND);
    }
}
