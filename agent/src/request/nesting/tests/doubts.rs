//! What seems to belong to a request and does not, or not for sure.

use super::*;
use crate::{request::nesting::patience::KEPT_EVENTS, track::ContentEvent};

fn asked(model: &str, max_tokens: u64) -> impl FnOnce(&mut Exchange) {
    let model = model.to_owned();
    move |exchange| (exchange.model, exchange.max_tokens) = (Some(model), Some(max_tokens))
}

/// A front and its runner, one service: the runner notices a little later.
#[test]
fn a_give_up_counts_once_and_not_behind_the_front() {
    let mut rig = Rig::default();
    for n in 0..4 {
        let ms = 10_000 * n;
        rig.read(2 * n, NGINX, ms, None, nothing);
        rig.read(2 * n + 1, ENGINE, ms + 20, Some(NGINX), |e| {
            (e.service, e.local_port) = (Some(ServiceId(NGINX)), Some(8081));
        });
        for (id, ms) in [(2 * n, ms + 5000), (2 * n + 1, ms + 5080)] {
            rig.finish(id, ms, |e| {
                e.outcome = Some(Outcome::ClientDisconnect);
                (e.status, e.last_byte_out_ns, e.close_ns) = (None, None, Some(ms * MS));
            });
        }
        let Ended { exchange, deadline, inner, .. } = rig.last();
        assert_eq!((exchange.id, inner.unwrap().count), (Some(ExchangeId(2 * n)), 1));
        assert_eq!(deadline.map(|deadline| deadline.samples), (n == 3).then_some(4));
    }
}

/// When the inner answer ends, what changes of it, and what is told.
type Case = (u64, fn(&mut Exchange), &'static [&'static str]);

#[test]
fn what_goes_on_when_all_is_answered_is_none_of_it() {
    let broken_off = |e: &mut Exchange| e.outcome = Some(Outcome::ClientDisconnect);
    let cases: [Case; 3] =
        [(219, nothing, &["0: 1 @ 3"]), (221, nothing, &["1", "0"]), (221, broken_off, &["0: 1 @ 3"])];
    for (ms, change, want) in cases {
        let mut rig = Rig::default();
        rig.read(0, NGINX, 100, None, nothing);
        rig.read(1, ENGINE, 110, Some(NGINX), nothing);
        rig.finish(0, 200, nothing);
        rig.finish(1, ms, change);
        assert_eq!(rig.told(), want, "{ms}");
    }
}

/// The only one in flight need not be it. A proxy may rename a model.
#[test]
fn what_contradicts_is_flagged_though_it_is_the_only_one() {
    for (max_tokens, want) in [(7, "0: 1 @ 3"), (8, "0: 1 @ 3?")] {
        let mut rig = Rig::default();
        rig.read(0, NGINX, 100, None, asked("a", 7));
        rig.read(1, ENGINE, 110, Some(NGINX), asked("b", max_tokens));
        rig.finish(1, 200, nothing);
        rig.finish(0, 201, nothing);
        assert_eq!(rig.told(), [want]);
    }
}

/// A stream that never ends, and what seems to belong to it.
#[test]
fn content_that_waits_is_bounded() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, nothing);
    let event = ContentEvent { time_ns: 1, tid: 1 };
    for id in 1..=6 {
        rig.read(id, ENGINE, 110, Some(NGINX), nothing);
        rig.finish(id, 120, |e| e.content = vec![event; KEPT_EVENTS / 4]);
    }
    assert_eq!((rig.told(), rig.health.limits["nested_events"]), (vec!["1?".to_owned(), "2?".to_owned()], 2));
    rig.finish(0, 200, nothing);
    assert_eq!(rig.told(), ["1?", "2?", "0: 4 @ 3"]);
    // And of one that waits for something that does not end.
    for outer in [10, 20] {
        rig.read(outer, NGINX, 300, None, nothing);
        rig.read(outer + 1, ENGINE, 310, Some(NGINX), nothing);
        rig.finish(outer, 320, |e| e.content = vec![event; KEPT_EVENTS - 1]);
    }
    assert_eq!((rig.told().pop(), rig.health.limits["nested_events"]), (Some("10".to_owned()), 3));
}

#[test]
fn tokens_are_those_of_all_parts_of_a_kind() {
    let cases = [([Some(3), Some(5), Some(4)], Some(12)), ([Some(3), None, Some(4)], None)];
    for (parts, want) in cases {
        let mut rig = Rig::default();
        rig.read(0, NGINX, 100, None, nothing);
        for (id, tokens) in (1..).zip(parts) {
            rig.read(id, ENGINE, 110, Some(NGINX), |e| e.api = Some("openai.chat".into()));
            rig.finish(id, 200, |e| (e.output_tokens, e.tokens_source) = (tokens, tokens.and(Some("usage"))));
        }
        rig.read(4, ENGINE, 110, Some(NGINX), |e| e.api = Some("openai.embeddings".into()));
        rig.finish(4, 200, |e| e.input_tokens = Some(1000));
        rig.read(5, ENGINE, 110, Some(NGINX), |e| e.api = Some("openai.chat".into()));
        rig.finish(5, 200, |e| (e.status, e.outcome) = (Some(503), Some(Outcome::Server5xx)));
        rig.finish(0, 201, nothing);
        let Ended { exchange, inner, .. } = rig.last();
        assert_eq!((inner.unwrap().count, exchange.output_tokens, exchange.input_tokens), (5, want, None));
        assert_eq!(exchange.tokens_source, want.and(Some("usage")));
    }
}

#[test]
fn a_request_is_no_part_of_a_probe() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, |e| e.probe = true);
    rig.read(1, ENGINE, 110, Some(NGINX), nothing);
    rig.finish(1, 200, nothing);
    rig.finish(0, 201, nothing);
    assert_eq!((rig.told(), rig.health.requests["probe"]), (vec!["1".to_owned()], 1));
}

/// Request 0 ends with the answer that seemed to be 3's: what seemed to be its own is not of 3, which came later.
#[test]
fn a_guess_is_not_put_right_by_one_that_began_later() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, nothing);
    rig.read(1, NGINX, 100, None, nothing);
    rig.read(2, ENGINE, 105, Some(NGINX), nothing);
    rig.finish(1, 108, nothing);
    rig.read(3, NGINX, 110, None, nothing);
    rig.read(4, ENGINE, 111, Some(NGINX), nothing);
    rig.finish(2, 150, nothing);
    rig.finish(4, 200, nothing);
    rig.finish(0, 201, nothing);
    rig.finish(3, 300, nothing);
    assert_eq!(rig.told(), ["1", "0: 2 @ 3?", "3"]);
}

#[test]
fn what_loses_a_guess_waits_no_longer() {
    let mut rig = Rig::default();
    rig.read(0, NGINX, 100, None, nothing);
    rig.read(1, NGINX, 100, None, nothing);
    rig.read(2, ENGINE, 110, Some(NGINX), nothing);
    rig.finish(0, 200, nothing);
    assert!(rig.told().is_empty());
    rig.finish(2, 300, nothing);
    assert_eq!(rig.told(), ["0"]);
    rig.finish(1, 301, nothing);
    assert_eq!(rig.told(), ["0", "1: 1 @ 3"]);
}

/// A server that asks itself, on the port it was asked on and on another one.
#[test]
fn what_comes_back_to_the_same_port_is_a_request_of_its_own() {
    for (port, want) in [(80, &["1", "0"][..]), (81, &["0: 1 @ 3"])] {
        let mut rig = Rig::default();
        let on = |port| move |e: &mut Exchange| e.local_port = Some(port);
        rig.read(0, ENGINE, 100, None, on(80));
        rig.read(1, ENGINE, 110, Some(ENGINE), on(port));
        rig.finish(1, 200, on(port));
        rig.finish(0, 201, on(80));
        assert_eq!(rig.told(), want, "{port}");
    }
}

/// An engine that generates by itself and lets a guard look at what it says: each is a request of its own.
#[test]
fn what_interrupts_an_answer_is_a_request_of_its_own() {
    let streams = |from: u64| {
        move |e: &mut Exchange| {
            let event = |ms| ContentEvent { time_ns: ms * MS, tid: 1 };
            e.first_token_ns = Some(from * MS);
            e.content = (0..5).map(|n| event(from + 10 * n)).collect();
        }
    };
    // When the guard is asked, when the engine's stream begins, and what is told.
    let cases: [(u64, u64, &[&str], Option<u64>); 3] = [
        (150, 140, &["1", "0"], None),
        // Before the first token: within the request, and not where its tokens come from.
        (110, 140, &["0: 1 @ 2?"], None),
        // While its answer comes, the one in front hands it on.
        (110, 115, &["0: 1 @ 2"], Some(3)),
    ];
    for (asked_ms, from, want, tokens) in cases {
        let mut rig = Rig::default();
        rig.read(0, ENGINE, 100, None, nothing);
        rig.read(1, ROUTER, asked_ms, Some(ENGINE), nothing);
        rig.finish(1, asked_ms + 10, |e| e.output_tokens = Some(3));
        rig.finish(0, 200, streams(from));
        assert_eq!(
            (rig.told(), rig.last().exchange.output_tokens),
            (want.iter().map(|&t| t.to_owned()).collect(), tokens)
        );
    }
}

/// A guard of another model tells tokens of its own; a proxy that renames a model hands them on.
#[test]
fn tokens_of_another_model_are_not_the_answer_s() {
    for (max_tokens, want, tokens) in [(7, "0: 1 @ 3", Some(9)), (8, "0: 1 @ 3?", None)] {
        let mut rig = Rig::default();
        rig.read(0, NGINX, 100, None, asked("a", 7));
        rig.read(1, ENGINE, 110, Some(NGINX), asked("b", max_tokens));
        rig.finish(1, 200, |e| e.output_tokens = Some(9));
        rig.finish(0, 201, nothing);
        assert_eq!((rig.told(), rig.last().exchange.output_tokens), (vec![want.to_owned()], tokens));
    }
}

/// A guard that is asked before a whole answer, or an engine whose answer is handed on late: nothing tells which.
#[test]
fn tokens_of_an_answer_that_is_handed_on_late_are_a_guess() {
    // When the outer answer is written, what it says of tokens itself, and what is told.
    let cases: [(u64, Option<u64>, &str, Option<u64>); 4] = [
        (201, None, "0: 1 @ 3", Some(9)),
        (219, None, "0: 1 @ 3", Some(9)),
        (221, None, "0: 1 @ 3?", Some(9)),
        (221, Some(4), "0: 1 @ 3", Some(4)),
    ];
    for (written_ms, own, want, tokens) in cases {
        let mut rig = Rig::default();
        rig.read(0, NGINX, 100, None, nothing);
        rig.read(1, ENGINE, 110, Some(NGINX), nothing);
        rig.finish(1, 200, |e| e.output_tokens = Some(9));
        rig.finish(0, written_ms, |e| {
            e.first_byte_out_ns = Some(written_ms * MS);
            e.output_tokens = own;
        });
        assert_eq!((rig.told(), rig.last().exchange.output_tokens), (vec![want.to_owned()], tokens));
    }
}
