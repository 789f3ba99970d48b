//! Requests in flight, and who wrote last on which thread: what must be noted while things happen, because it
//! cannot be told afterwards from the exchange alone.

use std::collections::BTreeMap;

use crate::track::{ContentEvent, ServiceId};

/// Threads remembered per service.
const THREADS_KEPT: usize = 256;

/// One request in flight.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    /// Its service.
    pub(crate) service: ServiceId,
    /// Last request byte read; `None` when the agent came in the middle.
    pub(crate) read_ns: Option<u64>,
    /// Thread that read it.
    pub(crate) reader_tid: u32,
    /// No other request was in flight in the service when this one was read.
    pub(crate) alone_at_read: bool,
    /// When the first other request was read while this one was in flight.
    pub(crate) joined_ns: Option<u64>,
    /// Some request that overlapped this one ended without a known assignment, so steps may hold more requests
    /// than are counted.
    pub(crate) blurred: bool,
    /// Its first content event.
    pub(crate) first: Option<First>,
    /// All content so far was written by the thread that read the request.
    pub(crate) one_thread: bool,
}

/// What was the case when the first content event of a request was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    /// When it was written, ns.
    pub(crate) time_ns: u64,
    /// Thread that wrote it.
    pub(crate) tid: u32,
    /// Last write of any other exchange's content, or end, on the same thread before it; 0 when there was none.
    pub(crate) boundary_ns: u64,
    /// Other requests were in flight.
    pub(crate) company: bool,
}

impl Live {
    /// No other request was in flight from its read until now.
    pub(crate) fn alone(&self) -> bool {
        self.alone_at_read && self.joined_ns.is_none()
    }
}

/// What one thread writes.
#[derive(Clone, Copy, Debug, Default)]
struct Writer {
    /// Last content event or end of an exchange, ns.
    last_ns: u64,
    /// Exchanges that have begun to write and have not ended.
    open: u32,
    /// Last time at which more than one was open.
    shared_ns: u64,
}

/// The writing threads of a service.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    threads: BTreeMap<u32, Writer>,
    /// What a forgotten thread may have written last.
    forgotten_ns: u64,
}

impl Writers {
    /// The first content event of an exchange; returns the boundary before it.
    pub(crate) fn begin(&mut self, event: ContentEvent) -> u64 {
        let writer = self.thread(event.tid);
        let boundary = writer.last_ns;
        writer.open += 1;
        writer.wrote(event.time_ns);
        boundary
    }

    /// A later content event.
    pub(crate) fn more(&mut self, event: ContentEvent) {
        self.thread(event.tid).wrote(event.time_ns);
    }

    /// An exchange ended that a thread read (and, where `started`, has written content of).
    pub(crate) fn end(&mut self, tid: u32, time_ns: u64, started: bool) {
        let writer = self.thread(tid);
        writer.wrote(time_ns);
        writer.open = writer.open.saturating_sub(u32::from(started));
    }

    /// Whether another exchange was being written on the thread at any time since `t`.
    pub(crate) fn shared_since(&self, tid: u32, t: u64) -> bool {
        self.threads.get(&tid).is_none_or(|w| w.shared_ns >= t)
    }

    fn thread(&mut self, tid: u32) -> &mut Writer {
        if !self.threads.contains_key(&tid) && self.threads.len() >= THREADS_KEPT {
            self.forget_oldest();
        }
        let forgotten = self.forgotten_ns;
        self.threads.entry(tid).or_insert(Writer { last_ns: forgotten, open: 0, shared_ns: forgotten })
    }

    fn forget_oldest(&mut self) {
        let oldest = self.threads.iter().min_by_key(|(_, w)| w.last_ns).map(|(tid, w)| (*tid, w.last_ns));
        if let Some((tid, last_ns)) = oldest {
            self.threads.remove(&tid);
            self.forgotten_ns = self.forgotten_ns.max(last_ns);
        }
    }
}

impl Writer {
    fn wrote(&mut self, time_ns: u64) {
        self.last_ns = self.last_ns.max(time_ns);
        if self.open > 1 {
            self.shared_ns = self.shared_ns.max(time_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time_ns: u64, tid: u32) -> ContentEvent {
        ContentEvent { time_ns, tid }
    }

    #[test]
    fn one_after_the_other_is_not_shared() {
        let mut w = Writers::default();
        assert_eq!(w.begin(at(10, 1)), 0);
        w.more(at(20, 1));
        w.end(1, 25, true);
        assert_eq!(w.begin(at(40, 1)), 25);
        assert!(!w.shared_since(1, 40));
    }

    #[test]
    fn interleaved_writes_are_shared() {
        let mut w = Writers::default();
        w.begin(at(10, 1));
        w.begin(at(20, 1));
        assert!(w.shared_since(1, 10) && w.shared_since(1, 20));
        w.end(1, 30, true);
        w.end(1, 40, true);
        w.begin(at(50, 1));
        assert!(!w.shared_since(1, 50));
    }

    #[test]
    fn threads_are_bounded_and_a_forgotten_one_never_looks_fresh() {
        let mut w = Writers::default();
        for tid in 0..THREADS_KEPT as u32 + 5 {
            w.begin(at(100 + u64::from(tid), tid));
        }
        assert_eq!(w.threads.len(), THREADS_KEPT);
        assert_eq!(w.begin(at(900, 0)), 105, "boundary of the newest forgotten thread");
        assert!(w.shared_since(9999, 0), "an unknown thread may have been shared");
    }
}
