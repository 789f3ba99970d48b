//! Blocks whose address was given again before their free was told.
//!
//! A call is told when it returns, and a free gives its address away before that: where another thread is faster to take
//! it, the allocation is told first. Which of the two blocks a free was for, its entry tells: before the newer one was
//! there, it can only have been the older one.

use super::blocks::Block;

/// Blocks kept; a thread is in one free at a time.
const KEPT: usize = 256;

/// Such blocks, longest displaced first.
#[derive(Debug, Default)]
pub(super) struct Displaced(Vec<Waiting>);

#[derive(Debug)]
struct Waiting {
    address: u64,
    /// When what took its address was told.
    since_ns: u64,
    block: Block,
}

impl Displaced {
    /// Keeps a block. Returns one that is given up: its free was not seen.
    pub(super) fn put(&mut self, address: u64, since_ns: u64, block: Block) -> Option<Block> {
        let lost = (self.0.len() >= KEPT).then(|| self.0.remove(0).block);
        self.0.push(Waiting { address, since_ns, block });
        lost
    }

    /// Its context is gone, and they with it.
    pub(super) fn remove_book(&mut self, book: u16) {
        self.0.retain(|waiting| waiting.block.book != book);
    }

    /// The block that a free which began at `enter_ns` was for, if it is one of these.
    pub(super) fn take(&mut self, address: u64, enter_ns: u64) -> Option<Block> {
        let is_it = |waiting: &Waiting| waiting.address == address && enter_ns <= waiting.since_ns;
        let place = self.0.iter().position(is_it)?;
        Some(self.0.remove(place).block)
    }
}
