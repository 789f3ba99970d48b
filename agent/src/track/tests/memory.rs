//! What peers send holds no more memory than all of them may together, and what is given up is said.

use wire::socket::tcp;

use super::{
    http2::{PREFACE, SETTINGS, frame, post},
    rig::Rig,
};
use crate::{
    request::record::Flag,
    track::{Exchange, TrackSettings, exchanges::Exchanges, memory::EXCHANGE, open::Open, sse::Sse},
};

const GOOD: u64 = 1_000_000;
const MAX: usize = 4 << 20;

fn rig() -> Rig {
    let mut rig =
        Rig::with(TrackSettings { max_connections: 65_536, max_held: MAX, ..TrackSettings::default() });
    rig.accept(GOOD);
    rig
}

fn ask(rig: &mut Rig) {
    rig.recv(GOOD, "POST /good HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}");
    rig.send(GOOD, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
}

/// Everything is given back, and nobody else noticed.
fn judge(mut rig: Rig, asked: usize, socks: impl Iterator<Item = u64>) {
    for sock in socks.chain([GOOD]) {
        rig.state(sock, tcp::ESTABLISHED, tcp::CLOSE, 0);
        // What a reset found unread may still be read, until the socket is gone.
        rig.state(sock, tcp::CLOSE, tcp::CLOSE, 0);
    }
    assert_eq!(rig.tracker.held(), 0);
    let good: Vec<_> = rig.finished().into_iter().filter(|e| e.path.as_deref() == Some("/good")).collect();
    assert_eq!(good.len(), asked);
    assert!(good.iter().all(|e| e.status == Some(200) && e.flags.is_empty()));
}

#[test]
fn heads_that_never_end_are_bounded_over_all_connections() {
    let mut rig = rig();
    let head = format!("POST /slow HTTP/1.1\r\nX: {}", "a".repeat(1000));
    for sock in 0..20_000 {
        rig.accept(sock);
        rig.recv(sock, &head);
        assert!(rig.tracker.held() <= MAX, "{}", rig.tracker.held());
        if sock % 100 == 0 {
            ask(&mut rig);
        }
    }
    assert!(rig.health.limits["connection_memory"] > 1000, "{:?}", rig.health.limits);
    judge(rig, 200, 0..20_000);
}

/// What is counted for an exchange is no less than it takes.
#[test]
fn an_exchange_is_not_larger_than_it_counts() {
    let bodies = 2 * size_of::<Sse>();
    let strings = 4 * 256 + 512;
    let parts = size_of::<Open>() + size_of::<Exchange>() + size_of::<Exchanges>() + bodies + strings;
    assert!((EXCHANGE / 2..EXCHANGE).contains(&parts), "{parts}");
}

#[test]
fn a_head_that_was_given_up_is_flagged_and_answered() {
    let mut rig = rig();
    rig.accept(1);
    rig.recv(1, "POST /slow HTTP/1.1\r\nx-request-id: slow\r\nX: ");
    for _ in 0..60 {
        rig.recv(1, [b'a'; 1000]);
    }
    for sock in 2..200 {
        rig.accept(sock);
        (0..60).for_each(|_| rig.recv(sock, "GET / HTTP/1.1\r\nX: a".repeat(50)));
    }
    assert!(rig.health.limits.contains_key("connection_memory"));
    rig.recv(1, "a\r\nContent-Length: 2\r\n\r\n{}");
    rig.send(1, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    rig.recv(1, "POST /next HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}");
    rig.send(1, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let [slow, next] = rig.finished()[..] else { panic!("{}", rig.print()) };
    assert_eq!((slow.path.as_deref(), slow.request_id.as_deref()), (Some("/slow"), Some("slow")));
    assert_eq!((slow.status, &slow.flags[..]), (Some(200), &[Flag::Gap][..]));
    assert_eq!((next.path.as_deref(), next.status, next.flags.len()), (Some("/next"), Some(200), 0));
}

#[test]
fn streams_and_header_tables_are_bounded_over_all_connections() {
    let mut rig = rig();
    for sock in 0..500 {
        rig.accept(sock);
        rig.recv(sock, [PREFACE, SETTINGS].concat());
        for n in 0..20 {
            rig.recv(sock, frame(1, 4, 1 + 2 * n, &post("/v1/completions")));
            assert!(rig.tracker.held() <= MAX + (1 << 16), "{}", rig.tracker.held());
        }
        ask(&mut rig);
    }
    assert!(rig.health.limits["connection_memory"] > 100, "{:?}", rig.health.limits);
    judge(rig, 500, 0..500);
}

#[test]
fn times_of_content_are_bounded_over_all_connections() {
    let mut rig = rig();
    let event = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n".repeat(40);
    for sock in 0..20 {
        rig.accept(sock);
        rig.recv(sock, "POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}");
        rig.send(sock, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
        for _ in 0..410 {
            rig.send(sock, &event);
            assert!(rig.tracker.held() <= MAX, "{}", rig.tracker.held());
        }
        ask(&mut rig);
    }
    assert!(rig.health.limits.contains_key("connection_memory"));
    let streams = (0..20).map(|sock| {
        rig.state(sock, tcp::ESTABLISHED, tcp::FIN_WAIT1, super::rig::PID);
        rig.finished().last().map(|e| (e.content_total, e.content.len(), e.flags.contains(&Flag::Gap)))
    });
    let streams: Vec<_> = streams.flatten().collect();
    assert!(streams.iter().all(|(total, kept, flagged)| *total == 16_400 && (*kept > 0) != *flagged));
    assert!(streams.iter().any(|(.., flagged)| *flagged) && !streams.iter().all(|(.., flagged)| *flagged));
    judge(rig, 20, 0..20);
}
