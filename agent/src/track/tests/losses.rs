//! Bytes that were not captured, records that were lost, and what must never stay in a record.

use expect_test::expect;
use wire::socket::{DIR_RECV, DIR_SEND, HEAD as HEAD_BYTES, TAIL, tcp};

use super::{
    framing::{answer, post},
    rig::{Lcg, PID, Rig},
    streams::{END, HEAD, chunk, finish, request, token},
};
use crate::request::record::{Flag, Outcome};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const SECRET: &str = "hunter2";

fn assert_no_secret(rig: &Rig) {
    for record in &rig.records {
        let found = record.windows(SECRET.len()).any(|w| w == SECRET.as_bytes());
        assert!(!found, "{}", String::from_utf8_lossy(record));
    }
}

#[test]
fn a_long_prompt_with_the_model_at_its_end() {
    let prompt = format!("{SECRET} \\\"model\\\":\\\"no\\\" ").repeat(4000);
    let body =
        format!(r#"{{"messages":[{{"role":"user","content":"{prompt}"}}],"model":"m-9","stream":true}}"#);
    let text = post("/v1/chat/completions", &body);
    assert!(text.len() > 100_000);
    for size in [text.len(), 65_536, 4096] {
        let mut rig = Rig::new();
        rig.accept(1);
        text.as_bytes().chunks(size).for_each(|bytes| rig.recv(1, bytes));
        rig.send(1, "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n");
        let done = rig.finished()[0];
        assert_eq!((done.model.as_deref(), done.streaming), (Some("m-9"), Some(true)), "reads of {size}");
        assert_eq!((done.bytes_in, done.flags.len()), (text.len() as u64, 0));
        assert_no_secret(&rig);
        rig.assert_replays();
    }
}

#[test]
fn a_long_answer_keeps_its_usage() {
    let text = SECRET.repeat(2000);
    let body = format!(
        r#"{{"choices":[{{"message":{{"content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":1,"completion_tokens":2}}}}"#
    );
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, post("/v1/chat/completions", "{}"));
    rig.send(1, answer(&body));
    let done = rig.finished()[0];
    assert_eq!((done.outcome, done.output_tokens), (Some(Outcome::Ok), Some(2)));
    assert_no_secret(&rig);
    rig.assert_replays();
}

#[test]
fn a_lost_record_inside_a_body_of_known_length() {
    let text = post("/v1/chat/completions", &format!(r#"{{"a":"{}","model":"m"}}"#, "b".repeat(300)));
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, &text[..200]);
    rig.lose(1, DIR_RECV, 100);
    rig.recv(1, &text[300..]);
    rig.send(1, &OK[..OK.len() - 1]);
    rig.lose(1, DIR_SEND, 1);
    rig.recv(1, "GET /x HTTP/1.1\r\n\r\n");
    rig.send(1, OK);
    expect![[r"
        read 0 service 0 at 4 by 11
        read 1 service 0 at 6 by 11
        done 0 POST /v1/chat/completions openai.chat status 200 Ok in 3..4 (438 B) out 5..- (40 B) model m request_id r1 flags [Gap]
        done 1 GET /x http status 200 Ok in 6..6 (19 B) out 7..7 (40 B)
        ignored socket_bytes_missing 2
    "]].assert_eq(&rig.print());
    rig.assert_replays();
}

#[test]
fn a_lost_record_inside_a_chunked_stream() {
    let mut rig = Rig::new();
    request(&mut rig);
    rig.send(1, HEAD);
    rig.send(1, chunk(&token("a")));
    rig.lose(1, DIR_SEND, chunk(&token("b")).len());
    rig.send(1, chunk(&token("c")));
    rig.send(1, chunk(&finish()));
    rig.send(1, END);
    rig.recv(1, "GET /x HTTP/1.1\r\n\r\n");
    rig.send(1, OK);
    expect![[r"
        read 0 service 0 at 3 by 11
        content 0 at 5 by 11
        content 0 at 6 by 11
        done 0 POST /v1/chat/completions openai.chat status 200 Unknown in 3..3 (158 B) out 4..- (398 B) model m streaming true first_token 5 content 2 request_id r1 flags [Gap]
        read 1 service 0 at 9 by 11
        done 1 GET /x http status 200 Ok in 9..9 (19 B) out 10..10 (40 B)
        ignored socket_bytes_missing 1
    "]].assert_eq(&rig.print());
    rig.assert_replays();
}

/// Seen when the agent was stopped for five seconds: the ring was full, and on a connection that is kept alive the
/// answer that went on was another one's.
#[test]
fn an_answer_does_not_go_on_with_the_next_ones_end() {
    let mut rig = Rig::new();
    request(&mut rig);
    rig.send(1, HEAD);
    rig.send(1, chunk(&token("a")));
    let lost = chunk(&token("b")) + &chunk(&finish()) + END + HEAD + &chunk(&token("c"));
    rig.lose(1, DIR_RECV, 158);
    rig.lose(1, DIR_SEND, lost.len());
    rig.send(1, chunk(&token("d")));
    rig.send(1, chunk(&finish()));
    rig.send(1, END);
    let done = rig.finished()[0];
    assert_eq!((done.first_token_ns.is_some(), done.last_byte_out_ns), (true, None));
    assert_eq!((done.outcome, done.content.len()), (Some(Outcome::Unknown), 1));
    rig.assert_replays();
}

#[test]
fn a_stream_whose_framing_is_not_found_again_ends_at_the_next_message() {
    let mut rig = Rig::new();
    request(&mut rig);
    rig.send(1, HEAD);
    let event = chunk(&token("a"));
    rig.send(1, &event[..event.len() - 20]);
    rig.lose(1, DIR_SEND, 25);
    rig.send(1, format!("in the middle of {SECRET}"));
    rig.recv(1, "GET /x HTTP/1.1\r\n\r\n");
    rig.send(1, OK);
    expect![[r"
        read 0 service 0 at 3 by 11
        done 0 POST /v1/chat/completions openai.chat status 200 Unknown in 3..3 (158 B) out 4..- (199 B) model m streaming true request_id r1 flags [Gap]
        read 1 service 0 at 7 by 11
        done 1 GET /x http status 200 Ok in 7..7 (19 B) out 8..8 (40 B)
        ignored socket_bytes_missing 1
    "]].assert_eq(&rig.print());
    assert_no_secret(&rig);
    rig.assert_replays();
}

#[test]
fn a_write_of_many_chunks_with_its_middle_missing_ends_with_the_last_chunk() {
    let mut rig = Rig::new();
    request(&mut rig);
    let stream = HEAD.to_owned() + &chunk(&token(SECRET)).repeat(50) + &chunk(&finish()) + END;
    rig.send(1, stream);
    assert_eq!(rig.finished().len(), 1);
    assert_eq!(rig.finished()[0].flags, [Flag::Gap]);
    rig.recv(1, "GET /x HTTP/1.1\r\n\r\n");
    rig.send(1, OK);
    assert_eq!(rig.finished()[1].flags, []);
    assert_no_secret(&rig);
    rig.assert_replays();
}

#[test]
fn a_lost_request_and_a_lost_response() {
    let get = "GET /x HTTP/1.1\r\n\r\n";
    let mut rig = Rig::new();
    rig.accept(1);
    rig.lose(1, DIR_RECV, get.len());
    rig.send(1, OK);
    rig.recv(1, get);
    rig.lose(1, DIR_SEND, OK.len());
    rig.recv(1, get);
    rig.send(1, OK);
    rig.recv(1, get);
    rig.send(1, OK);
    expect![[r"
        done 0 - - - status 200 Ok in -..- (0 B) out 3..3 (40 B) flags [Gap]
        read 1 service 0 at 4 by 11
        read 2 service 0 at 5 by 11
        done 1 GET /x http status - Unknown in 4..4 (19 B) out -..- (40 B) flags [Gap]
        done 2 GET /x http status 200 Ok in 5..5 (19 B) out 6..6 (40 B)
        read 3 service 0 at 7 by 11
        done 3 GET /x http status 200 Ok in 7..7 (19 B) out 8..8 (40 B)
        ignored socket_bytes_missing 2
    "]]
    .assert_eq(&rig.print());
    rig.assert_replays();
}

#[test]
fn a_head_longer_than_what_is_captured() {
    let body = format!(r#"{{"model":"m","x":"{}"}}"#, "y".repeat(1000));
    let text = post("/v1/completions", &body)
        .replace("Host: a", &format!("Host: a\r\nCookie: {}", SECRET.repeat(200)));
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, &text);
    rig.send(1, OK);
    rig.recv(1, "GET /x HTTP/1.1\r\n\r\n");
    rig.send(1, OK);
    expect![[r"
        WantWhole(SockId { sock: 1, birth_ns: 500 })
        read 0 service 0 at 3 by 11
        done 0 POST /v1/completions openai.completions status 200 Ok in 3..3 (2544 B) out 4..4 (40 B) flags [Gap]
        read 1 service 0 at 5 by 11
        done 1 GET /x http status 200 Ok in 5..5 (19 B) out 6..6 (40 B)
    "]].assert_eq(&rig.print());
    assert_no_secret(&rig);
    rig.assert_replays();
}

#[test]
fn a_record_from_behind_breaks_nothing() {
    let mut rig = Rig::new();
    request(&mut rig);
    rig.send(1, HEAD);
    let (a, b) = (chunk(&token("a")), chunk(&token("b")));
    // The record of `b` comes before that of `a`.
    rig.lose(1, DIR_SEND, a.len());
    rig.send(1, &b);
    let late = rig.records.len();
    rig.rewind(1, DIR_SEND, a.len() + b.len());
    rig.send(1, &a);
    rig.lose(1, DIR_SEND, b.len());
    rig.send(1, chunk(&finish()) + END);
    assert_eq!(rig.outcomes(), [Outcome::Ok]);
    assert_eq!(rig.finished()[0].flags, [Flag::Gap]);
    assert_eq!(rig.health.ignored["socket_data_late"], 1);
    assert!(rig.records[late].ends_with(&[b'x'; 60]));
    rig.assert_replays();
}

#[test]
fn calls_without_payload() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, "GET /file HTTP/1.1\r\n\r\n");
    rig.send(1, "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n");
    rig.call(1, DIR_SEND, &[0; 5000], (0, 0), 0);
    assert_eq!((rig.outcomes(), rig.finished()[0].bytes_out), (vec![Outcome::Ok], 5041));
}

#[test]
fn an_answer_without_payload_is_not_called_empty() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, post("/v1/chat/completions", "{}"));
    rig.send(1, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n");
    rig.call(1, DIR_SEND, &[0; 5000], (0, 0), 0);
    assert_eq!(rig.outcomes(), [Outcome::Ok]);
    assert_eq!(rig.finished()[0].flags, [Flag::Gap]);
}

#[test]
fn secrets_do_not_stay() {
    let body = format!(
        r#"{{"model":"m","{SECRET}":"{SECRET}","messages":[{{"content":"a\"{SECRET}"}}],"n":[{SECRET}]}}"#
    );
    let head = format!(
        "POST /v1/chat/completions?key={SECRET} HTTP/1.1\r\nAuthorization: Bearer {SECRET}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let stream = HEAD.replace("\r\n\r\n", &format!("\r\nSet-Cookie: {SECRET}\r\n\r\n"))
        + &chunk(&token(SECRET))
        + &chunk(&format!(": {SECRET}\nevent: {SECRET}\ndata: {SECRET}\n\n"))
        + &chunk(&format!("data: {{\"error\":{{\"message\":\"{SECRET}\"}}}}\n\n"))
        + &format!("3;{SECRET}\r\nabc\r\n0\r\nTrailer: {SECRET}\r\n\r\n");
    let request = head + &body;
    for at in 1..request.len().max(stream.len()) {
        let mut rig = Rig::new();
        rig.accept(1);
        let split = at.min(request.len());
        rig.recv(1, &request[..split]);
        rig.recv(1, &request[split..]);
        let split = at.min(stream.len());
        rig.send(1, &stream[..split]);
        rig.send(1, &stream[split..]);
        rig.send(1, format!("garbage {SECRET}"));
        rig.recv(1, format!("{SECRET} garbage"));
        assert_eq!(rig.outcomes(), [Outcome::InBandError], "split at {at}");
        assert_no_secret(&rig);
        let joined: Vec<u8> = rig.records.concat().into_iter().filter(u8::is_ascii_graphic).collect();
        assert!(!joined.windows(SECRET.len()).any(|w| w == SECRET.as_bytes()));
        rig.assert_replays();
    }
}

#[test]
fn any_bytes_in_any_order_do_no_harm() {
    const PARTS: &[&str] = &[
        "GET / HTTP/1.1\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\n",
        "Content-Length: 9\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "5\r\nhello\r\n",
        "0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n",
        "Content-Type: text/event-stream\r\n",
        "data: {\"choices\":[{\"text\":\"a\"}]}\n\n",
        "data: [DONE]\n\n",
        "{\"model\":\"m\"",
        "\"",
        "\\",
        "}",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "\u{0}\u{16}é",
        "ffffffffffff\r\n",
    ];
    let mut lcg = Lcg::new(99);
    let mut rig = Rig::new();
    for round in 0..100_000_u64 {
        let sock = round % 50;
        match lcg.below(40) {
            0 => rig.open(sock, u8::try_from(lcg.below(4)).unwrap(), u8::try_from(lcg.below(2)).unwrap()),
            1 => rig.state(sock, tcp::ESTABLISHED, [4, 7, 8][lcg.below(3)], [0, PID][lcg.below(2)]),
            2 => rig.lose(sock, u8::from(lcg.below(2) == 0), lcg.below(100)),
            3 => rig.fail(sock, u8::from(lcg.below(2) == 0), [0, -11, -32, -104, -5][lcg.below(5)]),
            _ => {
                let mut bytes = Vec::new();
                for _ in 0..=lcg.below(4) {
                    bytes.extend_from_slice(PARTS[lcg.below(PARTS.len())].as_bytes());
                }
                if lcg.below(4) == 0 {
                    bytes[0] = lcg.next().to_le_bytes()[0];
                }
                let (len, dir) = (bytes.len(), u8::from(lcg.below(2) == 0));
                let head = if lcg.below(5) == 0 { lcg.below(len + 1) } else { len };
                rig.call(sock, dir, &bytes, (head, (len - head).min(lcg.below(TAIL))), len + lcg.below(2));
            }
        }
        assert!(rig.tracker.connections() <= 50);
    }
    assert!(HEAD_BYTES > 0 && rig.finished().len() > 1000, "{}", rig.finished().len());
    rig.assert_replays();
}

#[test]
fn a_byte_that_breaks_a_request_line_breaks_it_again() {
    for text in [
        "GET /a\r\nHost: b\r\n\r\n",
        "GET /a?b\u{1}c HTTP/1.1\r\n\r\n",
        "GET \u{f}a HTTP/1.1\r\n\r\n",
        "GET ht\u{1} HTTP/1.1\r\n\r\n",
    ] {
        let mut rig = Rig::new();
        rig.accept(1);
        rig.recv(1, text);
        assert_eq!(rig.health.ignored["bad_request"], 1);
        rig.assert_replays();
    }
}

#[test]
fn what_no_call_told_of_is_a_gap_of_known_length() {
    let text = post("/v1/chat/completions", &format!(r#"{{"a":"{}"}}"#, "b".repeat(300)));
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, &text[..200]);
    rig.unseen(1, DIR_RECV, text.len() - 200);
    rig.send(1, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n");
    rig.unseen(1, DIR_SEND, 500);
    rig.recv(1, "GET /x HTTP/1.1\r\n\r\n");
    rig.send(1, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    rig.unseen(1, DIR_SEND, 500);
    rig.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID);
    let [one, other] = rig.finished()[..] else { panic!("{}", rig.print()) };
    assert_eq!((one.bytes_in, one.bytes_out, one.status), (text.len() as u64, 40 + 500, Some(200)));
    assert_eq!(
        (one.outcome, one.last_byte_out_ns, &one.flags[..]),
        (Some(Outcome::Ok), None, &[Flag::Gap][..])
    );
    assert_eq!((other.bytes_in, other.bytes_out), (19, 47 + 500), "{}", rig.print());
    assert_eq!(&other.flags[..], &[Flag::Gap][..]);
    rig.assert_replays();
}
