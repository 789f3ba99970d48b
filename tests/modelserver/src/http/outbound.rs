//! What a connection still has to send: one item, one write, as the engines that this server stands for do.

use std::collections::VecDeque;
use std::io;

use crate::clock::{Stamp, now};

/// What an item is to the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// `100 Continue`: not part of the response.
    Interim,
    /// The head, or an event without content.
    Other,
    /// An event with this many tokens.
    Content(u32),
    /// The last bytes of the response.
    Last,
}

/// An item that has been written in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// What it was.
    pub(crate) mark: Mark,
    /// From before its first write to after the write that completed it.
    pub(crate) stamp: Stamp,
}

#[derive(Debug)]
struct Item {
    bytes: Vec<u8>,
    sent: usize,
    begun: Option<u64>,
    mark: Mark,
}

/// The queue of items to write.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    items: VecDeque<Item>,
    bytes: usize,
    blocked_since: Option<u64>,
    blocked: u64,
}

/// With this much unsent data no more events are queued; tokens gather until the client has read.
const HIGH_WATER: usize = 64 << 10;

impl Outbound {
    /// Queues one item.
    pub(crate) fn push(&mut self, bytes: Vec<u8>, mark: Mark) {
        self.bytes += bytes.len();
        self.items.push_back(Item { bytes, sent: 0, begun: None, mark });
    }

    /// Whether all is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether the client is so far behind that nothing more should be queued.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= HIGH_WATER
    }

    /// Whether the socket was full at the last write.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked_since.is_some()
    }

    /// Time spent with a full socket since the last call, ns.
    pub(crate) fn take_blocked(&mut self) -> u64 {
        std::mem::take(&mut self.blocked)
    }

    /// Writes until the queue is empty or the socket is full; `done` gets the items that went out in full.
    pub(crate) fn flush(
        &mut self,
        mut send: impl FnMut(&[u8]) -> io::Result<usize>,
        done: &mut Vec<Written>,
    ) -> io::Result<()> {
        while let Some(item) = self.items.front_mut() {
            let before = now();
            let result = send(&item.bytes[item.sent..]);
            let after = now();
            match result {
                Ok(count) => {
                    let begun = *item.begun.get_or_insert(before);
                    item.sent += count;
                    self.bytes -= count;
                    self.blocked += self.blocked_since.take().map_or(0, |since| before.saturating_sub(since));
                    if item.sent == item.bytes.len() {
                        done.push(Written { mark: item.mark, stamp: Stamp(begun, after) });
                        self.items.pop_front();
                    } else {
                        self.blocked_since = Some(after);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked_since.get_or_insert(after);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
