//! Which two sockets are one connection, and unix sockets, of whose ends nothing tells.

use wire::{
    Kind,
    socket::{self, FLAG_MID_STREAM, ROLE_ACCEPTED, ROLE_CONNECTED, ROLE_UNKNOWN, tcp},
};
use zerocopy::IntoBytes;

use super::{
    http2::{PREFACE, SETTINGS, frame, post},
    rig::{PORT, Rig, id},
};
use crate::{
    request::record::{Flag, Outcome},
    track::{Client, Tracked, Traffic},
};

const PROXY: u32 = 77;
const EPHEMERAL: u16 = 45_678;
const GET: &str = "GET /x HTTP/1.1\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A socket as the kernel side tells of it.
struct Socket {
    sock: u64,
    pid: u32,
    role: u8,
    netns: u32,
    family: u16,
    local: ([u8; 16], u16),
    peer: ([u8; 16], u16),
}

fn v4(last: u8) -> [u8; 16] {
    [127, 0, 0, last, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn mapped(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, last]
}

fn accepted() -> Socket {
    let (local, peer) = ((v4(1), PORT), (v4(1), EPHEMERAL));
    Socket { sock: 1, pid: super::rig::PID, role: ROLE_ACCEPTED, netns: 1, family: 2, local, peer }
}

fn connected() -> Socket {
    let Socket { local, peer, .. } = accepted();
    Socket { sock: 2, pid: PROXY, role: ROLE_CONNECTED, local: peer, peer: local, ..accepted() }
}

/// A unix socket; `other` is the one at its other end.
fn unix(sock: u64, other: u64, role: u8) -> Socket {
    let mut peer = [0; 16];
    peer[..8].copy_from_slice(&other.to_ne_bytes());
    Socket { sock, role, family: 1, local: ([0; 16], 0), peer: (peer, 0), ..accepted() }
}

fn open(rig: &mut Rig, socket: &Socket, birth_ns: u64) {
    let mut header = rig.header(Kind::SocketOpen, size_of::<socket::Open>());
    header.tgid = socket.pid;
    let flags = if socket.role == ROLE_UNKNOWN { FLAG_MID_STREAM } else { 0 };
    let record = socket::Open {
        header,
        id: socket::SockId { birth_ns, ..id(socket.sock) },
        local_addr: socket.local.0,
        peer_addr: socket.peer.0,
        netns: socket.netns,
        local_port: socket.local.1,
        peer_port: socket.peer.1,
        family: socket.family,
        role: socket.role,
        flags,
        reserved: 0,
    };
    rig.record(record.as_bytes().to_vec());
}

/// Who sent the request, when it was read and when it was over.
fn clients(rig: &Rig) -> [Option<u32>; 2] {
    let read = rig.out.iter().find_map(|t| match t {
        Tracked::RequestRead { client, .. } => Some(*client),
        _ => None,
    });
    [read.flatten(), rig.finished()[0].client].map(|client| client.map(|client| client.pid))
}

#[test]
fn two_sockets_are_one_connection_if_their_names_are_mirror_images() {
    type Case = (&'static str, Socket, Socket, Option<u32>);
    let cases: [Case; 6] = [
        ("on loopback", accepted(), connected(), Some(PROXY)),
        (
            "a listener of both families",
            Socket { family: 10, local: (mapped(1), PORT), peer: (mapped(1), EPHEMERAL), ..accepted() },
            connected(),
            Some(PROXY),
        ),
        ("another namespace", accepted(), Socket { netns: 2, ..connected() }, None),
        ("another address", accepted(), Socket { local: (v4(2), EPHEMERAL), ..connected() }, None),
        ("another port", accepted(), Socket { local: (v4(1), 1), ..connected() }, None),
        ("older than the agent", accepted(), Socket { role: ROLE_UNKNOWN, ..connected() }, Some(PROXY)),
    ];
    for (name, server, client, want) in cases {
        for client_first in [true, false] {
            let mut rig = Rig::new();
            let pair = if client_first { [&client, &server] } else { [&server, &client] };
            for socket in pair {
                open(&mut rig, socket, 500);
            }
            rig.recv(1, GET);
            rig.send(1, OK);
            assert_eq!(clients(&rig), [want; 2], "{name}");
            rig.assert_replays();
        }
    }
}

/// On two processors, the record of the sender's call can come after all of the server's.
#[test]
fn a_client_that_shows_late_is_known_when_all_is_over() {
    let mut rig = Rig::new();
    open(&mut rig, &accepted(), 500);
    rig.recv(1, GET);
    open(&mut rig, &connected(), 500);
    rig.send(1, OK);
    assert_eq!(clients(&rig), [None, Some(PROXY)]);
}

#[test]
fn the_next_connection_from_the_same_port_is_somebody_elses() {
    let mut rig = Rig::new();
    open(&mut rig, &connected(), 500);
    rig.state(2, tcp::ESTABLISHED, tcp::CLOSE, 0);
    open(&mut rig, &accepted(), 500);
    rig.recv(1, GET);
    rig.send(1, OK);
    assert_eq!(clients(&rig), [None; 2]);
}

#[test]
fn the_thread_that_wrote_last_is_told() {
    let mut rig = Rig::new();
    open(&mut rig, &connected(), 500);
    open(&mut rig, &accepted(), 500);
    rig.send(2, GET);
    rig.recv(1, GET);
    rig.send(1, OK);
    let client = Client { pid: super::rig::PID, tid: super::rig::TID };
    assert_eq!(rig.finished()[0].client, Some(client));
}

#[test]
fn a_unix_socket_that_brings_requests_is_a_connection_like_any_other() {
    let mut rig = Rig::new();
    open(&mut rig, &Socket { pid: PROXY, ..unix(2, 1, ROLE_UNKNOWN) }, 500);
    open(&mut rig, &unix(1, 2, ROLE_ACCEPTED), 500);
    for _ in 0..2 {
        rig.recv(1, GET);
        rig.send(1, OK);
    }
    assert_eq!((clients(&rig), rig.outcomes()), ([Some(PROXY); 2], vec![Outcome::Ok; 2]));
    assert!(rig.finished()[0].flags.is_empty() && rig.finished()[0].local_port.is_none());
    rig.assert_replays();
}

/// What is not captured is nobody's request; on one older than the agent it is captured from the next request on.
#[test]
fn other_unix_sockets_are_ignored_until_they_bring_requests() {
    let mut rig = Rig::new();
    open(&mut rig, &unix(1, 2, ROLE_UNKNOWN), 500);
    rig.call(1, socket::DIR_RECV, b"something", (0, 0), 100);
    rig.call(1, socket::DIR_SEND, b"an answer", (0, 0), 100);
    assert_eq!(rig.health.ignored["unix_socket"], 2);
    rig.recv(1, GET);
    rig.send(1, OK);
    let done = rig.finished()[0];
    assert_eq!((done.path.as_deref(), done.outcome), (Some("/x"), Some(Outcome::Ok)));
    assert_eq!(done.flags, [Flag::MidStream, Flag::RoleGuessed]);
    rig.assert_replays();
}

/// It takes no bytes for a client that is gone, and tells of no acknowledgements.
#[test]
fn the_client_of_a_unix_socket_is_there_while_writes_succeed() {
    for (last, outcome) in [(true, Outcome::Ok), (false, Outcome::ClientDisconnect)] {
        let mut rig = Rig::new();
        open(&mut rig, &unix(1, 2, ROLE_ACCEPTED), 500);
        rig.recv(1, GET);
        rig.fail(1, socket::DIR_RECV, 0);
        rig.now += 1_000_000_000;
        rig.send(1, &OK[..OK.len() - 1]);
        if last {
            rig.send(1, &OK[OK.len() - 1..]);
        } else {
            rig.fail(1, socket::DIR_SEND, -32);
        }
        assert_eq!(rig.outcomes(), [outcome]);
        assert_eq!((rig.finished()[0].close_ns.is_some(), rig.tracker.held()), (!last, 0));
        rig.assert_replays();
    }
}

/// The client has read the end: the server closed. An answer that ends with the connection is whole.
#[test]
fn a_unix_socket_that_the_server_closed() {
    const HEAD: &str = "HTTP/1.0 200 OK\r\n\r\n";
    for (response, outcome) in [(HEAD, Outcome::Ok), (&OK[..OK.len() - 1], Outcome::Truncated)] {
        let mut rig = Rig::new();
        let others = rig.tracker.connections();
        open(&mut rig, &unix(1, 2, ROLE_ACCEPTED), 500);
        rig.recv(1, GET);
        rig.send(1, response);
        rig.state(1, tcp::FIN_WAIT1, tcp::CLOSE, 0);
        assert_eq!((rig.outcomes(), rig.tracker.connections()), (vec![outcome], others));
        rig.assert_replays();
    }
}

/// Where nobody read the end: what ends with the connection did so before another one was in its place.
#[test]
fn an_answer_that_ended_with_a_unix_socket_is_whole() {
    let mut rig = Rig::new();
    open(&mut rig, &unix(1, 2, ROLE_ACCEPTED), 500);
    rig.recv(1, GET);
    rig.send(1, "HTTP/1.0 200 OK\r\n\r\nall");
    let wrote = rig.now;
    rig.now += 5_000_000_000;
    open(&mut rig, &unix(1, 2, ROLE_ACCEPTED), 501);
    let done = rig.finished()[0];
    assert_eq!((done.outcome, done.close_ns), (Some(Outcome::Ok), None));
    assert_eq!(done.last_byte_out_ns, Some(wrote));
    rig.assert_replays();
}

/// Nothing tells that a unix socket was closed but the end that is read, or another one in its place.
#[test]
fn unix_sockets_leave() {
    let mut rig = Rig::new();
    let others = rig.tracker.connections();
    open(&mut rig, &unix(1, 2, ROLE_ACCEPTED), 500);
    rig.recv(1, GET);
    rig.send(1, OK);
    rig.fail(1, socket::DIR_RECV, 0);
    assert_eq!(rig.tracker.connections(), others, "the client closed, and all was answered");
    open(&mut rig, &unix(3, 2, ROLE_ACCEPTED), 500);
    rig.recv(3, GET);
    open(&mut rig, &unix(3, 2, ROLE_ACCEPTED), 501);
    assert_eq!(rig.outcomes(), [Outcome::Ok, Outcome::Unknown], "another one is in its place");
    assert_eq!(rig.finished()[1].close_ns, None, "and when that happened is not known");
    assert_eq!(rig.tracker.connections(), others + 1);
}

/// A router that has each step done by another process of its own gets no request by that; another service's client does.
#[test]
fn calls_within_a_service_over_a_unix_socket_are_no_requests() {
    for (own, want) in [(true, true), (false, false)] {
        let mut rig = Rig::new();
        if own {
            rig.process(PROXY);
        }
        open(&mut rig, &Socket { pid: PROXY, ..unix(2, 1, ROLE_UNKNOWN) }, 500);
        open(&mut rig, &unix(1, 2, ROLE_ACCEPTED), 500);
        let call = post("/generate.v3.TextGenerationService/Decode");
        rig.recv(1, [PREFACE, &frame(1, 5, 1, &call)].concat());
        rig.send(1, [SETTINGS, &frame(1, 5, 1, &[0x88])].concat());
        assert_eq!(rig.finished()[0].probe, want, "{own}");
        rig.assert_replays();
    }
}

/// Bytes count for the service that moves them, unless both ends are its own; connections for the one that accepted them.
#[test]
fn traffic_is_that_between_services() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, GET);
    rig.send(1, OK);
    open(&mut rig, &unix(3, 4, ROLE_ACCEPTED), 500);
    rig.recv(3, GET);
    rig.process(PROXY);
    open(&mut rig, &Socket { sock: 6, ..connected() }, 500);
    open(&mut rig, &Socket { sock: 5, ..accepted() }, 500);
    rig.recv(5, GET);
    let moved: Vec<_> = rig.tracker.take_moved().collect();
    let bytes = |text: &str| text.len() as u64;
    let want = Traffic { connections: 0, bytes_in: bytes(GET), bytes_out: bytes(OK) };
    assert_eq!(moved.iter().map(|(_, traffic)| *traffic).collect::<Vec<_>>(), [want]);
    assert_eq!(rig.tracker.take_moved().count(), 0, "once");
    assert_eq!(rig.tracker.accepted().count(), 3);
}
