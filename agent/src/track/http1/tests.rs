use super::*;
use crate::track::tests::Lcg;

/// Feeds pieces of bytes; what was said, bodies joined.
fn pieces(direction: &mut Direction, input: &[&[u8]], framing: Option<Framing>) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for bytes in input {
        let mut bytes = bytes.to_vec();
        let mut rest = &mut bytes[..];
        while let Some(piece) = direction.next(&mut rest) {
            match piece {
                Piece::Head => {
                    said.push("head".into());
                    direction.body(framing);
                }
                Piece::Body(body, _) => {
                    let text = String::from_utf8_lossy(body).into_owned();
                    match said.last_mut() {
                        Some(last) if last.starts_with('=') => last.push_str(&text),
                        _ => said.push(format!("={text}")),
                    }
                }
                Piece::Begin => said.push("begin".into()),
                Piece::End => said.push("end".into()),
                Piece::Garbage => said.push("garbage".into()),
                Piece::Frame => {}
            }
        }
    }
    said
}

const HEAD: &str = "POST / HTTP/1.1\r\n\r\n";

#[test]
fn chunked_bodies_split_anywhere() {
    let text =
        format!("{HEAD}5;ext=\"a\"\r\nhello\r\n00A\r\n, world.\r\n\r\n0\r\nTrailer: secret\r\n\r\n{HEAD}");
    let bytes = text.as_bytes();
    let expected = ["begin", "head", "=hello, world.\r\n", "end", "begin", "head"];
    for at in 0..=bytes.len() {
        let (a, b) = bytes.split_at(at);
        let mut direction = Direction::new(Side::Request, false);
        assert_eq!(pieces(&mut direction, &[a, b], Some(Framing::Chunked)), expected, "split at {at}");
    }
    let mut direction = Direction::new(Side::Request, false);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(pieces(&mut direction, &single, Some(Framing::Chunked)), expected);
}

#[test]
fn broken_chunk_lines_lose_framing() {
    for body in ["\r\n", "g\r\n", "1234567890abc\r\n", "1\r\nab\r\n", "1\r\na0"] {
        let text = format!("{HEAD}{body}");
        let mut direction = Direction::new(Side::Request, false);
        let said = pieces(&mut direction, &[text.as_bytes()], Some(Framing::Chunked));
        assert_eq!(said.last().map(String::as_str), Some("garbage"), "{body:?}");
        assert!(direction.is_lost());
    }
}

#[test]
fn heads_are_bounded() {
    let mut direction = Direction::new(Side::Request, false);
    let said = pieces(&mut direction, &[b"GET / HTTP/1.1\r\nA: ", &vec![b'a'; MAX_HEAD]], None);
    assert_eq!(said, ["begin", "garbage"]);
    assert_eq!(direction.head.capacity(), 0);
}

#[test]
fn gaps() {
    for (framing, body, gap, expected, lost) in [
        (Framing::Length(10), "abc", 6, Gap::InBody, false),
        (Framing::Length(10), "abc", 7, Gap::InBody, false),
        (Framing::Length(10), "abc", 8, Gap::PastEnd, true),
        (Framing::UntilClose, "abc", 1_000_000, Gap::InBody, false),
        (Framing::Chunked, "a\r\nabc", 7, Gap::InBody, false),
        (Framing::Chunked, "a\r\nabc", 8, Gap::Lost, true),
        (Framing::Chunked, "a", 1, Gap::Lost, true),
    ] {
        let mut direction = Direction::new(Side::Response, false);
        let text = format!("HTTP/1.1 200 OK\r\n\r\n{body}");
        pieces(&mut direction, &[text.as_bytes()], Some(framing));
        assert_eq!(direction.gap(gap), expected, "{framing:?} {gap}");
        assert_eq!(direction.is_lost(), lost, "{framing:?} {gap}");
    }
}

#[test]
fn lost_framing_is_found_by_what_proves_itself() {
    let data =
        |head: &[u8], total: u64, tail: &[u8]| Direction::new(Side::Response, true).find(head, total, tail);
    assert_eq!(data(b"HTTP/1.1 200 OK\r\n", 17, b""), Some(Found::Message));
    assert_eq!(data(b"3\r\nabc\r\n", 8, b""), Some(Found::Chunk(3, 6)));
    assert_eq!(data(b"3\r\nabc\r\n5\r\nab", 13, b""), Some(Found::Chunk(3, 6)));
    assert_eq!(data(b"0\r\n\r\n", 5, b""), Some(Found::Chunk(3, 3)));
    assert_eq!(data(b"7d0\r\nab", 2007, b"yz\r\n"), Some(Found::Chunk(5, 7)));
    // The size does not fit, or nothing of it can be seen.
    assert_eq!(data(b"7d0\r\nab", 2008, b"yz\r\n"), None);
    assert_eq!(data(b"7d0\r\nab", 2007, b"wxyz"), None);
    assert_eq!(data(b"3\r\nabcd\r\n", 9, b""), None);
    assert_eq!(data(b"POST / HTTP/1.1\r\n", 17, b""), None);
    assert_eq!(data(b"", 0, b""), None);
}

#[test]
fn the_last_chunk_is_seen_at_the_end_of_a_call() {
    for (bytes, expected) in
        [("ab\r\n0\r\n\r\n", 5), ("0\r\n\r\n", 5), ("ab0\r\n\r\n", 0), ("ab\r\n0\r\n", 0), ("", 0)]
    {
        assert_eq!(ends_chunked(bytes.as_bytes()), expected, "{bytes:?}");
    }
}

#[test]
fn any_bytes_end_in_a_defined_state() {
    let mut lcg = Lcg::new(3);
    for _ in 0..20_000 {
        let side = if lcg.below(2) == 0 { Side::Request } else { Side::Response };
        let mut direction = Direction::new(side, false);
        let framing = [Framing::Length(9), Framing::Chunked, Framing::UntilClose][lcg.below(3)];
        let mut text = if side == Side::Request { HEAD.to_owned() } else { "HTTP/1.1 200 OK\r\n\r\n".into() };
        for _ in 0..lcg.below(30) {
            text.push(b"0a\r\n:; GETHP/1."[lcg.below(15)] as char);
        }
        let at = lcg.below(text.len());
        pieces(&mut direction, &[&text.as_bytes()[..at], &text.as_bytes()[at..]], Some(framing));
        direction.gap(lcg.below(20) as u64);
        assert!(direction.head.len() <= MAX_HEAD);
    }
}
