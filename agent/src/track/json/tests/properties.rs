//! What must hold for all documents and streams of them, of any API.

use super::{
    as_text,
    documents::{SECRET, document, grammar},
    feed_as,
};
use crate::track::{
    body::Body,
    http1::{
        Side,
        head::{Content, Headers},
    },
    tests::Lcg,
};

#[test]
fn masked_documents_are_valid_and_tell_the_same() {
    let mut lcg = Lcg::new(7);
    for _ in 0..5000 {
        let (grammar, text) = (grammar(&mut lcg), document(&mut lcg));
        assert!(serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok(), "{text}");
        let (facts, masked) = as_text(grammar, &text);
        assert!(serde_json::from_str::<serde::de::IgnoredAny>(&masked).is_ok(), "{text}\n{masked}");
        assert_eq!(masked.len(), text.len());
        assert_eq!(as_text(grammar, &masked), (facts.clone(), masked.clone()), "{text}");
    }
}

#[test]
fn splits_do_not_matter() {
    let mut lcg = Lcg::new(11);
    for _ in 0..150 {
        let (grammar, text) = (grammar(&mut lcg), document(&mut lcg));
        let bytes = text.as_bytes();
        let (facts, _) = feed_as(grammar, &[Some(bytes)]);
        for at in 0..=bytes.len() {
            let (a, b) = bytes.split_at(at);
            let (split, masked) = feed_as(grammar, &[Some(a), Some(b)]);
            assert_eq!(split, facts, "{text} at {at}");
            let (a, b) = masked.split_at(at);
            assert_eq!(feed_as(grammar, &[Some(a), Some(b)]), (split, masked.clone()), "{text} at {at}");
        }
        let single: Vec<Option<&[u8]>> = bytes.chunks(1).map(Some).collect();
        assert_eq!(feed_as(grammar, &single).0, facts, "{text}");
    }
}

#[test]
fn gaps_tell_the_same_after_masking() {
    let mut lcg = Lcg::new(13);
    for _ in 0..5000 {
        let (grammar, text) = (grammar(&mut lcg), document(&mut lcg));
        let bytes = text.as_bytes();
        let (mut a, mut b) = (lcg.below(bytes.len() + 1), lcg.below(bytes.len() + 1));
        if a > b {
            (a, b) = (b, a);
        }
        let middle = b + lcg.below(bytes.len() - b + 1);
        let (facts, masked) =
            feed_as(grammar, &[Some(&bytes[..a]), None, Some(&bytes[b..middle]), Some(&bytes[middle..])]);
        let (head, rest) = masked.split_at(a);
        let (tail, end) = rest.split_at(middle - b);
        assert_eq!(
            feed_as(grammar, &[Some(head), None, Some(tail), Some(end)]),
            (facts, masked.clone()),
            "{text} {a}..{b}"
        );
    }
}

/// Members whose text is kept.
const KEPT: &[&str] = &[
    "done_reason",
    "finish_reason",
    "model",
    "model_name",
    "model_version",
    "reason",
    "stop_reason",
    "stop_type",
    "type",
];

/// The document without secrets where text is kept.
fn without_kept_secrets(mut text: String) -> String {
    for name in KEPT {
        for blank in ["", " ", "\n"] {
            let value = format!("\"{name}\":{blank}\"{SECRET}\"");
            text = text.replace(&value, &format!("\"{name}\":{blank}\"m\""));
        }
    }
    text
}

#[test]
fn text_does_not_stay() {
    let mut lcg = Lcg::new(17);
    let mut secrets = 0;
    for _ in 0..5000 {
        let (grammar, text) = (grammar(&mut lcg), without_kept_secrets(document(&mut lcg)));
        secrets += usize::from(text.contains(SECRET));
        let masked = as_text(grammar, &text).1;
        assert!(!masked.contains(SECRET), "{text}\n{masked}");
        let at = lcg.below(text.len() + 1);
        let tail = &text.as_bytes()[at..];
        let masked = feed_as(grammar, &[None, Some(tail)]).1;
        assert!(!String::from_utf8_lossy(&masked).contains(SECRET), "{text} from {at}");
    }
    assert!(secrets > 500, "{secrets}");
}

/// A stream of documents, some of them cut, and now and then a line that is none.
fn stream(lcg: &mut Lcg, content: Content) -> Vec<u8> {
    let mut text = String::new();
    for _ in 0..lcg.below(6) {
        let begin =
            if content == Content::Events { ["data: ", "data:", "event: "][lcg.below(3)] } else { "" };
        text.push_str(begin);
        match lcg.below(8) {
            0 => text.push_str("[DONE]"),
            1 => text.push_str(": no document"),
            2 => text.extend(document(lcg).chars().take(20)),
            _ => text.push_str(&document(lcg).replace('\n', " ")),
        }
        text.push_str(["\n\n", "\n", "\r\n\r\n"][lcg.below(3)]);
    }
    text.into_bytes()
}

/// Feeds the pieces between the cuts, with a gap at one of them; what comes of it.
fn read(content: Content, lcg_seed: u64, bytes: &[u8], cuts: &[usize]) -> (Vec<u64>, String, Vec<u8>) {
    let headers = Headers { content, ..Headers::default() };
    let mut body = Body::new(&headers, grammar(&mut Lcg::new(lcg_seed)), Side::Response);
    let (mut events, mut masked, mut from) = (Vec::new(), Vec::new(), 0);
    for (i, cut) in cuts.iter().chain([&bytes.len()]).enumerate() {
        if i == 2 {
            body.gap(None);
        }
        let mut piece = bytes[from..*cut].to_vec();
        events.push(body.feed(&mut piece, i == cuts.len()));
        masked.extend_from_slice(&piece);
        from = *cut;
    }
    (events, format!("{:?} {}", body.facts(), body.done()), masked)
}

#[test]
fn masked_streams_tell_the_same_event_by_event() {
    let mut lcg = Lcg::new(19);
    for seed in 0..1500 {
        for content in [Content::Events, Content::JsonLines] {
            let bytes = stream(&mut lcg, content);
            let mut cuts: Vec<usize> = (0..lcg.below(4)).map(|_| lcg.below(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let once = read(content, seed, &bytes, &cuts);
            let again = read(content, seed, &once.2, &cuts);
            assert_eq!(again, once, "{}", String::from_utf8_lossy(&bytes));
        }
    }
}

#[test]
fn pieces_of_a_stream_do_not_matter() {
    let mut lcg = Lcg::new(23);
    for seed in 0..50 {
        for content in [Content::Events, Content::JsonLines] {
            let bytes = stream(&mut lcg, content);
            let (events, facts, _) = read(content, seed, &bytes, &[]);
            for at in 0..=bytes.len() {
                let split = read(content, seed, &bytes, &[at]);
                assert_eq!((split.0.iter().sum(), &split.1), (events[0], &facts), "at {at}");
            }
        }
    }
}
