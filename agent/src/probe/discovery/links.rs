//! Which processes engines talk to over unix sockets: fronts, wherever they were started.
//!
//! Asked for processes that use a GPU and do not listen themselves. To find who has the other end, the open files of
//! all processes would have to be read; so that is done once for each end, and only for those.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::scan::Scanner;
use crate::source::{diag, procfs::Stat};

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(5);
/// Ends of connections whose owner is remembered.
const OWNERS_KEPT: usize = 16_384;

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Processes at the other end, by engine.
    linked: BTreeMap<u32, BTreeSet<u32>>,
    /// Who has a socket, by inode; none where nobody was found.
    owners: BTreeMap<u64, Option<u32>>,
    /// Engines, as last looked at.
    engines: BTreeSet<u32>,
    looked: Option<Instant>,
}

impl Links {
    /// Who is linked to an engine.
    pub(super) fn of(&self, pid: u32) -> BTreeSet<u32> {
        self.linked.get(&pid).cloned().unwrap_or_default()
    }

    /// Processes that have links to engines.
    pub(super) fn fronts(&self) -> BTreeSet<u32> {
        self.linked.values().flatten().copied().collect()
    }

    /// Looks at the links of these engines, if that is due or there are others than before.
    pub(super) fn look(&mut self, scanner: &Scanner, engines: BTreeSet<u32>, now: Instant) {
        let is_due = self.looked.is_none_or(|looked| now >= looked + EVERY);
        if engines.is_empty() || (!is_due && engines == self.engines) {
            return;
        }
        let peers = match diag::unix_peers() {
            Ok(peers) => peers,
            Err(error) => {
                tracing::debug!(%error, "the kernel does not tell which unix sockets belong together");
                return;
            }
        };
        self.owners.retain(|inode, _| peers.contains_key(inode));
        let ends: BTreeMap<u32, BTreeSet<u64>> =
            engines.iter().map(|pid| (*pid, other_ends(scanner, *pid, &peers))).collect();
        self.find_owners(scanner, &ends);
        let owner = |inode: &u64| self.owners.get(inode).copied().flatten();
        let linked = |(pid, ends): (&u32, &BTreeSet<u64>)| {
            (*pid, ends.iter().filter_map(owner).filter(|other| other != pid).collect())
        };
        self.linked = ends.iter().map(linked).collect();
        (self.engines, self.looked) = (engines, Some(now));
    }

    /// Finds who has the ends of which that is not known.
    fn find_owners(&mut self, scanner: &Scanner, ends: &BTreeMap<u32, BTreeSet<u64>>) {
        let new: BTreeSet<u64> =
            ends.values().flatten().filter(|inode| !self.owners.contains_key(inode)).copied().collect();
        if new.is_empty() || self.owners.len() + new.len() > OWNERS_KEPT {
            return;
        }
        let mut left = new.clone();
        for Stat { pid, .. } in scanner.stats() {
            if left.is_empty() {
                break;
            }
            for inode in scanner.procfs().socket_inodes(scanner.view(*pid)).unwrap_or_default() {
                if left.remove(&inode) {
                    self.owners.insert(inode, Some(*pid));
                }
            }
        }
        self.owners.extend(left.into_iter().map(|inode| (inode, None)));
    }
}

/// The other ends of a process's unix sockets.
fn other_ends(scanner: &Scanner, pid: u32, peers: &BTreeMap<u64, u64>) -> BTreeSet<u64> {
    let own = scanner.procfs().socket_inodes(scanner.view(pid)).unwrap_or_default();
    own.iter().filter_map(|inode| peers.get(inode)).copied().collect()
}
