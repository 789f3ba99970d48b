//! What a process holds of one device, and what happened to it there.

use std::collections::BTreeMap;

use super::{
    Place,
    book::{Book, total},
    failure::{Failure, FailureClass},
    process::Process,
    storm::Storm,
};

/// What happened to a process on one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Here {
    /// The most it held there.
    pub(super) peak: u64,
    pub(super) failures: BTreeMap<FailureClass, u64>,
    pub(super) last_failure: Option<Failure>,
    pub(super) retry_storms: u64,
    pub(super) last_storm: Option<Storm>,
    /// What it was known to hold when NVML last told how much it uses there.
    pub(super) held_then: Option<u64>,
}

impl Here {
    /// Adds what happened to the same process at what turns out to be the same place.
    fn merge(&mut self, other: Self) {
        self.peak = self.peak.max(other.peak);
        for (class, n) in other.failures {
            *self.failures.entry(class).or_default() += n;
        }
        self.retry_storms += other.retry_storms;
        let later = |failure: &Failure| self.last_failure.as_ref().is_none_or(|own| own.t_ns <= failure.t_ns);
        if other.last_failure.as_ref().is_some_and(later) {
            self.last_failure = other.last_failure;
        }
        let later = |storm: &Storm| self.last_storm.as_ref().is_none_or(|own| own.t_ns <= storm.t_ns);
        if other.last_storm.as_ref().is_some_and(later) {
            self.last_storm = other.last_storm;
        }
    }
}

impl Process {
    /// Memory of a device that it holds; of pools, the most that they can.
    pub(super) fn held(&self, place: Place) -> u64 {
        total(self.books.iter().filter(|book| book.place == Some(place)).map(Book::held))
    }

    /// The same, where NVML told how much it uses: that, and what its calls have changed since.
    pub(super) fn held_since(&self, place: Place, told: u64) -> u64 {
        let held = self.held(place);
        let sure = |book: &Book| book.held() - book.pool_cached();
        let sure = total(self.books.iter().filter(|book| book.place == Some(place)).map(sure));
        match self.here.get(&place).and_then(|here| here.held_then) {
            Some(then) if told > 0 => told.saturating_add(held).saturating_sub(then).max(sure),
            _ => told.max(held),
        }
    }

    /// NVML tells how much it uses there.
    pub(super) fn told(&mut self, place: Place) {
        let held = self.held(place);
        self.here.entry(place).or_default().held_then = Some(held);
    }

    /// Where it took memory from a pool that may have kept it, or have given it back to the device.
    pub(super) fn take_blurred(&mut self) -> Vec<Place> {
        let blurred = |book: &mut Book| std::mem::take(&mut book.is_blurred).then_some(book.place?);
        self.books.iter_mut().filter_map(blurred).collect()
    }

    /// By how much that has changed since the last time, where it did.
    pub(super) fn take_moved(&mut self) -> Vec<(Place, i64)> {
        let moved = |book: &mut Book| Some((book.place?, book.take_moved())).filter(|(_, bytes)| *bytes != 0);
        let moved: Vec<(Place, i64)> = self.books.iter_mut().filter_map(moved).collect();
        for &(place, _) in &moved {
            let held = self.held(place);
            let here = self.here.entry(place).or_default();
            here.peak = here.peak.max(held);
        }
        moved
    }

    /// Its memory is elsewhere than was thought.
    pub(super) fn moves(&mut self, book: usize, from: Option<Place>, to: Place) {
        self.books[book].place = Some(to);
        let is_used = |place: Place| self.books.iter().any(|book| book.place == Some(place));
        if let Some(from) = from.filter(|from| !is_used(*from))
            && let Some(here) = self.here.remove(&from)
        {
            self.here.entry(to).or_default().merge(here);
            self.storms.moves(from, to);
        }
    }

    /// A failure is decided.
    pub(super) fn failed(&mut self, place: Place, failure: &Failure) {
        let here = self.here.entry(place).or_default();
        *here.failures.entry(failure.class).or_default() += 1;
        if here.last_failure.as_ref().is_none_or(|last| last.t_ns <= failure.t_ns) {
            here.last_failure = Some(failure.clone());
        }
    }

    /// A storm is over.
    pub(super) fn stormed(&mut self, place: Place, storm: &Storm) {
        let here = self.here.entry(place).or_default();
        here.retry_storms += 1;
        here.last_storm = Some(storm.clone());
    }
}
