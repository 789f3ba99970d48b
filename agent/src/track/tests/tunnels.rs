//! Connections that leave HTTP behind: `WebSockets` and tunnels.

use wire::socket::{DIR_RECV, DIR_SEND, tcp};

use super::rig::{PID, Rig};
use crate::request::record::{Flag, Outcome};

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";

/// A session of which 6 bytes go out with the handshake's end, then 24 in and 3006 out.
fn session() -> Rig {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, UPGRADE);
    rig.send(1, format!("{SWITCH}secret"));
    rig.recv(1, "GET /secret HTTP/1.1\r\n\r\n");
    rig.send(1, "secret".repeat(501));
    rig
}

fn assert_is_session(rig: &Rig, closed: bool) {
    let done = rig.finished()[0];
    assert_eq!(
        (done.protocol.as_str(), done.status, done.outcome),
        ("WebSocket", Some(101), Some(Outcome::Ok))
    );
    assert_eq!(done.bytes_in, UPGRADE.len() as u64 + 24, "all that was read");
    assert_eq!(done.bytes_out, SWITCH.len() as u64 + 6 + 3006, "all that was written");
    assert_eq!(done.last_byte_out_ns, done.first_byte_out_ns, "the handshake's");
    assert_eq!(done.close_ns, closed.then_some(rig.now));
    assert_eq!((rig.finished().len(), done.flags.as_slice()), (1, &[] as &[Flag]));
    assert!(!rig.records.concat().windows(6).any(|w| w == b"secret"));
    rig.assert_replays();
}

#[test]
fn a_session_is_one_record_that_comes_with_its_end() {
    type Ending = fn(&mut Rig);
    let endings: [Ending; 4] = [
        |r| r.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID),
        |r| r.state(1, tcp::ESTABLISHED, tcp::CLOSE, 0),
        |r| r.fail(1, DIR_SEND, -32),
        |r| r.exit(PID),
    ];
    for ending in endings {
        let mut rig = session();
        assert!(rig.finished().is_empty(), "it goes on");
        ending(&mut rig);
        assert_is_session(&rig, true);
    }
}

/// The client says that it is done, the server a while later.
#[test]
fn a_session_closes_when_the_first_side_does() {
    let mut rig = session();
    rig.fail(1, DIR_RECV, 0);
    let closed = rig.now;
    rig.send(1, "bye");
    rig.state(1, 9, tcp::CLOSE, 0);
    let done = rig.finished()[0];
    assert_eq!((done.close_ns, done.outcome), (Some(closed), Some(Outcome::Ok)));
    assert_eq!(done.bytes_out, SWITCH.len() as u64 + 6 + 3006 + 3);
    rig.assert_replays();
}

#[test]
fn what_is_lost_of_a_session_is_counted() {
    let mut rig = session();
    rig.lose(1, DIR_SEND, 100);
    rig.send(1, "HTTP/1.1 200 OK\r\n\r\n");
    rig.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID);
    assert_eq!(rig.finished()[0].bytes_out, SWITCH.len() as u64 + 6 + 3006 + 100 + 19);
    assert_eq!(rig.finished()[0].flags, []);
}

#[test]
fn a_tunnel_of_connect_is_not_looked_into() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, "CONNECT a:1 HTTP/1.1\r\n\r\n");
    rig.send(1, "HTTP/1.1 200 OK\r\n\r\n");
    rig.recv(1, "GET /secret HTTP/1.1\r\n\r\n");
    rig.send(1, "HTTP/1.1 200 secret\r\n\r\n");
    rig.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID);
    let done = rig.finished()[0];
    assert_eq!((done.bytes_in, done.bytes_out, rig.finished().len()), (24 + 24, 19 + 23, 1));
    assert!(!rig.records.concat().windows(6).any(|w| w == b"secret"));
    rig.assert_replays();
}
