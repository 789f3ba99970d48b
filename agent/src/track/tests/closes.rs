//! Who ended a connection, what may still be read of one that was reset, and who goes when the tables are full.

use wire::socket::{DIR_RECV, DIR_SEND, tcp};

use super::{
    framing::post,
    rig::{PID, PORT, Rig},
    streams::{HEAD, chunk, token},
};
use crate::{
    decode::{ListenPort, Observation, ProcessSeen},
    request::record::Outcome,
    track::{TrackSettings, Tracked},
};

const GET: &str = "GET /x HTTP/1.1\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const CHILD: u32 = PID + 1;

/// A server that closes while a part of the request is unread resets the connection; whichever of its processes does.
#[test]
fn a_reset_by_the_server_is_no_disconnect() {
    for closer in [PID, CHILD] {
        let mut rig = Rig::new();
        rig.accept(1);
        rig.recv(1, post("/v1/chat/completions", "{}"));
        rig.send(1, HEAD.to_owned() + &chunk(&token("a")));
        rig.state(1, tcp::ESTABLISHED, tcp::CLOSE, closer);
        assert_eq!(rig.outcomes(), [Outcome::Truncated]);
        rig.assert_replays();
    }
}

#[test]
fn an_answer_that_ends_with_a_reset_by_the_server_is_whole() {
    let mut rig = Rig::new();
    rig.accept(1);
    let text = post("/v1/completions", &" ".repeat(100));
    rig.recv(1, &text[..text.len() - 50]);
    rig.send(1, "HTTP/1.1 413 Too Large\r\nConnection: close\r\n\r\ntoo large");
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE, CHILD);
    assert_eq!((rig.outcomes(), rig.finished()[0].status), (vec![Outcome::Client4xx], Some(413)));
    rig.assert_replays();
}

/// What had arrived before a reset is read after it: by a server that was busy.
#[test]
fn a_request_that_is_read_after_the_reset_is_told() {
    type End = fn(&mut Rig);
    let ends: [(&str, End); 4] = [
        ("the answer is written in vain", |rig| rig.fail(1, DIR_SEND, -32)),
        ("the server reads on", |rig| rig.fail(1, DIR_RECV, -104)),
        ("it reads on, to the end, and closes", |rig| {
            rig.fail(1, DIR_RECV, 0);
            rig.state(1, tcp::CLOSE, tcp::CLOSE, 0);
        }),
        ("it closes", |rig| rig.state(1, tcp::CLOSE, tcp::CLOSE, 0)),
    ];
    for (name, end) in ends {
        let mut rig = Rig::new();
        let others = rig.tracker.connections();
        rig.accept(1);
        rig.recv(1, GET);
        rig.send(1, OK);
        rig.state(1, tcp::ESTABLISHED, tcp::CLOSE, 0);
        let reset = rig.now;
        let text = post("/v1/chat/completions", r#"{"model":"m"}"#);
        rig.recv(1, &text[..text.len() - 5]);
        rig.recv(1, &text[text.len() - 5..]);
        assert_eq!(rig.finished().len(), 1, "{name}");
        end(&mut rig);
        assert_eq!(rig.outcomes(), [Outcome::Ok, Outcome::ClientDisconnect], "{name}");
        let late = rig.finished()[1];
        assert_eq!((late.model.as_deref(), late.close_ns), (Some("m"), Some(reset)), "{name}");
        rig.state(1, tcp::CLOSE, tcp::CLOSE, 0);
        assert_eq!((rig.tracker.connections(), rig.outcomes().len()), (others, 2), "{name}");
        rig.assert_replays();
    }
}

/// The rest of a request that was cut off by the reset is not another one.
#[test]
fn the_rest_of_a_request_that_a_reset_ended_is_nothing() {
    let mut rig = Rig::new();
    rig.accept(1);
    let text = post("/v1/chat/completions", r#"{"model":"m"}"#);
    rig.recv(1, &text[..text.len() - 5]);
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE, 0);
    rig.recv(1, &text[text.len() - 5..]);
    rig.fail(1, DIR_SEND, -32);
    rig.state(1, tcp::CLOSE, tcp::CLOSE, 0);
    assert_eq!(rig.outcomes(), [Outcome::ClientDisconnect]);
    rig.assert_replays();
}

/// The client was gone before anything was read.
#[test]
fn a_connection_that_was_reset_before_the_first_read_ends() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, GET);
    rig.state(1, tcp::CLOSE, tcp::CLOSE, 0);
    assert_eq!(rig.outcomes(), [Outcome::ClientDisconnect]);
}

/// The process that read is gone; one that it started has the connection, and answers.
#[test]
fn an_answer_by_a_child_whose_parent_has_ended() {
    let mut rig = Rig::new();
    rig.process(CHILD);
    rig.accept(1);
    rig.recv(1, GET);
    rig.exit(PID);
    rig.pid = CHILD;
    rig.send(1, OK);
    rig.recv(1, GET);
    rig.send(1, &OK[..OK.len() - 1]);
    // The last one that holds it is gone, and with it the connection.
    rig.exit(CHILD);
    rig.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, CHILD);
    assert_eq!(rig.outcomes(), [Outcome::Ok, Outcome::Truncated]);
    rig.assert_replays();
}

/// Where several processes may hold a connection, its own end tells.
#[test]
fn the_death_of_a_worker_ends_what_it_served_with_the_connection() {
    let mut rig = Rig::new();
    rig.process(CHILD);
    rig.accept(1);
    rig.recv(1, GET);
    rig.exit(PID);
    rig.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID);
    assert_eq!(rig.outcomes(), [Outcome::Truncated]);
}

/// First what is over, then what is idle, and last what is in the middle of something.
#[test]
fn a_full_table_gives_up_the_dead_first() {
    let mut rig = Rig::with(TrackSettings { max_connections: 32, ..TrackSettings::default() });
    rig.accept(1);
    rig.recv(1, GET);
    rig.accept(2);
    for sock in 10..30 {
        rig.accept(sock);
        rig.recv(sock, GET);
        rig.send(sock, OK);
        rig.state(sock, tcp::ESTABLISHED, tcp::CLOSE, 0);
    }
    for sock in 100..120 {
        rig.accept(sock);
        rig.recv(sock, GET);
    }
    rig.send(1, OK);
    assert!(rig.outcomes().iter().all(|outcome| *outcome == Outcome::Ok), "{:?}", rig.outcomes());
    assert_eq!(rig.finished().len(), 21);
    for sock in 200..216 {
        rig.accept(sock);
    }
    assert!(rig.outcomes().iter().all(|outcome| *outcome == Outcome::Ok), "the idle go before the busy");
}

fn churn(rig: &mut Rig, number: u32) {
    let seen = ProcessSeen {
        pid: 1000 + number,
        start_ticks: 1,
        comm: "job".into(),
        service: format!("job {number}"),
        service_name: format!("job {number}"),
        container: None,
        cuda: true,
        ports: vec![ListenPort { netns: 1, port: PORT }],
    };
    rig.observe(&Observation::Process(seen));
}

/// Jobs come and go by the thousands; what is there has a service, and the one that stays keeps its own.
#[test]
fn services_whose_processes_are_gone_make_room() {
    let mut rig = Rig::new();
    for number in 0..5000 {
        churn(&mut rig, number);
        rig.exit(1000 + number);
    }
    churn(&mut rig, 5000);
    assert!(!rig.health.ignored.contains_key("service_table_full"));
    rig.accept(1);
    rig.recv(1, GET);
    rig.send(1, OK);
    let service = rig.finished()[0].service.unwrap();
    assert_eq!(rig.tracker.service_name(service), "svc");
    let ends = rig.out.iter().filter(|t| matches!(t, Tracked::ProcessExit { last: true, .. })).count();
    assert_eq!(ends, 5000);
}

/// More living services than are told apart: that is said.
#[test]
fn living_services_are_bounded() {
    let mut rig = Rig::new();
    (0..4100).for_each(|number| churn(&mut rig, number));
    assert_eq!(rig.health.ignored["service_table_full"], 4100 - 4095);
    rig.exit(1000);
    churn(&mut rig, 4099);
    assert_eq!(
        rig.health.ignored["service_table_full"],
        4100 - 4095,
        "one has gone, and there is room for one"
    );
}
