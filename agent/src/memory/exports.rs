//! Blocks that processes let others reach, by a digest of the handle that stands for them.
//!
//! What opens such a handle is not told how large the block is; what made the handle knows. A handle is opened in another
//! process by the very bytes that the driver gave, of which the kernel side tells the digest.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// Exports kept of all processes; beyond, the oldest makes room.
const KEPT: usize = 65_536;

/// How large what was exported is.
#[derive(Debug, Default)]
pub(super) struct Exports {
    bytes: FxHashMap<u64, u64>,
    /// Their digests, oldest first.
    order: VecDeque<u64>,
}

impl Exports {
    /// A handle was made for a block of so many bytes; false when an older one had to go for it.
    pub(super) fn add(&mut self, digest: u64, bytes: u64) -> bool {
        if self.bytes.insert(digest, bytes).is_some() {
            return true;
        }
        self.order.push_back(digest);
        if self.order.len() <= KEPT {
            return true;
        }
        if let Some(oldest) = self.order.pop_front() {
            self.bytes.remove(&oldest);
        }
        false
    }

    /// How large the block behind a handle is, where its making was seen.
    pub(super) fn bytes(&self, digest: u64) -> Option<u64> {
        self.bytes.get(&digest).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room_and_one_made_again_is_one() {
        let mut exports = Exports::default();
        assert!(exports.add(1, 10) && exports.add(1, 20));
        assert_eq!((exports.bytes(1), exports.bytes(2)), (Some(20), None));
        let full = (2..=KEPT as u64).all(|digest| exports.add(digest, digest));
        assert!(full && !exports.add(u64::MAX, 5));
        assert_eq!((exports.bytes(1), exports.bytes(2), exports.bytes(u64::MAX)), (None, Some(2), Some(5)));
        assert_eq!(exports.order.len(), exports.bytes.len());
    }
}
