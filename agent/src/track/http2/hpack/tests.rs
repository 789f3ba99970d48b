mod oracle;

use super::*;
use crate::track::tests::Lcg;

/// A literal field, not Huffman-coded.
fn literal(first: u8, name: &str, value: &str) -> Vec<u8> {
    let len = |text: &str| u8::try_from(text.len()).unwrap();
    [&[first, len(name)][..], name.as_bytes(), &[len(value)], value.as_bytes()].concat()
}

fn say(block: &Block) -> String {
    let request = block.request();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {}",
        request.method,
        request.path,
        block.status(),
        block.grpc_status(),
        request.headers.content,
        request.headers.request_id,
        block.is_complete()
    )
}

/// Reads blocks in pieces of at most `piece` octets: what each says, and the blocks as they are then.
fn read(blocks: &[Vec<u8>], piece: usize) -> (Vec<String>, Vec<Vec<u8>>) {
    let mut reader = Reader::default();
    let mut masked = blocks.to_vec();
    let said = masked
        .iter_mut()
        .map(|block| {
            block.chunks_mut(piece).for_each(|piece| reader.octets(piece));
            say(&reader.end())
        })
        .collect();
    (said, masked)
}

fn check(blocks: &[Vec<u8>], expected: &[&str]) -> Vec<Vec<u8>> {
    let (said, masked) = read(blocks, usize::MAX);
    assert_eq!(said, expected);
    let longest = blocks.iter().map(Vec::len).max().unwrap_or(1);
    for piece in 1..=longest {
        assert_eq!(read(blocks, piece), (said.clone(), masked.clone()), "pieces of {piece}");
    }
    assert_eq!(read(&masked, usize::MAX), (said, masked.clone()));
    masked
}

#[test]
fn literals_and_the_table() {
    let first = [
        &[0x83, 0x86][..],
        &literal(0x40, ":path", "/v1/chat?key=s3cret"),
        &literal(0x40, "authorization", "Bearer s3cret"),
        &literal(0x00, "content-type", "application/grpc"),
        &literal(0x10, "x-request-id", "r1"),
    ]
    .concat();
    // The newest is 62, so the path is 63.
    let second = vec![0x83, 0xbf, 0xbe, 0x0f, 0x10, 0x02, b'a', b'b'];
    let third = vec![0x83, 0xc0, 0x88];
    let masked = check(
        &[first, second, third],
        &[
            r#"Some("POST") Some("/v1/chat") None None Grpc(Other) Some("r1") true"#,
            r#"Some("POST") Some("/v1/chat") None None Other None true"#,
            r#"Some("POST") None Some(200) None Unknown None false"#,
        ],
    );
    let text = String::from_utf8_lossy(&masked[0]).into_owned();
    assert!(text.contains("/v1/chat?xxxxxxxxxx") && !text.contains("s3cret") && !text.contains("Bearer"));
    assert!(text.contains("axxxxxxxxxxxx"), "{text}");
}

#[test]
fn the_examples_of_the_standard() {
    let hex = |text: &str| -> Vec<u8> {
        let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
        digits.chunks(2).map(|d| u8::from_str_radix(&d.iter().collect::<String>(), 16).unwrap()).collect()
    };
    // C.4: requests with Huffman coding.
    check(
        &[
            hex("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff"),
            hex("8286 84be 5886 a8eb 1064 9cbf"),
            hex("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf"),
        ],
        &[
            r#"Some("GET") Some("/") None None Unknown None true"#,
            r#"Some("GET") Some("/") None None Unknown None true"#,
            r#"Some("GET") Some("/index.html") None None Unknown None true"#,
        ],
    );
    // C.6: responses with Huffman coding and evictions.
    check(
        &[
            hex(
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            ),
            hex("4883 640e ffc1 c0bf"),
            hex(
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
            ),
        ],
        &[
            "None None Some(302) None Unknown None true",
            "None None Some(307) None Unknown None true",
            "None None Some(200) None Opaque None true",
        ],
    );
}

#[test]
fn broken_blocks_are_bad_and_empty_the_table() {
    for block in [
        &[0x80][..],
        &[0x83, 0x40],
        &[0x40, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x00],
        &[0x00, 0x05, b'a'],
        &[0x3f],
    ] {
        let before = literal(0x40, ":path", "/a");
        let (said, masked) = read(&[before.clone(), block.to_vec(), vec![0xbe]], usize::MAX);
        assert!(said[1].ends_with("false"), "{block:x?} {said:?}");
        assert_eq!(said[2], "None None None None Unknown None false", "{block:x?}");
        assert_eq!(read(&masked, usize::MAX), (said, masked.clone()));
    }
}

#[test]
fn a_loss_makes_what_came_before_unknown_and_nothing_else() {
    let mut reader = Reader::default();
    reader.octets(&mut literal(0x40, ":path", "/a"));
    reader.end();
    reader.octets(&mut literal(0x40, ":path", "/lost")[..3]);
    reader.lose();
    reader.octets(&mut literal(0x40, ":path", "/lost")[3..]);
    assert!(reader.end().bad);
    reader.octets(&mut [0x82, 0xbe]);
    assert_eq!(say(&reader.end()), r#"Some("GET") None None None Unknown None false"#);
    reader.octets(&mut literal(0x40, ":path", "/b"));
    reader.octets(&mut [0xbf]);
    assert!(!reader.end().is_complete());
    reader.octets(&mut [0xbe]);
    assert_eq!(say(&reader.end()), r#"None Some("/b") None None Unknown None true"#);
}

#[test]
fn bombs_stay_small() {
    let mut reader = Reader::default();
    reader.octets(&mut [&[0x40, 1, b'a', 0x7f, 0x89, 0x07][..], &[b'v'; 1024]].concat());
    // Every octet means a kilobyte.
    let mut block = vec![0xbe; MAX_BLOCK];
    reader.octets(&mut block);
    reader.octets(&mut [b's'; 10]);
    assert!(reader.end().bad);
    // An endless string, and values longer than any that is kept.
    let mut path = vec![0x44, 0x7f, 0xff, 0xff, 0xff, 0x7f];
    reader.octets(&mut path);
    for _ in 0..200 {
        reader.octets(&mut [b'a'; 1000]);
    }
    assert!(reader.text.kept.len() <= MAX_VALUE);
    assert!(reader.end().bad);
}

#[test]
fn any_octets_do_no_harm() {
    let mut lcg = Lcg::new(7);
    for _ in 0..20_000 {
        let blocks: Vec<Vec<u8>> = (0..3)
            .map(|_| {
                (0..lcg.below(40))
                    .map(|_| {
                        let octet = lcg.next().to_le_bytes()[0];
                        [octet, 0x40, 0x44, 0x82, 0x83, 1, octet & 0x87][lcg.below(7)]
                    })
                    .collect()
            })
            .collect();
        let (said, masked) = read(&blocks, usize::MAX);
        let piece = lcg.below(5) + 1;
        assert_eq!(read(&blocks, piece), (said.clone(), masked.clone()), "{blocks:x?}");
        assert_eq!(read(&masked, piece), (said, masked.clone()), "{blocks:x?}");
    }
}
