use std::io;

use super::inbound::MAX_HEAD;
use super::*;
use crate::clock::Stamp;

const POST: &str =
    "POST /v1/completions?x=1 HTTP/1.1\r\nHost: h\r\nX-Request-Id: r7\r\nContent-Length: 4\r\n\r\nabcd";

fn request(inbound: &mut Inbound) -> Request {
    match inbound.next().unwrap() {
        Parsed::Request(request) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_carries_the_stamps_of_its_first_and_last_read() {
    for cut in 1..POST.len() {
        let mut inbound = Inbound::default();
        inbound.push(&POST.as_bytes()[..cut], Stamp(1, 2));
        assert_eq!(inbound.next().unwrap(), Parsed::Incomplete, "cut at {cut}");
        inbound.push(&POST.as_bytes()[cut..], Stamp(3, 4));
        let request = request(&mut inbound);
        assert_eq!((request.first_read, request.last_read), (Stamp(1, 2), Stamp(3, 4)));
        assert_eq!((request.path.as_str(), request.body.as_slice()), ("/v1/completions", b"abcd".as_slice()));
        assert_eq!(request.client_id.as_deref(), Some("r7"));
        assert!(inbound.is_empty() && request.keep_alive);
    }
}

#[test]
fn pipelined_requests_come_one_by_one_with_their_own_stamps() {
    let mut inbound = Inbound::default();
    inbound.push(format!("{POST}{}", &POST[..10]).as_bytes(), Stamp(1, 2));
    assert_eq!(request(&mut inbound).last_read, Stamp(1, 2));
    assert_eq!(inbound.next().unwrap(), Parsed::Incomplete);
    assert_eq!(inbound.pending_stamps(), Some((Stamp(1, 2), Stamp(1, 2))));
    inbound.push(format!("{}{POST}", &POST[10..]).as_bytes(), Stamp(3, 4));
    let second = request(&mut inbound);
    assert_eq!((second.first_read, second.last_read), (Stamp(1, 2), Stamp(3, 4)));
    let third = request(&mut inbound);
    assert_eq!((third.first_read, third.last_read), (Stamp(3, 4), Stamp(3, 4)));
    assert_eq!(inbound.pending_stamps(), None);
}

#[test]
fn continue_is_asked_for_once() {
    let mut inbound = Inbound::default();
    inbound.push(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", Stamp(1, 2));
    assert_eq!(inbound.next().unwrap(), Parsed::SendContinue);
    assert_eq!(inbound.next().unwrap(), Parsed::Incomplete);
    inbound.push(b"ab", Stamp(3, 4));
    assert_eq!(request(&mut inbound).body, b"ab");
}

#[test]
fn keep_alive_follows_version_and_header() {
    let cases = [
        ("GET / HTTP/1.1\r\n\r\n", true, true),
        ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", true, false),
        ("GET / HTTP/1.0\r\n\r\n", false, false),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", false, true),
    ];
    for (text, http11, keep_alive) in cases {
        let mut inbound = Inbound::default();
        inbound.push(text.as_bytes(), Stamp(1, 2));
        let request = request(&mut inbound);
        assert_eq!((request.http11, request.keep_alive), (http11, keep_alive), "{text:?}");
    }
}

#[test]
fn bad_streams_have_a_status() {
    let long = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(MAX_HEAD));
    let cases = [
        ("\x16\x03\x01garbage\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (long.as_str(), 431),
    ];
    for (text, status) in cases {
        let mut inbound = Inbound::default();
        inbound.push(text.as_bytes(), Stamp(1, 2));
        assert_eq!(inbound.next().unwrap_err().status(), status, "{:?}", &text[..16]);
    }
}

#[test]
fn framing_follows_the_kind() {
    assert_eq!(body_piece(Framing::Chunked, "data: 0123456789\n\n"), b"12\r\ndata: 0123456789\n\n\r\n");
    assert_eq!(body_piece(Framing::Close, "data: x\n\n"), b"data: x\n\n");
    let text = |framing, keep| String::from_utf8(head(200, "a/b", framing, keep)).unwrap();
    assert!(text(Framing::Length(7), true).contains("content-length: 7\r\n"));
    assert!(!text(Framing::Chunked, true).contains("connection: close"));
    assert!(text(Framing::Chunked, false).contains("connection: close\r\n"));
    assert!(text(Framing::Close, true).contains("connection: close\r\n"));
}

#[test]
fn a_full_socket_keeps_the_rest_and_counts_the_wait() {
    let mut outbound = Outbound::default();
    outbound.push(b"head".to_vec(), Mark::Other);
    outbound.push(b"token".to_vec(), Mark::Content(1));
    let (mut room, mut sent, mut done) = (6, Vec::new(), Vec::new());
    let mut send = |bytes: &[u8], room: &mut usize| {
        let count = bytes.len().min(*room);
        *room -= count;
        sent.extend_from_slice(&bytes[..count]);
        if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
    };
    outbound.flush(|bytes| send(bytes, &mut room), &mut done).unwrap();
    assert_eq!(done.iter().map(|item| item.mark).collect::<Vec<_>>(), [Mark::Other]);
    assert!(!outbound.is_empty());
    room = 100;
    outbound.flush(|bytes| send(bytes, &mut room), &mut done).unwrap();
    assert_eq!(done[1].mark, Mark::Content(1));
    assert!(done[0].stamp.1 <= done[1].stamp.0 && done[1].stamp.0 < done[1].stamp.1);
    assert!(outbound.is_empty() && outbound.take_blocked() > 0);
    assert_eq!(outbound.take_blocked(), 0);
    assert_eq!(sent, b"headtoken");
}

#[test]
fn a_broken_socket_is_an_error() {
    let mut outbound = Outbound::default();
    outbound.push(b"x".to_vec(), Mark::Last);
    let result = outbound.flush(|_| Err(io::ErrorKind::BrokenPipe.into()), &mut Vec::new());
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}
