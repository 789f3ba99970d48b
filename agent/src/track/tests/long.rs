//! Events that are longer than what is captured of a call.

use wire::socket::{DIR_SEND, HEAD as HEAD_BYTES, TAIL, tcp};

use super::{
    framing::post,
    rig::{PID, Rig},
    streams::{END, HEAD, chunk, finish, request, token},
};
use crate::{
    request::record::{Flag, Outcome},
    track::Exchange,
};

const DONE: &str = "data: [DONE]\n\n";

/// A token with what else could have come in its place.
fn with_logprobs(text: &str, bytes: usize) -> String {
    let others = r#"{"token":"x","logprob":-1.5},"#.repeat(bytes / 29);
    format!(
        r#"data: {{"model":"m","choices":[{{"index":0,"delta":{{"content":"{text}"}},"logprobs":{{"content":[{others}1]}}}}]}}"#
    ) + "\n\n"
}

/// The same with the text at its end.
fn text_last(text: &str, bytes: usize) -> String {
    let others = "1,".repeat(bytes / 2);
    format!(r#"data: {{"choices":[{{"logprobs":[{others}1],"index":0,"delta":{{"content":"{text}"}}}}]}}"#)
        + "\n\n"
}

/// The first token's write, counted from that of the head.
fn first_write(done: &Exchange) -> Option<u64> {
    done.first_token_ns.map(|token| (token - done.first_byte_out_ns.unwrap()) / 1000)
}

/// What is left out of one call is asked for in the next.
#[test]
fn a_stream_of_long_events_has_its_first_token() {
    let mut rig = Rig::new();
    request(&mut rig);
    rig.send(1, HEAD);
    rig.send(1, chunk(&token("")));
    rig.send(1, chunk(&with_logprobs("a", 3000)));
    assert_eq!(rig.wanted(), [1], "long calls are asked for, once");
    for text in ["b", "c"] {
        rig.whole(1, DIR_SEND, chunk(&with_logprobs(text, 3000)).as_bytes(), None);
    }
    rig.send(1, chunk(&finish()) + &chunk(DONE) + END);
    let done = rig.finished()[0];
    assert_eq!((first_write(done), done.content_total), (Some(2), 3));
    assert_eq!((done.outcome, done.flags.as_slice()), (Some(Outcome::Ok), &[Flag::Gap][..]));
    assert_eq!(
        (done.content_missed, done.end_missed),
        (true, false),
        "what was left out may have held an event"
    );
    assert_eq!(rig.wanted(), [1]);
    rig.assert_replays();
}

#[test]
fn a_first_token_is_known_where_nothing_before_it_can_be_missing() {
    let long = |text: &str| with_logprobs(text, 3000);
    for (name, writes, expected) in [
        ("its text comes first", vec![chunk(&long("a"))], Some(1)),
        ("behind a role", vec![chunk(&(token("") + &long("a")))], Some(1)),
        ("behind a token", vec![chunk(&(token("a") + &long("b")))], Some(1)),
        ("its text comes last", vec![chunk(&text_last("a", 3000))], None),
        ("what is left out may hold a token", vec![chunk(&(token("") + &long("")))], None),
        ("a token before", vec![chunk(&token("a")), chunk(&text_last("b", 3000))], Some(1)),
        // Where in the two calls the event ended is not known.
        (
            "over two calls",
            [long("a").as_bytes()]
                .iter()
                .flat_map(|event| {
                    let all = chunk(std::str::from_utf8(event).unwrap());
                    let (a, b) = all.split_at(2500);
                    [a.to_owned(), b.to_owned()]
                })
                .collect(),
            None,
        ),
    ] {
        let mut rig = Rig::new();
        request(&mut rig);
        rig.send(1, HEAD);
        for bytes in writes {
            rig.send(1, bytes);
        }
        rig.send(1, chunk(&token("z")) + &chunk(&finish()) + &chunk(DONE) + END);
        let done = rig.finished()[0];
        assert_eq!(first_write(done), expected, "{name}");
        assert_eq!((done.outcome, rig.wanted()), (Some(Outcome::Ok), vec![1]), "{name}");
        rig.assert_replays();
    }
}

/// Without framing of its own, a stream that ends with the connection.
#[test]
fn long_events_until_the_close() {
    let mut rig = Rig::new();
    request(&mut rig);
    rig.send(1, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
    rig.send(1, with_logprobs("a", 3000));
    rig.whole(1, DIR_SEND, with_logprobs("b", 3000).as_bytes(), None);
    rig.send(1, DONE);
    rig.state(1, tcp::ESTABLISHED, tcp::FIN_WAIT1, PID);
    let done = rig.finished()[0];
    assert_eq!((first_write(done), done.content_total, rig.wanted()), (Some(1), 2, vec![1]));
    rig.assert_replays();
}

/// Records that are lost may have held anything.
#[test]
fn a_lost_record_before_the_first_token_spoils_it() {
    let mut rig = Rig::new();
    request(&mut rig);
    rig.send(1, HEAD);
    let event = chunk(&token("a"));
    rig.send(1, &event[..event.len() - 20]);
    rig.lose(1, DIR_SEND, 5);
    rig.send(1, &event[event.len() - 15..]);
    rig.send(1, chunk(&token("b")) + &chunk(DONE) + END);
    assert_eq!(rig.finished()[0].first_token_ns, None);
    rig.assert_replays();
}

fn so_far(tokens: usize) -> String {
    format!(
        "data: {{\"text\":\"{}\",\"meta_info\":{{\"prompt_tokens\":4,\"completion_tokens\":{tokens}}}}}\n\n",
        "lorem ipsum ".repeat(tokens * 10)
    )
}

/// An engine whose events repeat the text so far, up to 20 KB.
#[test]
fn cumulative_text_that_outgrows_what_is_captured() {
    const TOKENS: usize = 170;
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, post("/generate", r#"{"text":"a","sampling_params":{"max_new_tokens":170},"stream":true}"#));
    rig.send(1, HEAD);
    let mut missed = 0;
    for tokens in 1..=TOKENS {
        let event = chunk(&so_far(tokens));
        if rig.wanted().is_empty() {
            missed += u64::from(event.len() > HEAD_BYTES + TAIL);
            rig.send(1, &event);
        } else {
            rig.whole(1, DIR_SEND, event.as_bytes(), None);
        }
    }
    let last = rig.now;
    rig.send(1, chunk(DONE) + END);
    let done = rig.finished()[0];
    assert_eq!((missed, done.content_total), (1, TOKENS as u64 - 1));
    assert_eq!(done.content.last().unwrap().time_ns, last);
    assert_eq!((first_write(done), done.output_tokens), (Some(1), Some(TOKENS as u64)));
    assert_eq!((done.content_missed, done.end_missed), (true, false));
    rig.assert_replays();
}

/// Where nobody captures more (a recording), neither the count nor the end is known.
#[test]
fn cumulative_text_whose_end_is_never_seen() {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, post("/generate", r#"{"text":"a","sampling_params":{},"stream":true}"#));
    rig.send(1, HEAD);
    for tokens in 1..=30 {
        rig.send(1, chunk(&so_far(tokens)));
    }
    rig.send(1, chunk(DONE) + END);
    let done = rig.finished()[0];
    assert_eq!((done.content_missed, done.end_missed, done.output_tokens), (true, true, Some(30)));
    assert!(done.content_total < 30 && done.first_token_ns.is_some());
    rig.assert_replays();
}
