//! Whose plaintext it is: what links a library's connection to a socket, and what does not.

use super::*;

type Step = fn(&mut Rig);

/// Catalogue row 35: bytes go to no other connection, whatever the order in which one thread serves several.
#[test]
fn r35_connections_on_one_thread_keep_their_own() {
    // Both are the same length, as events of streams often are.
    let (a, b) = ("data: a\n\n", "data: b\n\n");
    let orders: [(&str, [Step; 4]); 4] = [
        (
            "each at once",
            [
                |r| r.write(7, "data: a\n\n"),
                |r| r.send(1, &sealed("data: a\n\n")),
                |r| r.write(8, "data: b\n\n"),
                |r| r.send(2, &sealed("data: b\n\n")),
            ],
        ),
        (
            "at the end of the turn",
            [
                |r| r.write(7, "data: a\n\n"),
                |r| r.write(8, "data: b\n\n"),
                |r| r.send(1, &sealed("data: a\n\n")),
                |r| r.send(2, &sealed("data: b\n\n")),
            ],
        ),
        (
            "the first socket was full",
            [
                |r| r.write(7, "data: a\n\n"),
                |r| r.write(8, "data: b\n\n"),
                |r| r.send(2, &sealed("data: b\n\n")),
                |r| r.send(1, &sealed("data: a\n\n")),
            ],
        ),
        (
            "the other way round",
            [
                |r| r.write(8, "data: b\n\n"),
                |r| r.write(7, "data: a\n\n"),
                |r| r.send(1, &sealed("data: a\n\n")),
                |r| r.send(2, &sealed("data: b\n\n")),
            ],
        ),
    ];
    for (name, steps) in orders {
        let mut rig = Rig::shaken();
        rig.request(1, 7, "one");
        rig.request(2, 8, "two!");
        rig.said();
        for step in steps {
            step(&mut rig);
        }
        let mut said: Vec<String> =
            rig.said().iter().map(|line| line.split(" at ").next().unwrap().to_owned()).collect();
        said.sort();
        let expected = [format!("1 writes 0+9 {a:?}"), format!("2 writes 0+9 {b:?}")];
        assert_eq!(said, expected, "{name}");
    }
}

/// Catalogue row 62: where the socket is not known, nothing is lost but the link, and none is made up.
#[test]
fn r62_without_a_proof_there_is_no_link() {
    let mut rig = Rig::shaken();
    rig.recv(1, &sealed("request"));
    rig.tid = 2;
    rig.read(7, "request");
    assert_eq!(rig.said(), ["unlinked 7 bytes"], "another thread read it");
    rig.tid = 1;
    rig.recv(1, &sealed("another"));
    rig.read(7, "not as long as that");
    assert_eq!(rig.said(), ["unlinked 19 bytes"]);
    rig.write(7, "answer");
    rig.write(8, "banana");
    rig.send(1, &sealed("answer"));
    assert_eq!(rig.said(), ["opaque 1"], "it could be either's");
    rig.tick(PATIENCE_NS + 1);
    assert_eq!(rig.said(), ["unlinked 6 bytes", "unlinked 6 bytes", "pass Some(Observation)"]);
}

#[test]
fn what_was_written_first_is_proven_by_its_record() {
    let mut rig = Rig::shaken();
    rig.write(7, "settings of a server");
    rig.send(1, &sealed("settings of a server"));
    let said = rig.said();
    assert_eq!(said[0], "linked 1");
    assert!(said[1].starts_with("1 writes 0+20"), "{said:?}");
}

/// Handshakes of two connections end in one turn of a loop, and their first requests, of one length, are read in a
/// later one.
#[test]
fn what_was_read_before_the_turn_is_told_by_the_handshake() {
    for with_handshake in [true, false] {
        let mut rig = Rig::shaken();
        for (sock, ssl) in [(1, 7), (2, 8)] {
            rig.recv(sock, &sealed("GET /x"));
            if with_handshake {
                rig.plain(ssl, NONE, DIR_RECV, "", 0);
            }
        }
        rig.read(7, "GET /x");
        rig.read(8, "GET /x");
        let said = rig.said();
        if with_handshake {
            assert_eq!(said.len(), 4, "{said:?}");
            assert!(said[1].starts_with("1 reads 0+6") && said[3].starts_with("2 reads 0+6"), "{said:?}");
        } else {
            assert_eq!(said, ["unlinked 6 bytes", "unlinked 6 bytes"]);
        }
    }
}

/// The library uses the socket itself: its calls lie within the library's.
#[test]
fn a_call_within_the_call_links() {
    let mut rig = Rig::shaken();
    rig.recv(1, &cipher(23, &[7 + OVERHEAD])[..5]);
    rig.recv(1, &sealed("request")[5..]);
    let read_at = rig.now / 1000;
    rig.plain(7, 1, DIR_RECV, "request", 4096);
    rig.send(1, &sealed("answer"));
    let sent_at = rig.now / 1000;
    rig.plain(7, 1, DIR_SEND, "answer", 6);
    let expected = [
        "linked 1".to_owned(),
        format!("1 reads 0+7 \"request\" at {read_at}"),
        format!("1 writes 0+6 \"answer\" at {sent_at}"),
    ];
    assert_eq!(rig.said(), expected);
}

#[test]
fn a_call_within_the_call_of_another_socket_cuts_the_link() {
    let mut rig = Rig::shaken();
    rig.request(1, 7, "request");
    rig.said();
    rig.recv(2, &sealed("more"));
    rig.plain(7, 2, DIR_RECV, "more", 4096);
    let said = rig.said();
    assert_eq!(said[..2], ["contradicted 1", "linked 2"]);
    assert!(said[2].starts_with("2 reads 7+4 \"more\""), "{said:?}");
}

#[test]
fn plaintext_that_the_connection_did_not_carry_cuts_the_link() {
    let mut rig = Rig::shaken();
    rig.request(1, 7, "request");
    rig.said();
    rig.recv(1, &sealed(&"x".repeat(600)));
    rig.read(7, "something else");
    assert_eq!(rig.said(), ["contradicted 1", "unlinked 14 bytes"]);
    // The next proof links it again. What went between is a gap: offsets tell.
    rig.request(1, 7, "once more");
    let said = rig.said();
    assert_eq!(said[0], "linked 1");
    assert!(said[1].starts_with("1 reads 21+9") || said[1].starts_with("1 reads 22+9"), "{said:?}");
}

/// Records that went out before plaintext went in are not its own, whatever their length: here one of the handshake.
#[test]
fn what_was_written_before_is_no_proof() {
    let mut rig = Rig::shaken();
    rig.write(7, &"x".repeat(250 - OVERHEAD));
    rig.send(1, &cipher(23, &[300]));
    rig.request(1, 7, "request");
    rig.said();
    rig.send(1, &sealed("ten bytes!"));
    rig.write(7, "ten bytes!");
    assert_eq!(rig.said(), Vec::<String>::new());
    rig.send(1, &sealed("ten bytes!"));
    assert_eq!(rig.said().len(), 0, "what went in first goes out first");
}

/// More that could be the one than are remembered: that one alone is left of them proves nothing.
#[test]
fn a_crowd_proves_nothing() {
    for others in [0, MAX_UNREAD as u64] {
        let mut rig = Rig::shaken();
        rig.recv(1, &sealed("request"));
        for sock in 0..others {
            rig.open(100 + sock, socket::ROLE_ACCEPTED, 0);
            rig.handshake(100 + sock);
        }
        rig.recv(2, &sealed("request"));
        rig.said();
        rig.read(7, "request");
        assert_eq!(rig.said(), ["unlinked 7 bytes"], "{others}");
    }
}

/// Nor is it one that is closed, or that a thread of that number read in another process.
#[test]
fn closed_ones_and_those_of_others_are_no_candidates() {
    for closes in [true, false] {
        let mut rig = Rig::shaken();
        rig.pid = if closes { PID } else { PID + 1 };
        rig.recv(2, &sealed("request"));
        if closes {
            rig.close(2);
        }
        rig.pid = PID;
        rig.recv(1, &sealed("request"));
        rig.said();
        rig.read(7, "request");
        let said = rig.said();
        assert!(said.len() == 2 && said[0] == "linked 1", "{closes}: {said:?}");
    }
}

/// Catalogue row 61: a return that was missed leaves a record that nobody explains. The next one is found all the same.
#[test]
fn r61_a_missed_return_does_not_shift_what_follows() {
    let mut rig = Rig::shaken();
    rig.request(1, 7, "request");
    rig.said();
    rig.send(1, &sealed("missed"));
    rig.write(7, "answer!");
    rig.send(1, &sealed("answer!"));
    let said = rig.said();
    assert!(said[0].starts_with("1 writes 0+7 \"answer!\""), "{said:?}");
}

/// A call whose record was lost: what it sent is not taken for what came after it.
#[test]
fn a_lost_write_does_not_shift_what_follows() {
    for (first, second) in [("first", "other"), ("first", "longer")] {
        let mut rig = Rig::shaken();
        rig.request(1, 7, "request");
        rig.said();
        rig.write(7, first);
        rig.write(7, second);
        rig.advance('c', 1, DIR_SEND, sealed(first).len());
        rig.send(1, &sealed(second));
        let said = rig.said();
        let left = |text: &str| format!("unlinked {} bytes", text.len());
        assert_eq!(said, [left(first), left(second), "contradicted 1".to_owned()]);
        rig.write(7, "third");
        rig.send(1, &sealed("third"));
        let said = rig.said();
        assert_eq!(said[0], "linked 1", "{said:?}");
        assert!(said[1].contains("+5 \"third\""), "{said:?}");
    }
}
