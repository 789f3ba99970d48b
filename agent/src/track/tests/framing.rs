//! Messages: heads, bodies, order, and who ends them.

use expect_test::{Expect, expect};
use wire::socket::{DIR_RECV, DIR_SEND, tcp};

use super::rig::{PID, Rig};
use crate::{
    request::record::{Flag, Outcome},
    track::Tracked,
};

fn check(rig: &Rig, expected: &Expect) {
    expected.assert_eq(&rig.print());
    rig.assert_replays();
}

const GET: &str = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

pub(super) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nx-request-id: r1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(super) fn answer(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

const ANSWER: &str = r#"{"object":"chat.completion","model":"m-2","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#;

#[test]
fn three_requests_on_one_connection() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, post("/v1/chat/completions?key=s", r#"{"model":"m-1","messages":[],"max_tokens":5}"#));
    rig.send(1, answer(ANSWER));
    rig.recv(1, GET);
    rig.send(1, OK);
    rig.recv(1, post("/v1/chat/completions", r#"{"model":"m-1"}"#));
    rig.send(1, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE_WAIT, 0);
    rig.state(1, 9, tcp::CLOSE, PID);
    check(
        &rig,
        &expect![[r"
        read 0 service 0 at 3 by 11
        done 0 POST /v1/chat/completions openai.chat status 200 Ok in 3..3 (167 B) out 4..4 (257 B) model m-2 streaming false finish stop tokens Some(7)/Some(2) request_id r1
        read 1 service 0 at 5 by 11
        done 1 GET /health http status 200 Ok in 5..5 (33 B) out 6..6 (40 B) probe yes
        read 2 service 0 at 7 by 11
        done 2 POST /v1/chat/completions openai.chat status 404 Client4xx in 7..7 (132 B) out 8..8 (45 B) model m-1 request_id r1
    "]],
    );
    assert_eq!(rig.finished()[0].max_tokens, Some(5));
    assert_eq!(rig.finished()[0].accept_ns, Some(500));
    assert_eq!(rig.finished()[1].accept_ns, None);
    assert_eq!(rig.finished()[0].peer.as_deref(), Some("10.0.0.9:4321"));
}

#[test]
fn a_request_in_pieces() {
    let text = post("/v1/completions", r#"{"prompt":"a","model":"m","stream":false}"#);
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, &text[..20]);
    rig.recv(1, &text[20..text.len() - 10]);
    rig.recv(1, &text[text.len() - 10..]);
    rig.send(1, "HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n");
    rig.send(1, r#"{"choices":[{"text":"a"}]}    "#);
    check(
        &rig,
        &expect![[r"
        read 0 service 0 at 5 by 11
        done 0 POST /v1/completions openai.completions status 200 Ok in 3..5 (153 B) out 6..7 (69 B) model m streaming false request_id r1
    "]],
    );
}

#[test]
fn one_byte_at_a_time_tells_the_same() {
    let (request, response) = (post("/v1/chat/completions", r#"{"model":"m"}"#), answer(ANSWER));
    let mut rig = Rig::new();
    rig.accept(1);
    request.bytes().for_each(|b| rig.recv(1, [b]));
    response.bytes().for_each(|b| rig.send(1, [b]));
    rig.assert_replays();
    let done = rig.finished()[0].clone();
    assert_eq!(done.outcome, Some(Outcome::Ok));
    assert_eq!(done.bytes_in, request.len() as u64);
    assert_eq!(done.bytes_out, response.len() as u64);
    assert_eq!((done.model.as_deref(), done.input_tokens), (Some("m-2"), Some(7)));
    assert_eq!(done.request_id.as_deref(), Some("r1"));
}

#[test]
fn interim_responses_are_not_the_answer() {
    let mut rig = Rig::new();
    rig.accept(1);
    let text = post("/v1/completions", r#"{"model":"m"}"#);
    let body = text.len() - 13;
    rig.recv(1, &text[..body]);
    rig.send(1, "HTTP/1.1 100 Continue\r\n\r\n");
    rig.recv(1, &text[body..]);
    rig.send(1, "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    check(
        &rig,
        &expect![[r"
        read 0 service 0 at 5 by 11
        done 0 POST /v1/completions openai.completions status 200 EmptyOutput in 3..5 (125 B) out 6..6 (102 B) model m request_id r1
    "]],
    );
}

#[test]
fn responses_without_a_body() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, "HEAD /x HTTP/1.1\r\n\r\n");
    rig.send(1, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n");
    for status in ["204 No Content", "304 Not Modified"] {
        rig.recv(1, "GET /x HTTP/1.1\r\n\r\n");
        rig.send(1, format!("HTTP/1.1 {status}\r\n\r\n"));
    }
    rig.recv(1, "GET /x HTTP/1.1\r\n\r\n");
    rig.send(1, "HTTP/1.0 200 OK\r\n\r\nuntil the");
    rig.send(1, " end");
    rig.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID);
    check(
        &rig,
        &expect![[r"
        read 0 service 0 at 3 by 11
        done 0 HEAD /x http status 200 Ok in 3..3 (20 B) out 4..4 (40 B)
        read 1 service 0 at 5 by 11
        done 1 GET /x http status 204 Ok in 5..5 (19 B) out 6..6 (27 B)
        read 2 service 0 at 7 by 11
        done 2 GET /x http status 304 Ok in 7..7 (19 B) out 8..8 (29 B)
        read 3 service 0 at 9 by 11
        done 3 GET /x http status 200 Ok in 9..9 (19 B) out 10..11 (32 B)
    "]],
    );
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, "GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\nGET /c HT");
    rig.send(1, "HTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\naHTTP/1.1 202 Accepted\r\nContent-Le");
    rig.recv(1, "TP/1.1\r\n\r\n");
    rig.send(1, "ngth: 0\r\n\r\n");
    rig.send(1, "HTTP/1.1 203 C\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
    check(
        &rig,
        &expect![[r"
        read 0 service 0 at 3 by 11
        read 1 service 0 at 3 by 11
        done 0 GET /a http status 201 Ok in 3..3 (19 B) out 4..4 (44 B)
        read 2 service 0 at 5 by 11
        done 1 GET /b http status 202 Ok in 3..3 (19 B) out 4..6 (44 B)
        done 2 GET /c http status 203 Ok in 3..5 (19 B) out 7..7 (57 B)
    "]],
    );
}

#[test]
fn more_requests_than_are_followed_end_it() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, "GET /a HTTP/1.1\r\n\r\n".repeat(70));
    rig.send(1, OK);
    assert_eq!(rig.outcomes(), [Outcome::Unknown; 64]);
    assert!(rig.health.ignored["pipeline_full"] >= 1);
    rig.assert_replays();
}

#[test]
fn an_answer_before_the_end_of_the_request() {
    let mut rig = Rig::new();
    rig.accept(1);
    let text = post("/v1/completions", &" ".repeat(100));
    rig.recv(1, &text[..text.len() - 50]);
    rig.send(1, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
    rig.recv(1, &text[text.len() - 50..]);
    rig.recv(1, GET);
    rig.send(1, OK);
    check(
        &rig,
        &expect![[r"
        done 0 POST /v1/completions openai.completions status 413 Client4xx in 3..- (163 B) out 4..4 (45 B) request_id r1
        read 1 service 0 at 6 by 11
        done 1 GET /health http status 200 Ok in 6..6 (33 B) out 7..7 (40 B) probe yes
    "]],
    );
}

#[test]
fn how_answers_end() {
    let body = |content: &str, finish: &str| {
        answer(&format!(r#"{{"choices":[{{"message":{{"content":{content}}},"finish_reason":{finish}}}]}}"#))
    };
    for (response, expected) in [
        (body(r#""a""#, r#""length""#), Outcome::Truncated),
        (body(r#""a""#, r#""stop""#), Outcome::Ok),
        (body(r#""""#, r#""length""#), Outcome::EmptyOutput),
        (body("null", r#""stop""#), Outcome::EmptyOutput),
        (body(r#""a""#, r#""content_filter""#), Outcome::ContentFilter),
        (answer(r#"{"error":{"message":"x"}}"#), Outcome::InBandError),
        (answer("not json"), Outcome::Ok),
        ("HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n".into(), Outcome::Client4xx),
        ("HTTP/1.1 408 T\r\nContent-Length: 0\r\n\r\n".into(), Outcome::Timeout),
        ("HTTP/1.1 500 E\r\nContent-Length: 0\r\n\r\n".into(), Outcome::Server5xx),
        ("HTTP/1.1 504 T\r\nContent-Length: 0\r\n\r\n".into(), Outcome::Timeout),
        ("HTTP/1.1 307 R\r\nContent-Length: 0\r\n\r\n".into(), Outcome::Ok),
    ] {
        let mut rig = Rig::new();
        rig.accept(1);
        rig.recv(1, post("/v1/chat/completions", "{}"));
        rig.send(1, &response);
        assert_eq!(rig.outcomes(), [expected], "{response}");
        rig.assert_replays();
    }
}

/// An answer that is as long as its client allowed is what was asked for; one that ends at somebody else's limit is not.
#[test]
fn an_answer_that_reached_its_largest_length() {
    let gap = format!(r#"{{"messages":"{}"}}"#, "p".repeat(5000));
    for (path, request, reason, expected) in [
        ("/v1/chat/completions", r#"{"max_tokens":5}"#, "length", Outcome::Ok),
        ("/v1/chat/completions", r#"{"max_completion_tokens":5}"#, "length", Outcome::Ok),
        ("/v1/chat/completions", r#"{"stream":false}"#, "length", Outcome::Truncated),
        ("/v1/chat/completions", r#"{"max_tokens":null}"#, "length", Outcome::Truncated),
        ("/v1/chat/completions", r#"{"max_tokens":5}"#, "model_context_window_exceeded", Outcome::Truncated),
        ("/v1/chat/completions", "{}", "stop", Outcome::Ok),
        // What was asked for is not known.
        ("/v1/chat/completions", &gap, "length", Outcome::Ok),
        ("/v1/chat/completions", "not JSON", "length", Outcome::Ok),
    ] {
        let mut rig = Rig::new();
        rig.accept(1);
        rig.recv(1, post(path, request));
        rig.send(
            1,
            answer(&format!(r#"{{"choices":[{{"message":{{"content":"a"}},"finish_reason":"{reason}"}}]}}"#)),
        );
        let done = rig.finished()[0];
        assert_eq!(
            (done.outcome, done.finish_reason.as_deref()),
            (Some(expected), Some(reason)),
            "{request}"
        );
        rig.assert_replays();
    }
}

#[test]
fn connections_that_end_before_the_answer() {
    type Ending = fn(&mut Rig);
    let endings: [(&str, Ending, Outcome); 9] = [
        ("server closes", |r| r.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID), Outcome::Truncated),
        ("server resets", |r| r.state(1, tcp::ESTABLISHED, tcp::CLOSE, PID), Outcome::Truncated),
        ("server dies", |r| r.exit(PID), Outcome::Truncated),
        ("client resets", |r| r.state(1, tcp::ESTABLISHED, tcp::CLOSE, 0), Outcome::ClientDisconnect),
        ("read fails", |r| r.fail(1, DIR_RECV, -104), Outcome::ClientDisconnect),
        ("write fails", |r| r.fail(1, DIR_SEND, -32), Outcome::ClientDisconnect),
        (
            "client closes, then server",
            |r| {
                r.state(1, tcp::ESTABLISHED, tcp::CLOSE_WAIT, 0);
                r.state(1, 9, tcp::CLOSE, 0);
            },
            Outcome::ClientDisconnect,
        ),
        (
            "client closes before the first read, and resets",
            |r| r.state(1, tcp::CLOSE_WAIT, tcp::CLOSE, PID),
            Outcome::ClientDisconnect,
        ),
        (
            "read ends, server answers late",
            |r| {
                r.fail(1, DIR_RECV, 0);
                r.now += 1_000_000_000;
                r.send(1, OK);
                r.state(1, tcp::CLOSE_WAIT, tcp::CLOSE, 0);
            },
            Outcome::ClientDisconnect,
        ),
    ];
    for (name, ending, expected) in endings {
        for begun in [false, true] {
            let mut rig = Rig::new();
            rig.accept(1);
            rig.recv(1, post("/v1/chat/completions", "{}"));
            if begun && !name.contains("late") {
                rig.send(1, &OK[..OK.len() - 1]);
            }
            ending(&mut rig);
            assert_eq!(rig.outcomes(), [expected], "{name}, begun {begun}");
            assert!(rig.finished()[0].close_ns.is_some(), "{name}");
            rig.assert_replays();
        }
    }
}

#[test]
fn a_close_that_overtakes_the_last_write_is_no_disconnect() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, GET);
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE_WAIT, 0);
    rig.send(1, OK);
    assert_eq!(rig.outcomes(), [Outcome::Ok]);
    assert_eq!(rig.finished()[0].close_ns, None);
}

#[test]
fn an_idle_close_is_nothing() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, "GET /he");
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE_WAIT, 0);
    rig.state(1, 9, tcp::CLOSE, PID);
    rig.accept(2);
    rig.send(2, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 3\r\n\r\nbye");
    rig.state(2, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID);
    check(
        &rig,
        &expect![[r"
        ignored request_head_incomplete 1
        ignored response_without_request 1
    "]],
    );
}

#[test]
fn time_in_which_the_socket_was_full() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, "GET /x HTTP/1.1\r\n\r\n");
    rig.send(1, "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n");
    rig.call(1, DIR_SEND, &[b'a'; 10], (10, 0), 30);
    rig.now += 5_000_000;
    rig.fail(1, DIR_SEND, -11);
    rig.fail(1, DIR_SEND, -11);
    rig.call(1, DIR_SEND, &[b'a'; 10], (10, 0), 20);
    rig.now += 1_000_000;
    rig.call(1, DIR_SEND, &[b'a'; 10], (10, 0), 10);
    assert_eq!(rig.finished()[0].blocked_ns, 5_003_000 + 1_001_000);
}

/// A client that sends nothing more may still read. Its acknowledgement of the last byte tells it from one that is gone.
#[test]
fn a_client_that_only_ended_its_side_gets_its_answer() {
    for (acked, outcome) in [(true, Outcome::Ok), (false, Outcome::ClientDisconnect)] {
        for streamed in [true, false] {
            let mut rig = Rig::new();
            rig.network =
                wire::socket::Network { first_ns: 1, last_ns: 1, first_len: u32::MAX, last_from: 0 };
            rig.accept(1);
            rig.recv(1, post("/v1/chat/completions", "{}"));
            rig.network = wire::socket::Network::default();
            rig.state(1, tcp::ESTABLISHED, tcp::CLOSE_WAIT, 0);
            rig.now += 300_000_000;
            let body = r#"{"choices":[{"message":{"content":"a"}}]}"#;
            let head = answer(body);
            if streamed {
                head.bytes().for_each(|b| rig.send(1, [b]));
            } else {
                rig.send(1, &head);
            }
            assert!(rig.finished().is_empty(), "nothing is known yet");
            if acked {
                rig.ack(1, head.len() as u64, 0);
            }
            rig.state(1, 9, tcp::CLOSE, 0);
            assert_eq!(rig.outcomes(), [outcome]);
            let done = rig.finished()[0];
            assert_eq!((done.close_ns.is_none(), done.delivery.is_some()), (acked, acked));
            rig.assert_replays();
        }
    }
}

/// Where acknowledgements are not seen, only a reset tells that the client was gone, and nothing that it was not.
#[test]
fn a_client_that_ended_its_side_where_acknowledgements_are_not_seen() {
    const LAST_ACK: u8 = 9;
    type Ending = fn(&mut Rig);
    let server_closes: Ending = |r| r.state(1, LAST_ACK, tcp::CLOSE, 0);
    let is_reset: Ending = |r| r.state(1, tcp::CLOSE_WAIT, tcp::CLOSE, 0);
    let write_fails: Ending = |r| r.fail(1, DIR_SEND, -32);
    let refused = OK.replace("200", "503");
    for (answer, ending, expected) in [
        (OK, server_closes, Outcome::Unknown),
        (OK, is_reset, Outcome::ClientDisconnect),
        (OK, write_fails, Outcome::ClientDisconnect),
        (&refused, server_closes, Outcome::Server5xx),
    ] {
        let mut rig = Rig::new();
        rig.accept(1);
        rig.recv(1, GET);
        rig.state(1, tcp::ESTABLISHED, tcp::CLOSE_WAIT, 0);
        rig.now += 300_000_000;
        rig.send(1, answer);
        let written = rig.now;
        ending(&mut rig);
        assert_eq!((rig.outcomes(), rig.finished()[0].last_byte_out_ns), (vec![expected], Some(written)));
        rig.assert_replays();
    }
}

/// The end of a process says nothing of the answers of another.
#[test]
fn an_answer_is_held_while_other_processes_end() {
    let mut rig = Rig::new();
    rig.process(PID + 1);
    rig.accept(1);
    rig.network = wire::socket::Network { first_ns: 1, last_ns: 1, first_len: u32::MAX, last_from: 0 };
    rig.recv(1, GET);
    rig.network = wire::socket::Network::default();
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE_WAIT, 0);
    rig.now += 300_000_000;
    rig.send(1, OK);
    rig.exit(PID + 1);
    assert!(rig.finished().is_empty(), "it is still held");
    rig.ack(1, OK.len() as u64, 0);
    assert_eq!(rig.outcomes(), [Outcome::Ok]);
    rig.assert_replays();
}

/// Where the acknowledgement came within the write, it is known at once.
#[test]
fn a_half_closed_client_nearby() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, GET);
    rig.state(1, tcp::ESTABLISHED, tcp::CLOSE_WAIT, 0);
    rig.now += 300_000_000;
    rig.network = wire::socket::Network { last_ns: 7, ..wire::socket::Network::default() };
    rig.send(1, OK);
    assert_eq!(rig.outcomes(), [Outcome::Ok]);
}

/// Of a request whose end two readers see in two places nothing is guessed; the answer is reported, and flagged.
#[test]
fn ambiguous_lengths_are_not_guessed() {
    for lines in [
        "Content-Length: 5\r\nContent-Length: 0\r\n",
        "Transfer-Encoding: x\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\n 0\r\n",
    ] {
        let mut rig = Rig::new();
        rig.accept(1);
        rig.recv(1, GET);
        rig.send(1, OK);
        rig.recv(1, format!("POST /a HTTP/1.1\r\n{lines}\r\nGET /smuggled HTTP/1.1\r\n\r\n"));
        rig.send(1, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let done = rig.finished()[1];
        assert_eq!((done.path.as_deref(), done.status), (None, Some(400)), "{lines}");
        assert_eq!(done.flags, [Flag::Gap]);
        assert_eq!(rig.health.ignored["bad_request"], 1);
        rig.assert_replays();
    }
}

/// Lines that end in a bare line feed, and lines that are folded.
#[test]
fn old_spellings_are_read() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, "POST http://u:p@host:1/a?k=1 HTTP/1.1\nx-request-id: r1\nContent-Length: 2\n\n{}");
    rig.send(1, "HTTP/1.1 200 OK\nContent-Length: 2\n\nok");
    rig.recv(1, "POST /b HTTP/1.1\r\nX-Long: a\r\n\tsecret\r\nContent-Length: 2\r\n\r\n{}");
    rig.send(1, "HTTP/1.1 200 OK\r\nX-Long: a\r\n secret\r\nContent-Length: 2\r\n\r\nok");
    let paths: Vec<_> = rig.finished().iter().map(|e| e.path.clone().unwrap()).collect();
    assert_eq!((paths, rig.outcomes()), (vec!["/a".into(), "/b".into()], vec![Outcome::Ok; 2]));
    assert!(!rig.records.concat().windows(6).any(|w| w == b"secret"));
    rig.assert_replays();
}

/// Compressed bodies: their times and sizes, and nothing of what they may say.
#[test]
fn compressed_bodies_are_timed_and_not_read() {
    for coding in ["gzip", "br", "zstd", "gzip, identity", "x-new"] {
        let mut rig = Rig::new();
        rig.accept(1);
        rig.recv(1, format!("POST /v1/chat/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Encoding: {coding}\r\nContent-Length: 13\r\n\r\n{{\"model\":\"m\"}}"));
        rig.send(1, format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: {coding}\r\nTransfer-Encoding: chunked\r\n\r\n"));
        rig.send(1, super::streams::chunk(&super::streams::token("a")));
        rig.send(1, super::streams::END);
        let done = rig.finished()[0];
        assert_eq!((done.model.as_deref(), done.content_total, done.first_token_ns), (None, 0, None));
        assert_eq!((done.outcome, done.output_tokens), (Some(Outcome::Ok), None), "{coding}");
        assert_eq!((&done.flags[..], done.last_byte_out_ns), (&[Flag::Opaque][..], Some(rig.now)));
        rig.assert_replays();
    }
}

/// The client leaves while it sends its request.
#[test]
fn an_upload_that_breaks_off_is_the_clients() {
    for ending in [0, 1] {
        let mut rig = Rig::new();
        rig.accept(1);
        let text = post("/v1/chat/completions", &" ".repeat(5000));
        rig.recv(1, &text[..3000]);
        if ending == 0 {
            rig.state(1, tcp::ESTABLISHED, tcp::CLOSE, 0);
        } else {
            rig.fail(1, DIR_RECV, 0);
            rig.state(1, tcp::CLOSE_WAIT, tcp::CLOSE, PID);
        }
        assert_eq!(rig.outcomes(), [Outcome::ClientDisconnect]);
        assert!(rig.finished()[0].read_done_ns.is_none() && rig.finished()[0].bytes_in == 3000);
    }
}

/// Nobody works on a request, or hands it on, whose head is not there yet.
#[test]
fn a_request_begins_when_its_head_was_read() {
    let mut rig = Rig::new();
    let begun = |rig: &Rig| rig.out.iter().filter(|news| matches!(news, Tracked::Begun { .. })).count();
    rig.accept(1);
    rig.recv(1, "POST /v1/chat/completions HTTP/1.1\r\nX: ");
    assert_eq!(begun(&rig), 0);
    rig.recv(1, "a\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(begun(&rig), 1);
    rig.recv(1, "12345");
    assert_eq!(begun(&rig), 1);
}
