//! Which unix sockets are the two ends of one connection: asked of the kernel (`sock_diag`), which `/proc` does not tell.
//!
//! Only sockets of the agent's own network namespace are told; processes in containers are told apart by these.

use std::{collections::BTreeMap, io};

use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with},
};

/// Most sockets that are taken; a busy host has some thousands.
const MAX_SOCKETS: usize = 65_536;
/// Most answers that are read: each is a buffer full.
const MAX_ANSWERS: usize = 4096;
/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP` of `linux/netlink.h`.
const DUMP: u16 = 0x301;
/// `NLMSG_ERROR` and `NLMSG_DONE`, likewise.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `UDIAG_SHOW_PEER` and `UNIX_DIAG_PEER` of `linux/unix_diag.h`.
const SHOW_PEER: u32 = 4;
const PEER: u16 = 2;
/// Lengths of `struct nlmsghdr` and `struct unix_diag_msg`.
const HEADER: usize = 16;
const MESSAGE: usize = 16;

/// The inode at the other end of each connected unix socket, by inode.
pub fn unix_peers() -> io::Result<BTreeMap<u64, u64>> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    send(&socket, &request(), SendFlags::empty())?;
    let mut peers = BTreeMap::new();
    let mut buffer = vec![0; 32 << 10];
    for _ in 0..MAX_ANSWERS {
        let length = receive(&socket, &mut buffer)?;
        if length == 0 || take(&buffer[..length], &mut peers) || peers.len() >= MAX_SOCKETS {
            break;
        }
    }
    Ok(peers)
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // The kernel answers a dump within the call that asks for the next part of it: this never waits for long.
    Ok(recv(socket, buffer, RecvFlags::empty())?.0)
}

/// `struct nlmsghdr` and `struct unix_diag_req`: all unix sockets in any state, with their peers.
fn request() -> Vec<u8> {
    let length = u32::try_from(HEADER + 24).unwrap_or(0);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    let family = u8::try_from(AddressFamily::UNIX.as_raw()).unwrap_or(1);
    bytes.extend([family, 0, 0, 0]);
    for word in [u32::MAX, 0, SHOW_PEER, u32::MAX, u32::MAX] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// Takes the messages of one answer; true when no more will come.
fn take(mut bytes: &[u8], peers: &mut BTreeMap<u64, u64>) -> bool {
    while let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let length = length as usize;
        if matches!(kind, ERROR | DONE) || length < HEADER || length > bytes.len() {
            return true;
        }
        if let Some((own, peer)) = pair(&bytes[HEADER..length]) {
            peers.insert(own, peer);
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

/// Inodes of a socket and of its peer, from `struct unix_diag_msg` and its attributes.
fn pair(message: &[u8]) -> Option<(u64, u64)> {
    let own = u32_at(message, 4)?;
    let mut attributes = message.get(MESSAGE..)?;
    loop {
        let (length, kind) = (u16_at(attributes, 0)? as usize, u16_at(attributes, 2)?);
        if kind == PEER {
            return Some((own.into(), u32_at(attributes, 4)?.into()));
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsRawFd, unix::net::UnixStream};

    use super::*;

    fn inode(socket: &UnixStream) -> u64 {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        let text = link.to_str().unwrap();
        text.trim_start_matches("socket:[").trim_end_matches(']').parse().unwrap()
    }

    #[test]
    fn the_ends_of_a_connection_know_each_other() {
        let (a, b) = UnixStream::pair().unwrap();
        let peers = unix_peers().unwrap();
        assert_eq!((peers.get(&inode(&a)), peers.get(&inode(&b))), (Some(&inode(&b)), Some(&inode(&a))));
    }

    #[test]
    fn a_broken_answer_is_the_last_one() {
        let mut peers = BTreeMap::new();
        for bytes in [&[][..], &[9; 3], &[0; 64], &[255; 64]] {
            take(bytes, &mut peers);
        }
        assert!(peers.is_empty());
    }
}
