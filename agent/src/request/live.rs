//! Requests in flight, and who wrote last on which thread: what must be noted while things happen, because it
//! cannot be told afterwards from the exchange alone.

use std::collections::BTreeMap;

use crate::track::{ContentEvent, ExchangeId, ServiceId};

/// Threads remembered per service.
const THREADS_KEPT: usize = 256;

/// One request in flight.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state in disguise")]
pub(crate) struct Live {
    /// Its service.
    pub(crate) service: ServiceId,
    /// Last request byte read; `None` when the agent came in the middle.
    pub(crate) read_ns: Option<u64>,
    /// Thread that read it.
    pub(crate) reader_tid: u32,
    /// No other request was in flight in the service when this one was read.
    pub(crate) alone_at_read: bool,
    /// What had happened in the service until then that makes others doubtful.
    pub(crate) doubts: Doubts,
    /// When the first other request was read while this one was in flight.
    pub(crate) joined_ns: Option<u64>,
    /// A request of the same service that was made for it stands for it.
    pub(crate) forwarded: bool,
    /// Some request that overlapped this one ended without a known assignment, so steps may hold more requests
    /// than are counted. Known when it is over.
    pub(crate) blurred: bool,
    /// Its first content event.
    pub(crate) first: Option<First>,
    /// Last write of any other exchange's content, or end, on the thread that ended this one; 0 while it is in flight
    /// and when there was none.
    pub(crate) boundary_ns: u64,
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

/// Ends of requests in a service that tell something of all that are in flight then. Counted, since to tell each of them
/// would take as long as there are, for each that ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doubts {
    /// Ends of requests that were in flight without being known.
    pub(crate) strangers: u64,
    /// Ends without a known assignment.
    pub(crate) blurs: u64,
}

impl Live {
    /// It is over: what the ends of others since its read mean for it.
    pub(crate) fn doubt(&mut self, now: Doubts) {
        self.alone_at_read &= now.strangers == self.doubts.strangers;
        self.blurred |= now.blurs != self.doubts.blurs;
    }

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
    /// The exchange that wrote since the thread's last step.
    turn: Option<ExchangeId>,
    /// It has been seen to work on more than one request at a time.
    batches: bool,
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
    pub(crate) fn begin(&mut self, id: ExchangeId, event: ContentEvent) -> u64 {
        let writer = self.thread(event.tid);
        let boundary = writer.last_ns;
        writer.open += 1;
        writer.wrote(event.time_ns);
        writer.turn_of(id);
        boundary
    }

    /// A later content event.
    pub(crate) fn more(&mut self, id: ExchangeId, event: ContentEvent) {
        let writer = self.thread(event.tid);
        writer.wrote(event.time_ns);
        writer.turn_of(id);
    }

    /// An exchange ended, the last of which thread `tid` wrote; `started` where it had content events, `worked` where
    /// the answer took GPU work. Returns the write before it.
    pub(crate) fn end(&mut self, id: ExchangeId, last: ContentEvent, started: bool, worked: bool) -> u64 {
        let writer = self.thread(last.tid);
        let boundary = writer.last_ns;
        writer.wrote(last.time_ns);
        writer.open = writer.open.saturating_sub(u32::from(started));
        if worked {
            writer.turn_of(id);
        }
        boundary
    }

    /// A step's result came to a thread.
    pub(crate) fn step(&mut self, tid: u32) {
        if let Some(writer) = self.threads.get_mut(&tid) {
            writer.turn = None;
        }
    }

    /// Whether the thread has ever been seen to work on more than one request at a time: it wrote for two of them
    /// between two steps, or for one while another was unfinished.
    pub(crate) fn batches(&self, tid: u32) -> bool {
        self.threads.get(&tid).is_none_or(|w| w.batches)
    }

    fn thread(&mut self, tid: u32) -> &mut Writer {
        if !self.threads.contains_key(&tid) && self.threads.len() >= THREADS_KEPT {
            self.forget_oldest();
        }
        let forgotten = self.forgotten_ns;
        let fresh = Writer { last_ns: forgotten, batches: forgotten > 0, ..Writer::default() };
        self.threads.entry(tid).or_insert(fresh)
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
        self.batches |= self.open > 1;
    }

    fn turn_of(&mut self, id: ExchangeId) {
        self.batches |= self.turn.is_some_and(|turn| turn != id);
        self.turn = Some(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time_ns: u64, tid: u32) -> ContentEvent {
        ContentEvent { time_ns, tid }
    }

    const A: ExchangeId = ExchangeId(1);
    const B: ExchangeId = ExchangeId(2);

    #[test]
    fn one_after_the_other_is_no_batch() {
        let mut w = Writers::default();
        w.step(1);
        assert_eq!(w.begin(A, at(10, 1)), 0);
        w.step(1);
        w.more(A, at(20, 1));
        w.end(A, at(25, 1), true, true);
        w.end(ExchangeId(9), at(30, 1), false, false);
        w.step(1);
        assert_eq!(w.begin(B, at(40, 1)), 30);
        assert!(!w.batches(1));
    }

    #[test]
    fn a_batch_shows_and_is_remembered() {
        type Case = (&'static str, fn(&mut Writers));
        let cases: [Case; 3] = [
            ("two between two steps", |w| {
                w.end(A, at(10, 1), false, true);
                w.end(B, at(20, 1), false, true);
            }),
            ("in turns, a step each", |w| {
                w.begin(A, at(10, 1));
                w.step(1);
                w.begin(B, at(20, 1));
            }),
            ("an end and a beginning", |w| {
                w.end(A, at(10, 1), false, true);
                w.begin(B, at(20, 1));
            }),
        ];
        for (name, case) in cases {
            let mut w = Writers::default();
            w.step(1);
            case(&mut w);
            assert!(w.batches(1), "{name}");
            w.end(A, at(30, 1), true, true);
            w.end(B, at(30, 1), true, true);
            w.step(1);
            w.begin(ExchangeId(3), at(40, 1));
            assert!(w.batches(1), "{name}, later");
        }
    }

    #[test]
    fn threads_are_bounded_and_a_forgotten_one_never_looks_fresh() {
        let mut w = Writers::default();
        for tid in (0_u32..).take(THREADS_KEPT + 5) {
            w.begin(ExchangeId(u64::from(tid)), at(100 + u64::from(tid), tid));
        }
        assert_eq!(w.threads.len(), THREADS_KEPT);
        assert_eq!(w.begin(ExchangeId(999), at(900, 0)), 105, "boundary of the newest forgotten thread");
        assert!(w.batches(0) && w.batches(9999), "an unknown thread may have been anything");
    }
}
