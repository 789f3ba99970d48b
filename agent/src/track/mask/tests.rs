//! What stays of heads.

use super::*;

fn mask_head(mut mask: HeadMask, text: &str) -> (String, HeadStep) {
    let mut bytes = text.as_bytes().to_vec();
    let mut last = HeadStep::More;
    for b in &mut bytes {
        last = mask.step(b);
        if last != HeadStep::More {
            break;
        }
    }
    (String::from_utf8(bytes).unwrap(), last)
}

#[test]
fn heads_keep_what_framing_needs_and_nothing_else() {
    let request = "POST /v1/chat?key=s3cret&b HTTP/1.1\r\nHost: a:80\r\nAuthorization: Bearer s-3\r\n\
                   CONTENT-length: 12\r\nx-request-id: r1\r\nCookie: a=b\r\n folded: yes\r\nX-Content-Length: 9\r\ns3cret\r\n\r\n";
    let masked = "POST /v1/chat?xxxxxxxxxxxx HTTP/1.1\r\nxxxx: xxxx\r\nxxxxxxxxxxxxx: xxxxxx xxx\r\n\
                  CONTENT-length: 12\r\nx-request-id: r1\r\nCoxxxx: xxx\r\n xxxxxxx xxx\r\nX-xxxxxxx-xxxxxx: x\r\nxxxxxx\r\n\r\n";
    assert_eq!(mask_head(HeadMask::request(), request), (masked.into(), HeadStep::End));
    assert_eq!(mask_head(HeadMask::request(), masked), (masked.into(), HeadStep::End));

    let absolute = "GET http://me:s3cret@host:80/v1/a?b HTTP/1.1\r\n\r\n";
    let masked = "GET hxxx://xx:xxxxxx@xxxx:xx/v1/a?x HTTP/1.1\r\n\r\n";
    assert_eq!(mask_head(HeadMask::request(), absolute), (masked.into(), HeadStep::End));
    assert_eq!(mask_head(HeadMask::request(), masked), (masked.into(), HeadStep::End));

    let response = "HTTP/1.1 200 No s3cret\nSet-Cookie: id=\u{e9}\nContent-Type: text/plain\n\n";
    let masked = "HTTP/1.1 200 xx xxxxxx\nxxx-xxxxxx: xxxxx\nContent-Type: text/xxxxx\n\n";
    assert_eq!(mask_head(HeadMask::response(), response), (masked.into(), HeadStep::End));
    assert_eq!(mask_head(HeadMask::response(), masked), (masked.into(), HeadStep::End));
}

/// Long runs of bytes go at once: in whatever pieces they come, the same stays as byte by byte.
#[test]
fn runs_of_bytes_are_masked_like_single_ones() {
    let request = "POST /v1/a%20b?key=s3cret?&b HTTP/1.1\r\nHost: a:80\r\nX-Long-s3cret: some\t \u{e9}text \r\n\
                   x-request-id: r 1\r\nContent-Type: text/event-stream; s3cret\r\n folded: yes\r\nno colon \r\n\r\nrest";
    let response = "HTTP/1.1 200 No s3cret\r\nSet-Cookie: id=\u{e9}\r\ncontent-length:12\n\n";
    for (mask, text) in [(HeadMask::request(), request), (HeadMask::response(), response)] {
        let (masked, end) = mask_head(mask, text);
        for size in 1..=text.len() {
            let mut bytes = text.as_bytes().to_vec();
            let (mut mask, mut last) = (mask, HeadStep::More);
            for piece in bytes.chunks_mut(size) {
                let mut at = 0;
                while last == HeadStep::More {
                    at += mask.run(&mut piece[at..]);
                    let Some(b) = piece.get_mut(at) else { break };
                    last = mask.step(b);
                    at += 1;
                }
            }
            assert_eq!((String::from_utf8(bytes).unwrap(), last), (masked.clone(), end), "{size}");
        }
    }
}

#[test]
fn of_a_content_type_only_known_words_stay() {
    for (value, masked) in [
        ("text/event-stream; charset=s3cret", "text/event-stream; xxxxxxxxxxxxxx"),
        ("Text/Event-Stream ;a", "Text/Event-Stream ;x"),
        ("application/json", "application/json"),
        ("application/jsonl", "application/jsonl"),
        ("application/json-s3cret", "application/jsonxxxxxxx"),
        ("application/x-ndjson+s3cret", "application/x-ndjsonxxxxxxx"),
        ("application/s3cret; a", "application/xxxxxxx x"),
        ("multipart/form-data; boundary=s3cret", "xxxxxxxxxxxxxxxxxxxx xxxxxxxxxxxxxxx"),
        ("text/event-stream s3cret", "text/event-stream xxxxxx"),
    ] {
        let head = |value: &str| format!("HTTP/1.1 200 OK\r\nContent-Type: {value}\r\n\r\n");
        for text in [value, masked] {
            assert_eq!(
                mask_head(HeadMask::response(), &head(text).replace("OK", "xx")).0,
                head(masked).replace("OK", "xx")
            );
        }
    }
    let head = "HTTP/1.1 200 xx\r\ncontent-encoding: s3cret\r\n\r\n";
    assert_eq!(mask_head(HeadMask::response(), head).0, head.replace("s3cret", "xxxxxx"));
}

#[test]
fn what_is_no_head_is_bad_at_the_first_byte_that_shows_it() {
    for text in [
        "get / HTTP/1.1\r\n",
        "GETT / HTTP/1.1\r\n",
        "PRI * HTTP/2.0\r\n",
        "GET /\r\n",
        "GET / HTTP/1.1x\r\n",
        "GET / HTTP/2.0\r\n",
        "GET / HTTP/1.1\r\n\rx",
    ] {
        assert_eq!(mask_head(HeadMask::request(), text).1, HeadStep::Bad, "{text}");
    }
    for text in ["HTTP/1.1 2x", "HTTP/2 200", "HTTP/1.1  200", "xx"] {
        assert_eq!(mask_head(HeadMask::response(), text).1, HeadStep::Bad, "{text}");
    }
}

#[test]
fn tables_are_sorted() {
    assert!(METHODS.is_sorted());
    assert!(KEPT_HEADERS.is_sorted() && CONTENT_TYPES.is_sorted());
}

#[test]
fn a_call_that_begins_with_a_message_is_told() {
    assert_eq!(begins_request(b"POST /v1 HT"), Some(6));
    assert_eq!(begins_request(b"OPTIONS * HTTP/1.1"), Some(9));
    assert_eq!(begins_request(b"POST"), None);
    assert_eq!(begins_request(b"xxxx /"), None);
    assert_eq!(begins_response(b"HTTP/1.0 404"), Some(12));
    assert_eq!(begins_response(b"HTTP/1.1 4"), None);
    assert_eq!(begins_response(b"HTTP/1.1 xxx"), None);
}
