//! Physical memory with handles of its own: it lives as long as a handle or a mapping of it does.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::book::Kind;

/// Pieces of physical memory, and mappings, kept of one process.
const KEPT: usize = 131_072;

/// A piece of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) bytes: u64,
    /// Place of the context in which it was made.
    pub(super) book: u16,
    /// Of the device, of the host, or of another process.
    pub(super) kind: Kind,
    handles: u32,
    mappings: u32,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    bytes: u64,
    piece: u32,
}

/// Physical memory of a process.
#[derive(Debug, Default)]
pub(super) struct Physical {
    pieces: FxHashMap<u32, Piece>,
    /// The piece of each handle, and how often the handle was given.
    by_handle: FxHashMap<u64, (u32, u32)>,
    mappings: BTreeMap<u64, Mapping>,
    next: u32,
}

impl Physical {
    pub(super) fn len(&self) -> usize {
        self.pieces.len() + self.mappings.len()
    }

    /// A new piece with its first handle; false when there is no room for it.
    pub(super) fn create(&mut self, handle: u64, bytes: u64, book: u16, kind: Kind) -> bool {
        if self.pieces.len() >= KEPT {
            return false;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.pieces.insert(number, Piece { bytes, book, kind, handles: 1, mappings: 0 });
        self.by_handle.insert(handle, (number, 1));
        true
    }

    /// One more handle for what a handle or an address leads to; false when that is nothing.
    pub(super) fn retain(&mut self, handle: u64, address: u64) -> bool {
        let by_address = self.mappings.range(..=address).next_back();
        let by_address =
            by_address.filter(|(start, mapping)| address - **start < mapping.bytes).map(|(_, m)| m.piece);
        let Some(number) = by_address.or_else(|| self.by_handle.get(&handle).map(|known| known.0)) else {
            return false;
        };
        let Some(piece) = self.pieces.get_mut(&number) else { return false };
        piece.handles += 1;
        let known = self.by_handle.entry(handle).or_insert((number, 0));
        *known = if known.0 == number { (number, known.1 + 1) } else { (number, 1) };
        true
    }

    /// Gives a handle up. `None` when it is unknown; the piece, if that was the last that held it.
    #[expect(clippy::option_option, reason = "unknown, held by others still, and gone are three answers")]
    pub(super) fn release(&mut self, handle: u64) -> Option<Option<Piece>> {
        let (number, given) = self.by_handle.get_mut(&handle)?;
        let number = *number;
        *given -= 1;
        if *given == 0 {
            self.by_handle.remove(&handle);
        }
        let piece = self.pieces.get_mut(&number)?;
        piece.handles = piece.handles.saturating_sub(1);
        Some(self.end(number))
    }

    /// Maps, unless the handle is unknown or there is no room. Of memory of another process the size is not told before:
    /// returned is by how much it turns out to be larger than was known, with the piece.
    pub(super) fn map(
        &mut self,
        address: u64,
        bytes: u64,
        handle: u64,
        has_room: bool,
    ) -> Option<(Piece, u64)> {
        let (number, _) = *self.by_handle.get(&handle)?;
        if self.mappings.len() >= KEPT || !has_room {
            return None;
        }
        let piece = self.pieces.get_mut(&number)?;
        piece.mappings += 1;
        let more = if piece.kind == Kind::Imported { bytes.saturating_sub(piece.bytes) } else { 0 };
        piece.bytes = piece.bytes.saturating_add(more);
        self.mappings.insert(address, Mapping { bytes, piece: number });
        Some((*piece, more))
    }

    /// Unmaps all that begins within the range: the pieces that were held by that alone.
    pub(super) fn unmap(&mut self, address: u64, bytes: u64) -> Vec<Piece> {
        let end = address.saturating_add(bytes);
        let gone: Vec<Mapping> =
            self.mappings.extract_if(address..end, |_, _| true).map(|(_, m)| m).collect();
        gone.into_iter().filter_map(|mapping| self.unmapped(mapping.piece)).collect()
    }

    fn unmapped(&mut self, number: u32) -> Option<Piece> {
        let piece = self.pieces.get_mut(&number)?;
        piece.mappings = piece.mappings.saturating_sub(1);
        self.end(number)
    }

    /// Takes a piece out that nothing holds.
    fn end(&mut self, number: u32) -> Option<Piece> {
        let piece = self.pieces.get(&number)?;
        (piece.handles == 0 && piece.mappings == 0).then(|| self.pieces.remove(&number)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_lives_until_its_last_handle_and_its_last_mapping_are_gone() {
        let mut physical = Physical::default();
        assert!(physical.create(7, 100, 0, Kind::Vmm));
        assert!(physical.map(1000, 100, 7, true).is_some() && physical.map(2000, 100, 7, true).is_some());
        assert!(physical.retain(7, 1050), "asked for by an address within it");
        assert_eq!((physical.release(7), physical.release(7)), (Some(None), Some(None)));
        assert_eq!(physical.release(7), None, "it is no handle any more");
        assert!(physical.unmap(1000, 100).is_empty());
        let gone = physical.unmap(0, 10_000);
        assert_eq!(gone.iter().map(|piece| piece.bytes).collect::<Vec<_>>(), [100]);
        assert_eq!(physical.len(), 0);
    }

    #[test]
    fn a_handle_that_is_given_again_is_another_piece() {
        let mut physical = Physical::default();
        physical.create(7, 100, 0, Kind::Vmm);
        physical.map(1000, 100, 7, true);
        physical.release(7);
        physical.create(7, 30, 0, Kind::Vmm);
        assert_eq!(physical.release(7).unwrap().unwrap().bytes, 30);
        assert_eq!(physical.unmap(1000, 1)[0].bytes, 100);
    }

    #[test]
    fn what_was_made_before_is_unknown() {
        let mut physical = Physical::default();
        assert!(physical.map(1000, 100, 9, true).is_none() && !physical.retain(9, 1000));
        assert_eq!((physical.release(9), physical.unmap(0, u64::MAX).len()), (None, 0));
    }
}
