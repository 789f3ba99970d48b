//! Pools: what was taken from them, and what they can hold at most.
//!
//! A pool keeps what is given back to it until it is trimmed, or until a wait for work lets it fall to its release
//! threshold (0 unless somebody set it). The latter is not seen: between two statements of the process itself
//! (`cuMemPoolTrimTo`, the attribute for what is reserved) the most it has held is an upper bound.

use wire::memory::POOL_RESERVED;

/// Pools kept of one process.
const KEPT: usize = 1024;

/// One pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pool {
    /// Its handle; 0 for the device's own, whose handle need not be known.
    handle: u64,
    /// Place of its context.
    pub(super) book: u16,
    /// Destroyed: it goes with the last of what was taken from it.
    is_destroyed: bool,
    live: u64,
    reserved: u64,
}

/// What a pool held before and after.
pub(super) type Change = (u64, u64);

/// Pools of a process.
#[derive(Debug, Default)]
pub(super) struct Pools {
    pools: Vec<Pool>,
}

impl Pools {
    /// A new one. Blocks know their pool by its place, so places do not change.
    pub(super) fn create(&mut self, handle: u64, book: u16) {
        let new = Pool { handle, book, ..Pool::default() };
        // The end of one with the same handle was not seen.
        self.pools.iter_mut().filter(|pool| pool.handle == handle).for_each(|pool| pool.is_destroyed = true);
        let is_over = |pool: &Pool| pool.is_destroyed && pool.live == 0 && pool.reserved == 0;
        match self.pools.iter().position(is_over) {
            Some(at) => self.pools[at] = new,
            None if self.pools.len() < KEPT => self.pools.push(new),
            None => {}
        }
    }

    /// The pool behind a handle, else the device's own.
    fn find(&mut self, handle: u64, book: u16) -> &mut Pool {
        let is_it = |pool: &Pool| pool.handle == handle && handle != 0 && !pool.is_destroyed;
        let at = self.pools.iter().position(is_it);
        let own = |pool: &Pool| pool.handle == 0 && pool.book == book;
        let at = at.or_else(|| self.pools.iter().position(own)).unwrap_or_else(|| {
            self.pools.push(Pool { book, ..Pool::default() });
            self.pools.len() - 1
        });
        &mut self.pools[at]
    }

    /// Takes from a pool: which one that is, its context's place, and its change.
    pub(super) fn take(&mut self, handle: u64, book: u16, bytes: u64) -> (u16, u16, Change) {
        let pool = self.find(handle, book);
        pool.live = pool.live.saturating_add(bytes);
        let change = pool.set(pool.reserved.max(pool.live));
        let (handle, book) = (pool.handle, pool.book);
        let at = self.pools.iter().position(|p| p.handle == handle && p.book == book && !p.is_destroyed);
        (u16::try_from(at.unwrap_or_default()).unwrap_or(u16::MAX), book, change)
    }

    /// Gives back to the pool at this place.
    pub(super) fn give(&mut self, at: u16, bytes: u64) -> Change {
        let Some(pool) = self.pools.get_mut(usize::from(at)) else { return (0, 0) };
        pool.live = pool.live.saturating_sub(bytes);
        let reserved = if pool.is_destroyed { pool.live } else { pool.reserved };
        pool.set(reserved)
    }

    /// A pool gives back all but `keep`, and what is in use.
    pub(super) fn trim(&mut self, handle: u64, book: u16, keep: u64) -> (u16, Change) {
        let pool = self.find(handle, book);
        (pool.book, pool.set(pool.reserved.min(keep).max(pool.live)))
    }

    /// The process asked a pool.
    pub(super) fn told(
        &mut self,
        handle: u64,
        book: u16,
        attribute: u64,
        value: u64,
    ) -> Option<(u16, Change)> {
        let pool = self.find(handle, book);
        (attribute == POOL_RESERVED).then(|| (pool.book, pool.set(value.max(pool.live))))
    }

    /// A pool is destroyed: what it keeps is given back, what was taken from it is still in use.
    pub(super) fn destroy(&mut self, handle: u64, book: u16) -> (u16, Change) {
        let pool = self.find(handle, book);
        pool.is_destroyed = pool.handle != 0;
        (pool.book, pool.set(pool.live))
    }

    /// The context is gone.
    pub(super) fn remove_book(&mut self, book: u16) {
        for pool in self.pools.iter_mut().filter(|pool| pool.book == book) {
            (pool.live, pool.reserved) = (0, 0);
        }
    }
}

impl Pool {
    fn set(&mut self, reserved: u64) -> Change {
        let before = std::mem::replace(&mut self.reserved, reserved);
        (before, reserved)
    }
}
