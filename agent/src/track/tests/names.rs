//! A model's name behind what is not captured: it stays, and is known, only where it is sure to be the body's own.

use wire::socket::DIR_RECV;

use super::{
    framing::post,
    http2::{PREFACE, SETTINGS, field, frame},
    rig::Rig,
};

/// A name that is nobody's to keep.
const SECRET: &str = "s3cret";

/// A body up to its last members, longer than what is captured of a call.
fn long(members: &str) -> Vec<u8> {
    format!(r#"{{"messages":[{{"role":"user","content":"{}"}}],{members}"#, "p".repeat(5000)).into()
}

fn chunk(data: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

/// The model that is known of a request whose body was read so, by HTTP/1.1 in chunks or by HTTP/2. Nothing that was
/// seen may have the secret.
fn model(http2: bool, reads: &[Vec<u8>]) -> Option<String> {
    model_of(http2, b"", reads)
}

/// The same with `more` fields of HTTP/2.
fn model_of(http2: bool, more: &[u8], reads: &[Vec<u8>]) -> Option<String> {
    let mut rig = Rig::new();
    rig.accept(1);
    if http2 {
        rig.recv(1, PREFACE);
        rig.send(1, SETTINGS);
        let head = [&[0x83][..], &field(":path", "/v1/chat/completions"), more].concat();
        rig.recv(1, frame(1, 4, 1, &head));
    } else {
        rig.recv(1, "POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
    }
    for read in reads {
        rig.recv(1, read);
    }
    let answer = if http2 { frame(1, 5, 1, &[0x89]) } else { b"HTTP/1.1 204 N\r\n\r\n".to_vec() };
    rig.send(1, answer);
    let seen = String::from_utf8_lossy(&rig.records.concat()).into_owned();
    assert!(!seen.contains(SECRET), "{}", seen.escape_debug());
    rig.assert_replays();
    rig.finished()[0].model.clone()
}

const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[test]
fn what_closes_at_the_end_of_a_read_is_not_the_body_s() {
    let inside = long(&format!(r#""metadata":{{"model":"{SECRET}"}}"#));
    let rest = br#","stream":true}"#;
    assert_eq!(model(false, &[chunk(&inside), [&chunk(rest)[..], LAST_CHUNK].concat()]), None);
    assert_eq!(model(false, &[[&chunk(&inside)[..], &chunk(rest), LAST_CHUNK].concat()]), None);
    assert_eq!(model(true, &[frame(0, 0, 1, &inside), frame(0, 1, 1, rest)]), None);
    let (begin, end) = (frame(0, 1, 1, &[&inside[..], rest].concat()), rest.len());
    let (begin, end) = begin.split_at(begin.len() - end);
    assert_eq!(model(true, &[begin.to_vec(), end.to_vec()]), None, "in one frame over two reads");
}

#[test]
fn a_name_is_known_where_the_body_is_seen_to_end_with_it() {
    let m = Some("m".to_owned());
    let body = long(r#""model":"m"}"#);
    assert_eq!(model(false, &[[&chunk(&body)[..], LAST_CHUNK].concat()]), m);
    assert_eq!(model(true, &[frame(0, 1, 1, &body)]), m);
    assert_eq!(model(true, &[[frame(0, 0, 1, &body), frame(0, 1, 1, b"")].concat()]), m);
    let padded = [&[3][..], &body, &[0; 3]].concat();
    assert_eq!(model(true, &[frame(0, 9, 1, &padded)]), m);
}

/// It may go on with the next read, so the name could be that of an object inside.
#[test]
fn a_name_is_not_known_where_the_end_comes_later() {
    let body = long(&format!(r#""model":"{SECRET}"}}"#));
    assert_eq!(model(false, &[chunk(&body), LAST_CHUNK.to_vec()]), None);
    assert_eq!(model(true, &[frame(0, 0, 1, &body), frame(0, 1, 1, b"")]), None);
    // An empty frame that ends another stream says nothing.
    assert_eq!(
        model(true, &[[frame(0, 0, 1, &body), frame(0, 1, 3, b"")].concat(), frame(0, 1, 1, b"")]),
        None
    );
}

/// The end of the stream comes in a write of its own with some clients, as with httpx.
#[test]
fn a_body_of_known_length_ends_without_the_stream() {
    let (body, empty) = (long(r#""model":"m"}"#), frame(0, 1, 1, b""));
    let of =
        |len: usize, reads: &[Vec<u8>]| model_of(true, &field("content-length", &len.to_string()), reads);
    assert_eq!(of(body.len(), &[frame(0, 0, 1, &body), empty.clone()]), Some("m".into()));
    let (first, second) = body.split_at(2000);
    let two = [frame(0, 0, 1, first), frame(0, 0, 1, second), empty.clone()];
    assert_eq!(of(body.len(), &two), Some("m".into()));
    let body = long(&format!(r#""metadata":{{"model":"{SECRET}"}}"#));
    let rest = br#","stream":true}"#;
    let reads = [frame(0, 0, 1, &body), frame(0, 0, 1, rest), empty];
    assert_eq!(of(body.len() + rest.len(), &reads), None);
}

/// A request with long members on both sides of the model's name.
fn name_in_the_middle(path: &str) -> String {
    let long = "p".repeat(3000);
    post(path, &format!(r#"{{"messages":[{{"content":"{long}"}}],"model":"m","tools":["{long}"]}}"#))
}

/// Of the first request it is not known; of the next ones long reads are wanted whole, once.
#[test]
fn a_name_in_the_middle_of_a_read_is_known_from_the_second_request_on() {
    let mut rig = Rig::new();
    rig.accept(1);
    for number in 0..3 {
        let request = name_in_the_middle("/v1/chat/completions");
        if number == 0 {
            rig.recv(1, request);
        } else {
            rig.whole(1, DIR_RECV, request.as_bytes(), None);
        }
        rig.send(1, "HTTP/1.1 204 N\r\n\r\n");
        assert_eq!(rig.wanted(), [1]);
    }
    let models: Vec<_> = rig.finished().iter().map(|done| done.model.as_deref()).collect();
    assert_eq!(models, [None, Some("m"), Some("m")]);
}

/// What names no model, or names it elsewhere, is not asked for.
#[test]
fn long_bodies_without_a_name_stay_cut() {
    let long = format!(r#"{{"model":"m","messages":[{{"content":"{}"}}]}}"#, "p".repeat(5000));
    let tail = format!(r#"{{"messages":[{{"content":"{}"}}],"model":"m"}}"#, "p".repeat(5000));
    for request in [
        name_in_the_middle("/predict"),
        name_in_the_middle("/v2/models/m/infer"),
        post("/v1/chat/completions", &long),
        post("/v1/chat/completions", &tail),
        post("/v1/chat/completions", &"p".repeat(5000)),
    ] {
        let mut rig = Rig::new();
        rig.accept(1);
        rig.recv(1, request);
        rig.send(1, "HTTP/1.1 204 N\r\n\r\n");
        assert_eq!(rig.wanted(), [0; 0]);
        assert_eq!(rig.finished().len(), 1);
    }
}
