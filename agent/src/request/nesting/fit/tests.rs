//! What tells two outer exchanges apart: a table.

use super::*;

const CLIENT: Client = Client { pid: 7, tid: 70 };

fn sight() -> Sight {
    Sight {
        method: Some("POST".into()),
        path: Some("/v1/chat/completions".into()),
        model: Some("m".into()),
        streaming: Some(true),
        max_tokens: Some(16),
        body_bytes: Some(200),
        reader_tid: 70,
        ..Sight::default()
    }
}

/// The inner exchange.
fn asked() -> Sight {
    Sight { chunks: Some(8), output_tokens: Some(8), ..answered(1_000_000_000, 2_000_000_000) }
}

fn answered(first: u64, last: u64) -> Sight {
    Sight { first_token_ns: Some(first), last_byte_out_ns: Some(last), ..sight() }
}

fn id(sight: Sight, id: &str) -> Sight {
    Sight { request_id: Some(id.into()), ..sight }
}

fn trace(sight: Sight, id: &str) -> Sight {
    Sight { trace_id: Some(id.into()), ..sight }
}

#[derive(Debug, PartialEq)]
enum Verdict {
    /// The first fits better, for certain.
    Certain,
    /// It fits better.
    Better,
    Same,
}

fn verdict(one: &Sight, other: &Sight, inner: &Sight) -> Verdict {
    let [one, other] = [one, other].map(|outer| Fit::of(outer, inner, CLIENT, true, true));
    assert!(one >= other, "the wrong one: {one:?} {other:?}");
    match (one.strong > other.strong, one > other) {
        (true, _) => Verdict::Certain,
        (false, true) => Verdict::Better,
        (false, false) => Verdict::Same,
    }
}

#[test]
fn what_tells_them_apart() {
    use Verdict::{Better, Certain, Same};
    let own = sight;
    // Name, the one that it is, another one, the inner one, how sure that is.
    let cases: Vec<(&str, Sight, Sight, Sight, Verdict)> = vec![
        ("nothing", own(), own(), asked(), Same),
        ("request id", id(own(), "a"), id(own(), "b"), id(asked(), "a"), Certain),
        ("request id, the other one's not known", id(own(), "a"), own(), id(asked(), "a"), Certain),
        ("request ids of the proxy's own", id(own(), "a"), id(own(), "b"), id(asked(), "c"), Same),
        ("trace id", trace(own(), "a"), trace(own(), "b"), trace(asked(), "a"), Certain),
        (
            "id against everything else",
            id(Sight { model: Some("x".into()), max_tokens: None, ..own() }, "a"),
            id(own(), "b"),
            id(asked(), "a"),
            Certain,
        ),
        ("length", own(), Sight { body_bytes: Some(201), ..own() }, asked(), Certain),
        (
            "no body has no length",
            Sight { body_bytes: Some(0), ..own() },
            Sight { body_bytes: Some(1), ..own() },
            Sight { body_bytes: Some(0), ..asked() },
            Same,
        ),
        ("model", own(), Sight { model: Some("n".into()), ..own() }, asked(), Certain),
        ("model, renamed", own(), own(), Sight { model: Some("file.gguf".into()), ..asked() }, Same),
        ("limit of tokens", own(), Sight { max_tokens: Some(17), ..own() }, asked(), Certain),
        ("limit of tokens, one unknown", own(), Sight { max_tokens: None, ..own() }, asked(), Certain),
        ("path", own(), Sight { path: Some("/api/chat".into()), ..own() }, asked(), Better),
        ("method", own(), Sight { method: Some("PUT".into()), ..own() }, asked(), Better),
        ("streaming", own(), Sight { streaming: Some(false), ..own() }, asked(), Better),
        ("thread", own(), Sight { reader_tid: 71, ..own() }, asked(), Better),
        (
            "number of events",
            Sight { chunks: Some(8), ..own() },
            Sight { chunks: Some(9), ..own() },
            asked(),
            Certain,
        ),
        (
            "tokens",
            Sight { output_tokens: Some(8), ..own() },
            Sight { output_tokens: Some(9), ..own() },
            asked(),
            Certain,
        ),
        (
            "events gathered by the proxy, tokens kept",
            Sight { chunks: Some(3), output_tokens: Some(8), ..own() },
            Sight { chunks: Some(8), output_tokens: Some(9), ..own() },
            asked(),
            Certain,
        ),
        (
            "a first token before there was one",
            answered(1_001_000_000, 2_001_000_000),
            answered(900_000_000, 2_001_000_000),
            asked(),
            Certain,
        ),
        (
            "an end before there was one",
            answered(1_001_000_000, 2_001_000_000),
            answered(1_001_000_000, 1_900_000_000),
            asked(),
            Certain,
        ),
        (
            "a write that seems to come a little early, against one much later",
            answered(999_000_000, 1_999_900_000),
            answered(1_004_000_000, 2_004_000_000),
            asked(),
            Better,
        ),
        (
            "close ends",
            answered(1_000_100_000, 2_000_100_000),
            answered(1_000_100_000, 2_003_000_000),
            asked(),
            Better,
        ),
        (
            "in flight, against an answer much later",
            own(),
            answered(1_500_000_000, 2_500_000_000),
            asked(),
            Same,
        ),
    ];
    for (name, it, other, inner, want) in cases {
        assert_eq!(verdict(&it, &other, &inner), want, "{name}");
    }
}

/// A broken-off answer ends before the one that it would have come from: that says nothing.
#[test]
fn broken_off() {
    let outer = answered(1_001_000_000, 1_500_000_000);
    let fit = |is_whole| Fit::of(&outer, &asked(), CLIENT, true, is_whole).strong;
    assert!(fit(false) > 0 && fit(true) < 0);
}

#[test]
fn one_that_has_nothing_yet_comes_first() {
    let fit = |is_free| Fit::of(&sight(), &asked(), CLIENT, is_free, true);
    assert!(fit(true) > fit(false) && fit(true).strong == fit(false).strong);
}
