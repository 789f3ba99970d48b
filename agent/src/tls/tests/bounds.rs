//! What is held, for how long, and what comes of what had to go.

use super::*;

/// What is held is bounded, and let go with the connection.
#[test]
fn what_waits_is_bounded() {
    let mut rig = Rig::shaken();
    rig.request(1, 7, "request");
    rig.said();
    for _ in 0..MAX_WAITING + 5 {
        rig.write(7, "never sent");
    }
    assert_eq!(rig.said(), vec!["unlinked 10 bytes"; 5]);
    assert_eq!(rig.links.held, MAX_WAITING * (size_of::<Chunk>() + "never sent".len()));
    rig.close(1);
    assert_eq!(rig.links.held, 0);
    let said = rig.said();
    assert_eq!(said[..MAX_WAITING], vec!["unlinked 10 bytes"; MAX_WAITING], "none goes unsaid");
}

/// One that wrote little before the limit was reached does not grow past it for that.
#[test]
fn what_waits_is_bounded_in_all() {
    let mut rig = Rig::new();
    let large = "x".repeat(socket::WHOLE);
    for _ in 0..500 {
        rig.write(7, "-");
    }
    for ssl in 8.. {
        if rig.links.held + 600 * (size_of::<Chunk>() + large.len()) > MAX_HELD {
            break;
        }
        for _ in 0..500 {
            rig.write(ssl, &large);
        }
    }
    rig.said();
    for _ in 0..1000 {
        rig.write(7, &large);
        assert!(rig.links.held <= MAX_HELD);
    }
    assert!(rig.said().iter().any(|line| line == "unlinked 1 bytes"));
}

#[test]
fn those_that_wait_for_a_connection_are_bounded() {
    let mut rig = Rig::new();
    for ssl in 0..=MAX_UNLINKED as u64 {
        rig.write(100 + ssl, "never sent");
    }
    assert_eq!((rig.links.unlinked.len(), rig.said()), (MAX_UNLINKED, vec!["unlinked 10 bytes".to_owned()]));
}

/// Many that come and go do not cost one that stays its link, nor do many that stay while it is in use.
#[test]
fn a_long_connection_keeps_its_link() {
    for closes in [true, false] {
        let mut rig = Rig::shaken();
        rig.request(1, 7, "request");
        for sock in 0..MAX_KNOWN as u64 + 10 {
            rig.open(100 + sock, socket::ROLE_ACCEPTED, 0);
            if closes {
                rig.close(100 + sock);
            } else if sock % 1000 == 0 {
                rig.request(1, 7, "request");
            }
        }
        rig.said();
        rig.request(1, 7, "the last");
        let said = rig.said();
        assert!(said.len() == 1 && said[0].contains("\"the last\""), "{closes}: {said:?}");
    }
}

/// A connection that was forgotten is found again.
#[test]
fn what_was_forgotten_is_linked_again() {
    let mut rig = Rig::shaken();
    rig.request(1, 7, "request");
    for sock in 0..MAX_KNOWN as u64 {
        rig.open(100 + sock, socket::ROLE_ACCEPTED, 0);
    }
    rig.said();
    rig.write(7, "answer");
    rig.send(1, &sealed("answer"));
    let said = rig.said();
    assert_eq!(said[..2], ["seen 1", "linked 1"], "{said:?}");
    assert!(said[2].contains("writes") && said[2].contains("+6 \"answer\""), "{said:?}");
    // The other way round: the library's side is forgotten.
    for ssl in 0..MAX_KNOWN as u64 {
        rig.plain(100 + ssl, NONE, DIR_RECV, "", 0);
    }
    rig.said();
    rig.request(1, 7, "request");
    let said = rig.said();
    assert!(said.len() == 2 && said[0] == "linked 1", "{said:?}");
}

/// What a library's connection left goes when its socket has long been closed.
#[test]
fn closed_connections_take_their_ssl_along() {
    let mut rig = Rig::shaken();
    rig.request(1, 7, "request");
    rig.close(1);
    for sock in 0..MAX_CLOSED as u64 {
        rig.open(100 + sock, socket::ROLE_ACCEPTED, 0);
        rig.handshake(100 + sock);
        rig.close(100 + sock);
    }
    assert!(rig.links.ssls.get(&(PID, tls::SslId { ssl: 7, birth_ns: 7 })).is_none());
}
