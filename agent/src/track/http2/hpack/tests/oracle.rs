//! Beside another reader: any sequence of well-formed blocks says the same to both.

use loona_hpack::{Decoder, Encoder, encoder::encode_integer_into};

use super::*;

/// Names that are looked at, that begin like them, that have an index, and others.
const NAMES: [&str; 14] = [
    ":method",
    ":path",
    ":status",
    "content-type",
    "content-encoding",
    "grpc-status",
    "grpc-timeout",
    "traceparent",
    "x-request-id",
    "x-request-idx",
    "grpc-status-details-bin",
    "authorization",
    "cookie",
    "te",
];
const VALUES: [&str; 10] = [
    "",
    "0",
    "GET",
    "/v1/chat/completions",
    "application/grpc+proto",
    "100m",
    "200",
    "Bearer ~!@#$%^&*()_+{}|",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "a value that is long enough to need more than one octet for its length, which happens from 127 octets on, \
     so that this one goes on for a bit longer than anybody would like it to",
];

fn pick<'a>(lcg: &mut Lcg, of: &[&'a str]) -> &'a str {
    of[lcg.below(of.len())]
}

fn integer(block: &mut Vec<u8>, value: usize, prefix: u8, lead: u8) {
    encode_integer_into(value, prefix, lead, block).unwrap();
}

fn text(lcg: &mut Lcg, block: &mut Vec<u8>, text: &str) {
    let mut coded = Vec::new();
    let huffman = lcg.below(2) == 0;
    if huffman {
        httlib_huffman::encode(text.as_bytes(), &mut coded).unwrap();
    } else {
        coded.extend(text.as_bytes());
    }
    integer(block, coded.len(), 7, if huffman { 0x80 } else { 0 });
    block.extend(coded);
}

/// One field in any of its representations. `inserted` counts what is in the table at most.
fn field(lcg: &mut Lcg, block: &mut Vec<u8>, inserted: &mut usize) {
    let index = |lcg: &mut Lcg, inserted: usize| 1 + lcg.below(61 + inserted.min(8));
    let representation = lcg.below(5);
    let (prefix, lead) = match representation {
        0 | 1 => {
            let index = index(lcg, *inserted);
            return integer(block, index, 7, 0x80);
        }
        2 => (6, 0x40),
        3 => (4, 0x00),
        _ => (4, 0x10),
    };
    if lcg.below(2) == 0 {
        let index = index(lcg, *inserted);
        integer(block, index, prefix, lead);
    } else {
        integer(block, 0, prefix, lead);
        let name = pick(lcg, &NAMES);
        text(lcg, block, name);
    }
    let value = pick(lcg, &VALUES);
    text(lcg, block, value);
    *inserted += usize::from(representation == 2);
}

fn block(lcg: &mut Lcg, inserted: &mut usize) -> Vec<u8> {
    let mut block = Vec::new();
    if lcg.below(6) == 0 {
        // The table becomes smaller and grows again.
        integer(&mut block, lcg.below(300), 5, 0x20);
        integer(&mut block, 4096, 5, 0x20);
        *inserted = 0;
    }
    for _ in 0..=lcg.below(6) {
        field(lcg, &mut block, inserted);
    }
    block
}

/// What the other reader's list means for a field that is looked at: its first value.
fn expected(fields: &[(Vec<u8>, Vec<u8>)], field: Field) -> Option<String> {
    let name = |bytes: &[u8]| {
        let mut narrow = Narrow::new(super::NAMES);
        bytes.iter().all(|b| narrow.push(super::NAMES, *b)).then(|| Field::named(narrow))
    };
    let (_, value) = fields.iter().find(|(bytes, _)| name(bytes) == Some(field))?;
    let mut value = String::from_utf8(value.clone()).unwrap();
    if field == Field::Path {
        value.truncate(value.find(['?', '#']).unwrap_or(value.len()));
    }
    Some(value)
}

fn assert_same(ours: &Block, theirs: &[(Vec<u8>, Vec<u8>)]) {
    assert!(ours.is_complete(), "{theirs:?}");
    for field in [
        Field::Method,
        Field::Path,
        Field::Status,
        Field::ContentEncoding,
        Field::ContentType,
        Field::GrpcStatus,
        Field::GrpcTimeout,
        Field::TraceParent,
        Field::RequestId,
    ] {
        assert_eq!(ours.value(field).map(str::to_owned), expected(theirs, field), "{field:?} of {theirs:?}");
    }
}

#[test]
fn any_representation_says_the_same() {
    let mut lcg = Lcg::new(11);
    let mut read = 0;
    for _ in 0..3000 {
        let (mut reader, mut decoder, mut inserted) = (Reader::default(), Decoder::new(), 0);
        for _ in 0..8 {
            let mut block = block(&mut lcg, &mut inserted);
            // An index of what was evicted: nobody can read on.
            let Ok(theirs) = decoder.decode(&block) else { break };
            let piece = 1 + lcg.below(block.len());
            block.chunks_mut(piece).for_each(|piece| reader.octets(piece));
            assert_same(&reader.end(), &theirs);
            read += 1;
        }
    }
    assert!(read > 10_000, "only {read} blocks were valid");
}

#[test]
fn what_another_writer_writes_is_read() {
    let mut lcg = Lcg::new(12);
    for _ in 0..500 {
        let (mut reader, mut encoder) = (Reader::default(), Encoder::new());
        for _ in 0..10 {
            let fields: Vec<(Vec<u8>, Vec<u8>)> = (0..=lcg.below(8))
                .map(|_| (pick(&mut lcg, &NAMES).into(), pick(&mut lcg, &VALUES).into()))
                .collect();
            let mut block = encoder.encode(fields.iter().map(|(name, value)| (&name[..], &value[..])));
            reader.octets(&mut block);
            assert_same(&reader.end(), &fields);
        }
    }
}
