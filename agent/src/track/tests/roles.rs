//! Which connections count, older connections, and the tables.

use expect_test::expect;
use wire::socket::{DIR_SEND, FLAG_MID_STREAM, ROLE_ACCEPTED, ROLE_CONNECTED, ROLE_UNKNOWN, tcp};

use super::{
    framing::post,
    rig::{PID, PORT, Rig},
    streams::{END, HEAD, chunk, finish, token},
};
use crate::{
    decode::Observation,
    request::record::{Flag, Outcome},
    track::{TrackSettings, Tracked},
};

const GET: &str = "GET /x HTTP/1.1\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn a_response_that_runs_at_attach() {
    for (role, port) in [(ROLE_ACCEPTED, PORT), (ROLE_UNKNOWN, PORT), (ROLE_UNKNOWN, 999)] {
        let mut rig = Rig::new();
        rig.open_on(1, role, FLAG_MID_STREAM, port);
        rig.send(1, chunk(&token("a")));
        rig.send(1, chunk(&token("b")));
        rig.send(1, chunk(&finish()));
        rig.send(1, END);
        rig.recv(1, post("/v1/completions", "{}"));
        rig.send(1, OK);
        let (first, second) = (rig.finished()[0], rig.finished()[1]);
        assert_eq!((first.first_byte_in_ns, first.first_token_ns, first.content_total), (None, None, 2));
        assert_eq!((first.outcome, first.method.as_deref()), (Some(Outcome::Ok), None));
        assert!(first.flags.contains(&Flag::MidStream));
        assert_eq!(second.flags.contains(&Flag::RoleGuessed), port == 999);
        assert!(!second.flags.contains(&Flag::MidStream) && second.first_byte_in_ns.is_some());
        rig.assert_replays();
    }
}

#[test]
fn a_response_of_unknown_framing_that_runs_at_attach_ends_with_the_next_request() {
    let mut rig = Rig::new();
    rig.open(1, ROLE_ACCEPTED, FLAG_MID_STREAM);
    rig.send(1, "rest of something");
    rig.send(1, " that ends");
    rig.recv(1, GET);
    rig.send(1, OK);
    rig.recv(1, GET);
    rig.send(1, OK);
    expect![[r"
        read 1 service 0 at 5 by 11
        done 0 - - - status - Unknown in -..- (0 B) out -..4 (27 B) flags [MidStream]
        done 1 GET /x http status 200 Ok in 5..5 (19 B) out 6..6 (40 B) flags [MidStream]
        read 2 service 0 at 7 by 11
        done 2 GET /x http status 200 Ok in 7..7 (19 B) out 8..8 (40 B)
    "]]
    .assert_eq(&rig.print());
    rig.assert_replays();
}

#[test]
fn a_request_read_before_attach() {
    let mut rig = Rig::new();
    rig.open(1, ROLE_ACCEPTED, FLAG_MID_STREAM);
    rig.send(1, HEAD);
    rig.send(1, chunk(&token("a")) + &chunk(&finish()) + END);
    expect![[r"
        done 0 - - - status 200 Ok in -..- (0 B) out 3..4 (248 B) model m streaming true first_token 4 content 1 finish stop flags [MidStream]
    "]].assert_eq(&rig.print());
    rig.assert_replays();
}

#[test]
fn a_role_is_proven_by_bytes() {
    let mut rig = Rig::new();
    rig.open_on(1, ROLE_UNKNOWN, FLAG_MID_STREAM, 999);
    rig.send(1, "rest of an answer");
    rig.recv(1, GET);
    rig.send(1, OK);
    // A connection of which even the first record is lost.
    rig.recv(2, GET);
    rig.send(2, OK);
    // Ones on which this side is the client.
    rig.open_on(3, ROLE_UNKNOWN, FLAG_MID_STREAM, 999);
    rig.send(3, GET);
    rig.recv(3, OK);
    rig.recv(4, OK);
    expect![[r"
        read 0 service 0 at 4 by 11
        done 0 GET /x http status 200 Ok in 4..4 (19 B) out 5..5 (40 B) flags [MidStream, RoleGuessed]
        read 1 service 0 at 6 by 11
        done 1 GET /x http status 200 Ok in 6..6 (19 B) out 7..7 (40 B) flags [MidStream, RoleGuessed]
        ignored client_side 3
        ignored role_unknown 1
    "]]
    .assert_eq(&rig.print());
    rig.assert_replays();
}

/// The kernel side tells of connections that are older than the agent before anything moves on them.
#[test]
fn who_serves_an_older_connection_is_known_from_the_listener_or_from_its_other_end() {
    let mut rig = Rig::new();
    // Accepted by the service, as the kernel side or its listeners tell; and one of which nothing tells.
    rig.open(1, ROLE_ACCEPTED, FLAG_MID_STREAM);
    rig.open(2, ROLE_UNKNOWN, FLAG_MID_STREAM);
    rig.open_on(3, ROLE_UNKNOWN, FLAG_MID_STREAM, 999);
    // Both ends of one, in either order, and one whose other end asked for it in our sight.
    rig.open_here(4, ROLE_UNKNOWN, FLAG_MID_STREAM, [50_000, PORT]);
    rig.open_here(5, ROLE_UNKNOWN, FLAG_MID_STREAM, [PORT, 50_000]);
    rig.open_here(6, ROLE_CONNECTED, 0, [50_001, 777]);
    rig.open_here(7, ROLE_UNKNOWN, FLAG_MID_STREAM, [777, 50_001]);
    let found = |rig: &Rig| rig.tracker.older().map(|(_, n)| n).sum::<u64>();
    assert_eq!(found(&rig), 4);
    // Bytes that tell nothing: the client's are passed over as that.
    rig.send(4, "rest");
    assert_eq!(rig.health.ignored["client_side"], 1);
    rig.recv(3, GET);
    assert_eq!(found(&rig), 5, "by its bytes");
    rig.send(3, OK);
    rig.open(2, ROLE_UNKNOWN, FLAG_MID_STREAM);
    assert_eq!(found(&rig), 5, "told by two threads at once");
    rig.open(8, ROLE_ACCEPTED, 0);
    assert_eq!(found(&rig), 5, "it began in our sight");
    rig.assert_replays();
}

#[test]
fn connections_that_do_not_count_are_masked_and_counted() {
    let mut rig = Rig::new();
    rig.open(1, ROLE_CONNECTED, 0);
    rig.send(1, GET);
    rig.accept(2);
    rig.recv(2, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    rig.recv(2, GET);
    rig.accept(3);
    rig.recv(3, [22, 3, 1, 2, 0, 1, 0, 1, 252]);
    for record in &rig.records[rig.records.len() - 1..] {
        assert!(record.ends_with(&[b'x'; 9]));
    }
    expect![[r"
        ignored bad_frame 1
        ignored bad_request 1
        ignored client_side 1
        ignored not_http1 1
        ignored not_http2 1
    "]]
    .assert_eq(&rig.print());
    rig.assert_replays();
}

#[test]
fn a_process_of_no_service_has_no_exchanges() {
    let mut rig = Rig::new();
    rig.exit(PID);
    rig.accept(1);
    rig.recv(1, GET);
    rig.send(1, OK);
    assert!(rig.finished().is_empty());
    assert_eq!(rig.health.ignored["process_without_service"], 1);
}

#[test]
fn the_death_of_a_process_ends_what_it_served() {
    let mut rig = Rig::new();
    rig.accept(2);
    rig.accept(1);
    rig.recv(1, GET);
    rig.recv(2, GET);
    rig.exit(PID);
    rig.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID);
    expect![[r"
        read 0 service 0 at 4 by 11
        read 1 service 0 at 5 by 11
        done 0 GET /x http status - Truncated in 4..4 (19 B) out -..- (0 B) close 6
        done 1 GET /x http status - Truncated in 5..5 (19 B) out -..- (0 B) close 6
        ProcessExit { service: ServiceId(0), pid: 10, last: true, time_ns: 6000 }
    "]]
    .assert_eq(&rig.print());
}

#[test]
fn the_connection_table_is_bounded() {
    let mut rig = Rig::with(TrackSettings { max_connections: 32, ..TrackSettings::default() });
    for sock in 0..100 {
        rig.accept(sock);
        rig.recv(sock, GET);
        assert!(rig.tracker.connections() <= 32);
    }
    assert!(rig.outcomes().iter().all(|o| *o == Outcome::Unknown));
    assert!(rig.health.ignored["connection_table_full"] > 0);
    rig.send(99, OK);
    assert_eq!(rig.outcomes().last(), Some(&Outcome::Ok));
}

#[test]
fn a_reset_leaves_no_ghost() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, GET);
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE, 0);
    rig.send(1, OK);
    rig.fail(1, DIR_SEND, -32);
    assert_eq!(rig.outcomes(), [Outcome::ClientDisconnect]);
}

#[test]
fn clocks_and_ends() {
    let mut rig = Rig::new();
    assert_eq!(rig.tracker.wall_ns(5), None);
    rig.observe(&Observation::Clock { wall_ns: 1_700_000_000_000_000_000 });
    let now = rig.now;
    assert_eq!(rig.tracker.wall_ns(now + 7), Some(1_700_000_000_000_000_007));
    rig.accept(1);
    rig.recv(1, GET);
    rig.observe(&Observation::End);
    assert!(matches!(rig.out.last(), Some(Tracked::End { .. })));
    assert!(rig.finished().is_empty());
}
