//! Which two sockets of watched processes are the two ends of one connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustc_hash::FxHashMap;
use wire::socket::{Open, SockId};

pub(super) const AF_UNIX: u16 = 1;
pub(super) const AF_INET: u16 = 2;
pub(super) const AF_INET6: u16 = 10;

/// One end, named so that the other end's name is its mirror image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    /// Of TCP. Addresses mean something within a network namespace only.
    Inet { netns: u32, local: (IpAddr, u16), peer: (IpAddr, u16) },
    /// Of a unix socket: the kernel's two sockets.
    Unix { local: u64, peer: u64 },
}

impl End {
    /// `None` when the kernel side could not read who is at the other end.
    fn of(open: &Open) -> Option<Self> {
        if open.family == AF_UNIX {
            let peer = unix_peer(open);
            return (peer != 0).then_some(Self::Unix { local: open.id.sock, peer });
        }
        if open.local_port == 0 || open.peer_port == 0 {
            return None;
        }
        let local = (address(open.family, &open.local_addr)?, open.local_port);
        let peer = (address(open.family, &open.peer_addr)?, open.peer_port);
        Some(Self::Inet { netns: open.netns, local, peer })
    }

    fn mirrored(self) -> Self {
        match self {
            Self::Inet { netns, local, peer } => Self::Inet { netns, local: peer, peer: local },
            Self::Unix { local, peer } => Self::Unix { local: peer, peer: local },
        }
    }
}

/// Address of the kernel's socket at the other end of a unix socket, an opaque number; 0 when it is not known.
fn unix_peer(open: &Open) -> u64 {
    open.peer_addr.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// An address in its usual form: one of IPv4 is never written as one of IPv6.
pub(super) fn address(family: u16, bytes: &[u8; 16]) -> Option<IpAddr> {
    match family {
        AF_INET => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
        AF_INET6 => Some(Ipv6Addr::from(*bytes).to_canonical()),
        _ => None,
    }
}

/// The sockets that are known, by their ends.
#[derive(Debug, Default)]
pub(super) struct Ends {
    table: FxHashMap<End, SockId>,
    /// Unix sockets by their address in the kernel: where nobody reads the end, nothing tells when they are closed.
    unix: FxHashMap<u64, SockId>,
}

impl Ends {
    /// The unix socket whose place another one has taken.
    pub(super) fn replaced(&mut self, open: &Open) -> Option<SockId> {
        if open.family != AF_UNIX {
            return None;
        }
        self.unix.insert(open.id.sock, open.id).filter(|earlier| *earlier != open.id)
    }

    /// Adds a socket; the one at the other end if it is known.
    pub(super) fn add(&mut self, open: &Open) -> Option<SockId> {
        let end = End::of(open)?;
        self.table.insert(end, open.id);
        self.table.get(&end.mirrored()).copied().filter(|other| *other != open.id)
    }

    /// Forgets a socket, unless its name is another's by now.
    pub(super) fn remove(&mut self, open: &Open) {
        if self.unix.get(&open.id.sock) == Some(&open.id) {
            self.unix.remove(&open.id.sock);
        }
        if let Some(end) = End::of(open)
            && self.table.get(&end) == Some(&open.id)
        {
            self.table.remove(&end);
        }
    }
}
