use super::{
    super::frame::{END_HEADERS, END_STREAM},
    *,
};

const MAX: u32 = 16_384;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[test]
fn frames_up_to_the_end_of_a_call_prove_themselves() {
    let data = frame(0, 0, 5, &[0; 20]);
    let two = [data.clone(), frame(0, END_STREAM, 7, b"")].concat();
    let none = |_| false;
    for (bytes, total, expected) in [
        (&data[..], data.len() as u64, true),
        (&two, two.len() as u64, true),
        // As far as they were captured.
        (&two[..35], 1000, false),
        (&two, 1000, true),
        (&data, 1000, false),
        // What is behind the first one is none.
        (&[&data[..], b"xxxxxxxxxxxxxxxxxxxx"].concat(), 1000, false),
        (b"xxxxxxxxxxxxxxxxxxxx", 20, false),
        (b"GET / HTTP/1.1\r\n\r\n", 18, false),
        (b"data: {\"choices\":[]}\n\n", 22, false),
        (&[0; 9], 9, false),
        (b"", 0, false),
    ] {
        assert_eq!(chain(bytes, total, MAX, none), expected, "{bytes:x?} of {total}");
    }
    assert!(chain(&data, 1000, MAX, |id| id == 5));
    assert!(!chain(&data, 1000, MAX, |id| id == 7));
    assert!(!chain(&data, data.len() as u64, 19, none));
}

#[test]
fn frames_at_the_end_of_a_call_are_those_of_known_streams() {
    let trailers = frame(1, END_STREAM | END_HEADERS, 5, &[0x88]);
    let tail = [&[0; 30][..], &frame(0, 0, 5, b"ab"), &trailers].concat();
    assert_eq!(tail_chain(&tail, MAX, |id| id == 5), Some(30));
    assert_eq!(tail_chain(&tail, MAX, |id| id == 7), None);
    assert_eq!(tail_chain(b"", MAX, |_| true), None);
    assert_eq!(tail_chain(&tail[..tail.len() - 1], MAX, |id| id == 5), None);
}

#[test]
fn the_first_field_of_a_block_tells_requests_from_responses() {
    let headers = |payload: &[u8]| frame(1, END_HEADERS, 1, payload);
    for (bytes, expected) in [
        (headers(&[0x83, 0x86]), Some((true, 10))),
        (headers(&[0x88]), Some((false, 10))),
        (headers(&[0x48, 0x03]), Some((false, 10))),
        (frame(1, END_HEADERS | 0x28, 1, &[0, 0, 0, 0, 0, 0, 0x04]), Some((true, 16))),
        (headers(&[0xbe]), None),
        (headers(&[]), None),
        (frame(1, END_HEADERS | 8, 1, &[1, 0x83, 0]), Some((true, 11))),
        // All is padding, or more of it than there can be.
        (frame(1, END_HEADERS | 8, 1, &[2, 0x83, 0]), None),
        (frame(1, END_HEADERS | 8, 1, &[0x83, 0x86]), None),
        (frame(0, 0, 1, &[0x88]), None),
        (frame(1, END_HEADERS, 2, &[0x88]), None),
        (PREFACE.to_vec(), Some((true, 24))),
        (PREFACE[..20].to_vec(), None),
    ] {
        assert_eq!(begins(&bytes).map(|p| (p.request, p.len)), expected, "{bytes:x?}");
    }
}
