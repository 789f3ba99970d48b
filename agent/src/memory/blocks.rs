//! Live blocks by address. When there are too many, the rest is known as a sum.

use rustc_hash::FxHashMap;

use super::book::Kind;

/// Blocks kept of one process: a device of 256 GiB in pages of 2 MiB.
pub(super) const PER_PROCESS: usize = 131_072;

/// Sums of what is not kept; beyond, of each kind the first takes the rest.
const MAX_SUMS: usize = 64;

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) bytes: u64,
    /// Place of its context among the process's.
    pub(super) book: u16,
    /// Place of its pool among the process's; of no meaning for other kinds.
    pub(super) pool: u16,
    pub(super) kind: Kind,
}

/// What is known of a freed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    /// This block.
    Block(Block),
    /// One of those that are not kept; of their mean size.
    Unkept(Block),
    /// Nothing.
    Unknown,
}

/// Blocks of one process.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    by_address: FxHashMap<u64, Block>,
    /// Blocks that are not kept: how many, and one of each kind and context with the sum of their bytes.
    unkept: Vec<(u64, Block)>,
}

impl Blocks {
    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Something is known as a sum only.
    pub(super) fn is_capped(&self) -> bool {
        !self.unkept.is_empty()
    }

    /// Adds a block. One that is still there was freed unseen: it is returned.
    pub(super) fn insert(&mut self, address: u64, block: Block, has_room: bool) -> Option<Block> {
        let has_room = has_room && self.by_address.len() < PER_PROCESS;
        if has_room || self.by_address.contains_key(&address) {
            return self.by_address.insert(address, block);
        }
        let alike =
            |other: &Block| (other.book, other.pool, other.kind) == (block.book, block.pool, block.kind);
        let is_full = self.unkept.len() >= MAX_SUMS;
        let fits = |sum: &Block| alike(sum) || is_full && sum.kind == block.kind;
        match self.unkept.iter_mut().find(|(_, sum)| fits(sum)) {
            Some((count, sum)) => {
                *count += 1;
                sum.bytes = sum.bytes.saturating_add(block.bytes);
            }
            None => self.unkept.push((1, block)),
        }
        None
    }

    /// The block at an address.
    pub(super) fn get(&self, address: u64) -> Option<&Block> {
        self.by_address.get(&address)
    }

    /// Takes a block out. If it is not kept, it is one that `may_be` is true of.
    pub(super) fn remove(&mut self, address: u64, may_be: impl Fn(Kind) -> bool) -> Freed {
        match self.by_address.remove(&address) {
            Some(block) => Freed::Block(block),
            None => self.take_unkept(may_be).map_or(Freed::Unknown, Freed::Unkept),
        }
    }

    fn take_unkept(&mut self, may_be: impl Fn(Kind) -> bool) -> Option<Block> {
        let at = self.unkept.iter().rposition(|(_, sum)| may_be(sum.kind))?;
        let (count, sum) = &mut self.unkept[at];
        let bytes = sum.bytes / (*count).max(1);
        let block = Block { bytes, ..*sum };
        *count -= 1;
        sum.bytes -= bytes;
        if *count == 0 {
            self.unkept.remove(at);
        }
        Some(block)
    }

    /// Drops what belongs to a context.
    pub(super) fn remove_book(&mut self, book: u16) {
        self.by_address.retain(|_, block| block.book != book);
        self.unkept.retain(|(_, sum)| sum.book != book);
    }
}
