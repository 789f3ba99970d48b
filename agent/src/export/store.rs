//! Finished requests for the API: a bounded ring of lines, numbered from 1, and a bell for followers.
//!
//! Followers pull: a slow one misses what has left the ring by the time it comes back, knows how much, and never
//! holds up the writer.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::watch;

/// The ring.
#[derive(Debug)]
pub struct Store {
    keep: usize,
    lines: Mutex<Lines>,
    /// Number of the newest line; closed when the run ends.
    bell: Mutex<Option<watch::Sender<u64>>>,
    missed: AtomicU64,
}

#[derive(Debug, Default)]
struct Lines {
    /// Number of the newest line; 0 when there was none.
    last: u64,
    ring: VecDeque<Arc<str>>,
}

/// Some lines in order.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    /// The lines, each with its newline.
    pub lines: Vec<Arc<str>>,
    /// Number of the last line of the batch: where to go on.
    pub last: u64,
    /// Lines after the number asked for that had already left the ring.
    pub missed: u64,
}

impl Store {
    /// A ring of `keep` lines.
    pub fn new(keep: usize) -> Self {
        let bell = Mutex::new(Some(watch::Sender::new(0)));
        Self { keep, lines: Mutex::default(), bell, missed: AtomicU64::new(0) }
    }

    /// Appends a line and wakes the followers.
    pub fn push(&self, line: String) {
        let last = {
            let mut lines = self.lines();
            if lines.ring.len() == self.keep {
                lines.ring.pop_front();
            }
            lines.ring.push_back(line.into());
            lines.last += 1;
            lines.last
        };
        if let Some(bell) = &*lock(&self.bell) {
            bell.send_replace(last);
        }
    }

    /// At most `limit` lines after number `since`, oldest first.
    pub fn after(&self, since: u64, limit: usize) -> Batch {
        let lines = self.lines();
        let oldest = lines.last - lines.ring.len() as u64;
        let start = since.clamp(oldest, lines.last);
        let skip = usize::try_from(start - oldest).unwrap_or(usize::MAX);
        let batch: Vec<_> = lines.ring.iter().skip(skip).take(limit).cloned().collect();
        let last = start + batch.len() as u64;
        Batch { lines: batch, last, missed: oldest.saturating_sub(since) }
    }

    /// The number after which the newest `count` lines come.
    pub fn before_newest(&self, count: usize) -> u64 {
        self.lines().last.saturating_sub(count as u64)
    }

    /// Rings with the number of the newest line; ends when the run does. `None` when it has ended.
    pub fn follow(&self) -> Option<watch::Receiver<u64>> {
        lock(&self.bell).as_ref().map(watch::Sender::subscribe)
    }

    /// No more lines will come: followers get what is there, and end.
    pub fn close(&self) {
        lock(&self.bell).take();
    }

    /// Counts lines that a follower was too slow for.
    pub fn count_missed(&self, lines: u64) {
        self.missed.fetch_add(lines, Ordering::Relaxed);
    }

    /// Lines that followers were too slow for.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Followers at this moment.
    pub fn followers(&self) -> usize {
        lock(&self.bell).as_ref().map_or(0, watch::Sender::receiver_count)
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        lock(&self.lines)
    }
}

/// The data is whole after every statement, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(keep: usize, lines: u64) -> Store {
        let store = Store::new(keep);
        for n in 1..=lines {
            store.push(n.to_string());
        }
        store
    }

    #[test]
    fn a_batch_begins_after_the_number_asked_for_and_tells_what_is_gone() {
        // (kept, pushed, since, limit) -> (lines, last, missed)
        type Case<'a> = ((usize, u64, u64, usize), (&'a [&'a str], u64, u64));
        let cases: [Case<'_>; 8] = [
            ((4, 0, 0, 9), (&[], 0, 0)),
            ((4, 3, 0, 9), (&["1", "2", "3"], 3, 0)),
            ((4, 3, 2, 9), (&["3"], 3, 0)),
            ((4, 3, 3, 9), (&[], 3, 0)),
            ((4, 3, 99, 9), (&[], 3, 0)),
            ((4, 6, 0, 9), (&["3", "4", "5", "6"], 6, 2)),
            ((4, 6, 1, 2), (&["3", "4"], 4, 1)),
            ((4, 6, 4, 1), (&["5"], 5, 0)),
        ];
        for ((keep, pushed, since, limit), (lines, last, missed)) in cases {
            let batch = store(keep, pushed).after(since, limit);
            let got: Vec<_> = batch.lines.iter().map(|line| &**line).collect();
            assert_eq!(
                (&got[..], batch.last, batch.missed),
                (lines, last, missed),
                "{keep} {pushed} {since} {limit}"
            );
        }
    }

    #[test]
    fn the_newest_lines_can_be_asked_for() {
        let store = store(4, 6);
        let batch = store.after(store.before_newest(2), 9);
        assert_eq!(batch.lines.iter().map(|line| &**line).collect::<Vec<_>>(), ["5", "6"]);
        assert_eq!(store.before_newest(99), 0);
    }

    #[tokio::test]
    async fn a_follower_is_woken_by_a_line_and_by_the_end() {
        let store = store(4, 1);
        let mut bell = store.follow().unwrap();
        assert_eq!(store.followers(), 1);
        store.push("2".into());
        bell.changed().await.unwrap();
        assert_eq!(*bell.borrow_and_update(), 2);
        store.close();
        assert!(bell.changed().await.is_err());
        assert!(store.follow().is_none());
        assert_eq!(store.after(0, 9).last, 2);
    }
}
