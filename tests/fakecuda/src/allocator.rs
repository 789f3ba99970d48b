//! First fit over one range per device, in shared memory.
//!
//! The caller holds the heap lock. Every function changes the list of blocks by single stores, in an order that
//! leaves a sound list when the process dies between two of them; the worst is an entry that nothing points to,
//! which [`purge`] finds by its dead owner.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::owner::Owner;
use crate::shared::{Block, Heap, MAX_BLOCKS};

/// Sizes are rounded up to this.
pub(crate) const GRANULE: u64 = 512;

/// Takes the first hole that is large enough; returns its offset.
pub(crate) fn allocate(heap: &Heap, total: u64, bytes: u64, owner: Owner) -> Option<u64> {
    let size = bytes.checked_next_multiple_of(GRANULE)?;
    let (mut link, mut hole) = (&heap.head, 0);
    loop {
        let next = block(heap, link);
        let end = next.map_or(total, |b| b.offset.load(Acquire));
        if end - hole >= size {
            insert(heap, link, hole, size, owner)?;
            return Some(hole);
        }
        let taken = next?;
        hole = end + taken.size.load(Acquire);
        link = &taken.next;
    }
}

/// Frees the owner's block at that offset; false when there is none.
pub(crate) fn free(heap: &Heap, offset: u64, owner: Owner) -> bool {
    let mut link = &heap.head;
    while let Some(b) = block(heap, link) {
        if b.offset.load(Acquire) == offset {
            let own = owner_of(b) == owner;
            if own {
                unlink(link, b);
            }
            return own;
        }
        link = &b.next;
    }
    false
}

/// Frees every block whose owner does not live.
pub(crate) fn purge(heap: &Heap, lives: impl Fn(Owner) -> bool) {
    let mut last = (Owner::NONE, false);
    let mut lives = |owner| {
        if last.0 != owner {
            last = (owner, lives(owner));
        }
        last.1
    };
    let mut link = &heap.head;
    while let Some(b) = block(heap, link) {
        if lives(owner_of(b)) {
            link = &b.next;
        } else {
            unlink(link, b);
        }
    }
}

/// Finds the entries that a dying process left outside the list.
pub(crate) fn sweep(heap: &Heap, lives: impl Fn(Owner) -> bool) {
    let used = heap.blocks.iter().filter(|b| owner_of(b) != Owner::NONE);
    for lost in used.filter(|b| !lives(owner_of(b))) {
        lost.owner.store(0, Release);
    }
}

/// Bytes in blocks.
pub(crate) fn used(heap: &Heap) -> u64 {
    let mut used = 0;
    let mut link = &heap.head;
    while let Some(b) = block(heap, link) {
        used += b.size.load(Acquire);
        link = &b.next;
    }
    used
}

/// Bytes that are free, and the largest hole.
pub(crate) fn free_and_hole(heap: &Heap, total: u64) -> (u64, u64) {
    let (mut free, mut largest, mut hole) = (0, 0, 0);
    let mut link = &heap.head;
    loop {
        let next = block(heap, link);
        let size = next.map_or(total, |b| b.offset.load(Acquire)) - hole;
        free += size;
        largest = largest.max(size);
        let Some(taken) = next else { return (free, largest) };
        hole = taken.offset.load(Acquire) + taken.size.load(Acquire);
        link = &taken.next;
    }
}

fn block<'h>(heap: &'h Heap, link: &AtomicU32) -> Option<&'h Block> {
    let index = usize::try_from(link.load(Acquire)).ok()?.checked_sub(1)?;
    heap.blocks.get(index)
}

fn owner_of(block: &Block) -> Owner {
    Owner::from_word(block.owner.load(Acquire))
}

/// The block leaves the list before its entry is free.
fn unlink(link: &AtomicU32, block: &Block) {
    link.store(block.next.load(Acquire), Release);
    block.owner.store(0, Release);
}

/// The entry is complete before the list leads to it.
fn insert(heap: &Heap, link: &AtomicU32, offset: u64, size: u64, owner: Owner) -> Option<()> {
    let start = heap.hint.load(Acquire) as usize;
    let index = (0..MAX_BLOCKS).map(|i| (start + i) % MAX_BLOCKS);
    let index = { index }.find(|&i| owner_of(&heap.blocks[i]) == Owner::NONE)?;
    let block = &heap.blocks[index];
    block.owner.store(owner.word(), Release);
    block.offset.store(offset, Release);
    block.size.store(size, Release);
    block.next.store(link.load(Acquire), Release);
    let number = u32::try_from(index + 1).ok()?;
    link.store(number, Release);
    heap.hint.store(number, Release);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Owner = Owner::NONE;

    /// All zeros is an empty heap, and too large for the stack.
    fn heap() -> Box<Heap> {
        // SAFETY: made of atomics only, for which zero bytes are valid values.
        unsafe { Box::<Heap>::new_zeroed().assume_init() }
    }

    fn owner(n: u64) -> Owner {
        Owner::from_word(ME.word() + n)
    }

    #[test]
    fn first_fit_fragments() {
        let heap = heap();
        let unit = GRANULE;
        let total = 8 * unit;
        let take = |units| allocate(&heap, total, units * unit, owner(1));
        let blocks: Vec<u64> = (0..8).map(|_| take(1).unwrap()).collect();
        assert_eq!(blocks, (0..8).map(|i| i * unit).collect::<Vec<_>>());
        assert_eq!(take(1), None);
        for &b in blocks.iter().step_by(2) {
            assert!(free(&heap, b, owner(1)));
        }
        assert_eq!(used(&heap), total / 2);
        assert_eq!(take(2), None, "half is free, but no hole holds two");
        assert_eq!(free_and_hole(&heap, total), (4 * unit, unit));
        assert!(free(&heap, blocks[3], owner(1)));
        assert_eq!(take(3), Some(2 * unit));
        assert_eq!(take(1), Some(0));
    }

    #[test]
    fn only_the_owner_frees_and_the_dead_are_cleared() {
        let heap = heap();
        let total = 4 * GRANULE;
        let a = allocate(&heap, total, 1, owner(1)).unwrap();
        let b = allocate(&heap, total, GRANULE + 1, owner(2)).unwrap();
        assert!(!free(&heap, a, owner(2)) && !free(&heap, b + 1, owner(2)));
        purge(&heap, |o| o == owner(2));
        assert_eq!(used(&heap), 2 * GRANULE);
        assert!(!free(&heap, a, owner(1)), "cleared");
        assert_eq!(allocate(&heap, total, 1, owner(3)), Some(0));
    }

    #[test]
    fn entries_outside_the_list_are_found() {
        let heap = heap();
        heap.blocks[7].owner.store(9, Release);
        sweep(&heap, |o| o != owner(9));
        assert_eq!(owner_of(&heap.blocks[7]), Owner::NONE);
    }
}
