use super::*;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// What pieces say, with contents in a row as one; the bytes as they are then.
fn say(frames: &mut Frames, pieces: &[&[u8]]) -> (Vec<String>, Vec<u8>) {
    let (mut said, mut masked): (Vec<String>, Vec<u8>) = (Vec::new(), Vec::new());
    for piece in pieces {
        let mut bytes = piece.to_vec();
        let mut input = &mut bytes[..];
        while let Some(piece) = frames.next(&mut input) {
            match piece {
                Piece::Begin(h) => said.push(format!("{:?} {}", h.kind, h.stream)),
                Piece::Value(_, value) => said.push(format!("value {value:?}")),
                Piece::Content(_, bytes, _) => {
                    let text = String::from_utf8_lossy(bytes).into_owned();
                    match said.last_mut().filter(|last| last.starts_with('\'')) {
                        Some(last) => last.push_str(&text),
                        None => said.push(format!("'{text}")),
                    }
                }
                Piece::End(_) => said.push("end".into()),
                Piece::Garbage => said.push("garbage".into()),
                Piece::Frame => {}
            }
        }
        mask_all(input);
        masked.extend(bytes);
    }
    (said, masked)
}

#[test]
fn pieces_of_any_size_say_the_same() {
    let stream = [
        PREFACE.to_vec(),
        frame(4, 0, 0, &[0, 5, 0, 0, 0x80, 0, 0, 3, 0, 0, 0, 100]),
        frame(4, 1, 0, &[]),
        frame(1, 0x2c, 1, b"\x02\x80\0\0\0\x10head\x01\x02"),
        frame(9, 4, 1, b"more"),
        frame(0, 8, 1, b"\x03bodyabc"),
        frame(0, 8, 1, b"\x04body"),
        frame(0, 8, 1, b"\x05body"),
        frame(0, 9, 1, b""),
        frame(8, 0, 1, &[0, 0, 1, 0]),
        frame(3, 0, 1, &[0, 0, 0, 8]),
        frame(0x42, 0xff, 3, b"what"),
        frame(7, 0, 0, b"\0\0\0\x01\0\0\0\x02bye"),
    ]
    .concat();
    let (said, masked) = say(&mut Frames::new(true), &[&stream]);
    let expected = "Settings 0|value [0, 5, 0, 0, 128, 0, 0, 0]|value [0, 3, 0, 0, 0, 100, 0, 0]|end|Settings 0|end|\
                    Headers 1|'head|end|Continuation 1|'more|end|Data 1|'body|end|Data 1|end|Data 1|end|\
                    Data 1|end|Window 1|value [0, 0, 1, 0, 0, 0, 0, 0]|end|Reset 1|value [0, 0, 0, 8, 0, 0, 0, 0]|end|\
                    Other 3|'what|end|GoAway 0|value [0, 0, 0, 1, 0, 0, 0, 2]|'bye|end";
    assert_eq!(values(&said), values(&expected.split('|').map(str::to_owned).collect::<Vec<_>>()));
    for at in 0..stream.len() {
        let (a, b) = stream.split_at(at);
        let (again, bytes) = say(&mut Frames::new(true), &[a, b]);
        assert_eq!((values(&again), bytes), (values(&said), masked.clone()), "split at {at}");
    }
    let (again, bytes) = say(&mut Frames::new(true), &[&masked]);
    assert_eq!((values(&again), bytes), (values(&said), masked));
}

/// Only the octets of a value that belong to it: four of a reset or a window, six of a setting.
fn values(said: &[String]) -> Vec<String> {
    let mut kind = "";
    said.iter()
        .map(|text| {
            let len = match kind {
                "Settings 0" => 6,
                "Reset 1" | "Window 1" => 4,
                _ => 8,
            };
            if !text.starts_with("value") {
                kind = text;
                return text.clone();
            }
            text.split(", ").take(len).collect::<Vec<_>>().join(", ").trim_end_matches(']').to_owned()
        })
        .collect()
}

#[test]
fn what_no_peer_may_send_loses_framing() {
    for bytes in [
        frame(0, 0, 0, b"a"),
        frame(1, 4, 0, b"a"),
        frame(3, 0, 1, b"abc"),
        frame(4, 0, 1, &[0; 6]),
        frame(4, 0, 0, &[0; 5]),
        frame(6, 0, 0, &[0; 7]),
        frame(7, 0, 0, &[0; 7]),
        frame(8, 0, 0, &[0; 5]),
        frame(0, 0, 0x8000_0001, b"a"),
        frame(0, 0, 1, &vec![0; 16_385]),
        b"\xff\xff\xff\0\0\0\0\0\x01".to_vec(),
        b"HTTP/1.1 200 OK\r\n".to_vec(),
    ] {
        let mut frames = Frames::new(false);
        let (said, masked) = say(&mut frames, &[&bytes]);
        assert!(said.last().is_some_and(|last| last == "garbage"), "{said:?}");
        assert!(frames.is_lost() && masked[HEADER..].iter().all(|b| *b == b'x'));
    }
    assert_eq!(say(&mut Frames::new(true), &[b"PRI * HTTP/2.1\r\n"]).0, ["garbage"]);
}

#[test]
fn gaps() {
    let data = frame(0, 0, 1, &[b'a'; 100]);
    for (before, gap, expected, lost) in [
        (20, 50, Gap::InFrame(Header::read(data.first_chunk().unwrap())), false),
        (20, 89, Gap::InFrame(Header::read(data.first_chunk().unwrap())), false),
        (20, 90, Gap::PastEnd(Header::read(data.first_chunk().unwrap())), true),
        (20, u64::MAX, Gap::PastEnd(Header::read(data.first_chunk().unwrap())), true),
        (5, 1, Gap::Lost, true),
        (109, 1, Gap::Lost, true),
    ] {
        let mut frames = Frames::new(false);
        say(&mut frames, &[&data[..before]]);
        assert_eq!(frames.gap(gap), expected, "{gap} behind {before}");
        assert_eq!(frames.is_lost(), lost);
        if !lost {
            let rest = 109 - before - usize::try_from(gap).unwrap();
            let (said, _) = say(&mut frames, &[&data[109 - rest..], &data]);
            assert_eq!(said.iter().filter(|text| *text == "end").count(), 2, "{said:?}");
        }
    }
}
