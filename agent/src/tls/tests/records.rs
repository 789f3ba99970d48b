//! Plaintext against the records that carry it: parts, lengths and times.

use super::*;

#[test]
fn a_record_read_in_parts_and_several_in_one_read() {
    let mut rig = Rig::shaken();
    rig.request(1, 7, "request");
    rig.said();
    rig.recv(1, &[sealed("abcdefgh"), sealed("ij")].concat());
    for (text, requested) in [("abc", 3), ("def", 3), ("gh", 3), ("ij", 3)] {
        rig.plain(7, NONE, DIR_RECV, text, requested);
    }
    let said = rig.said();
    let parts: Vec<&str> = said.iter().map(|line| line.split(" at ").next().unwrap()).collect();
    let expected =
        ["1 reads 7+3 \"abc\"", "1 reads 10+3 \"def\"", "1 reads 13+2 \"gh\"", "1 reads 15+2 \"ij\""];
    assert_eq!(parts, expected);
}

/// How much longer records are than their plaintext is not known before one was read whole.
#[test]
fn a_first_record_read_in_parts() {
    let mut rig = Rig::shaken();
    rig.recv(1, &sealed("abcdefgh"));
    rig.plain(7, 1, DIR_RECV, "abcde", 5);
    rig.plain(7, NONE, DIR_RECV, "fgh", 5);
    let said = rig.said();
    let parts: Vec<&str> = said.iter().map(|line| line.split(" at ").next().unwrap()).collect();
    assert_eq!(parts, ["linked 1", "1 reads 0+5 \"abcde\"", "1 reads 5+3 \"fgh\""]);
}

/// A full socket takes a part of a record: its plaintext is out when the rest is.
#[test]
fn a_write_is_out_when_its_last_byte_is() {
    let mut rig = Rig::shaken();
    rig.request(1, 7, "request");
    rig.said();
    rig.write(7, "first");
    rig.write(7, "second");
    let bytes = [sealed("first"), sealed("second")].concat();
    rig.send(1, &bytes[..30]);
    let first_at = rig.now / 1000;
    rig.send(1, &bytes[30..40]);
    rig.send(1, &bytes[40..]);
    let second_at = rig.now / 1000;
    let expected =
        [format!("1 writes 0+5 \"first\" at {first_at}"), format!("1 writes 5+6 \"second\" at {second_at}")];
    assert_eq!(rig.said(), expected);
}

/// More than one record holds, and more than is captured of a call.
#[test]
fn large_writes_go_out_part_by_part() {
    let mut rig = Rig::shaken();
    rig.request(1, 7, "request");
    rig.said();
    let text = "0123456789".repeat(4000);
    rig.write(7, &text);
    let bytes = cipher(23, &[16384 + 17, 16384 + 17, 40000 - 32768 + 17]);
    rig.send(1, &bytes[..20000]);
    rig.send(1, &bytes[20000..]);
    rig.write(7, "end");
    rig.send(1, &sealed("end"));
    let said = rig.said();
    let parts: Vec<&str> = said.iter().map(|line| line.split(" \"").next().unwrap()).collect();
    assert_eq!(parts, ["1 writes 0+16384", "1 writes 16384+23616", "1 writes 40000+3"]);
}

/// The same the other way: headers of records in the middle of a call are not captured.
#[test]
fn large_reads_are_followed_through_what_was_not_captured() {
    let mut rig = Rig::shaken();
    rig.request(1, 7, "request");
    rig.said();
    let text = "0123456789".repeat(4000);
    rig.recv(1, &cipher(23, &[16384 + 17, 16384 + 17, 40000 - 32768 + 17]));
    for part in [&text[..16384], &text[16384..32768], &text[32768..]] {
        rig.read(7, part);
    }
    rig.request(1, 7, "the next");
    let said = rig.said();
    let parts: Vec<&str> = said.iter().map(|line| line.split(" \"").next().unwrap()).collect();
    assert_eq!(parts, ["1 reads 7+16384", "1 reads 16391+16384", "1 reads 32775+7232", "1 reads 40007+8"]);
}

#[test]
fn plaintext_of_a_connection_linked_late_begins_behind_a_gap() {
    let mut rig = Rig::shaken();
    for _ in 0..2 {
        rig.recv(1, &sealed("a request nobody saw the plaintext of"));
        rig.send(1, &sealed("an answer"));
    }
    rig.said();
    rig.request(1, 7, "request");
    let said = rig.said();
    assert!(said[1].starts_with("1 reads 1+7"), "{said:?}");
}

#[test]
fn acknowledgements_count_in_plaintext() {
    let mut rig = Rig::shaken();
    rig.request(1, 7, "request");
    rig.said();
    let before = rig.offsets[&('c', 1, DIR_SEND)];
    rig.ack(1, before);
    rig.write(7, "answer");
    rig.write(7, "more");
    rig.send(1, &[sealed("answer"), sealed("more")].concat());
    rig.ack(1, before + sealed("answer").len() as u64);
    rig.ack(1, before + 1000);
    let acks: Vec<String> = rig.said().into_iter().filter(|line| line.starts_with("ack")).collect();
    assert_eq!(acks, ["ack 1 6", "ack 1 10"]);
}

/// The library writes to the socket itself, and the client is faster than the library's return.
#[test]
fn an_acknowledgement_from_within_the_library_s_call_is_not_lost() {
    let mut rig = Rig::shaken();
    rig.request(1, 7, "request");
    rig.said();
    for (text, plain) in [("answer", 6), ("the last one", 18)] {
        rig.send(1, &sealed(text));
        let end = rig.offsets[&('c', 1, DIR_SEND)];
        rig.ack(1, end);
        let acked_ns = rig.now;
        rig.plain(7, 1, DIR_SEND, text, text.len());
        let said = rig.said();
        assert!(said[0].starts_with("1 writes"), "{said:?}");
        assert_eq!(said[1..], [format!("ack 1 {plain}")], "at {acked_ns}");
    }
    rig.close(1);
}

/// A byte of plaintext is there when the last byte of its record is.
#[test]
fn plaintext_arrives_with_the_end_of_its_record() {
    let at = |ns, len| Network { first_ns: ns, last_ns: ns, first_len: len, last_from: 0 };
    let size = u32::try_from(sealed("request").len()).unwrap();
    let cases = [
        ("all at once", Network { first_ns: 5, last_ns: 5, first_len: size, last_from: 0 }, at(5, 7)),
        ("in two segments", Network { first_ns: 5, last_ns: 9, first_len: 4, last_from: 4 }, at(9, 7)),
        (
            "between two",
            Network { first_ns: 5, last_ns: 9, first_len: 4, last_from: size },
            Network { first_ns: 0, last_ns: 9, first_len: 0, last_from: u32::MAX },
        ),
        ("not known", Network::default(), Network::default()),
    ];
    for (name, network, expected) in cases {
        let mut rig = Rig::shaken();
        rig.network = network;
        rig.recv(1, &sealed("request"));
        let mut out = Vec::new();
        let text = b"request";
        let data = tls::Data {
            header: rig.header(Kind::TlsData, size_of::<tls::Data>() + text.len()),
            ssl: tls::SslId { ssl: 7, birth_ns: 7 },
            sock: id(NONE),
            offset: 0,
            len: 7,
            requested: 100,
            head_len: 7,
            tail_len: 0,
            dir: DIR_RECV,
            flags: 0,
            reserved: 0,
        };
        rig.links.take(&[data.as_bytes(), text].concat(), &mut out);
        let (data, _) = socket::Data::read_from_prefix(out.last().unwrap()).unwrap();
        assert_eq!(data.network, expected, "{name}");
    }
}
