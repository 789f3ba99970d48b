use super::{scalar::MAX_KEPT, *};
use crate::track::tests::Lcg;

/// Feeds pieces, with a gap between them where `None` stands; the facts and the masked bytes.
fn feed(pieces: &[Option<&[u8]>]) -> (Facts, Vec<u8>) {
    let mut lexer = Lexer::new();
    let mut all = Vec::new();
    for piece in pieces {
        let Some(bytes) = piece else {
            lexer.gap();
            continue;
        };
        let mut bytes = bytes.to_vec();
        lexer.feed(&mut bytes);
        all.extend_from_slice(&bytes);
    }
    (lexer.facts().clone(), all)
}

fn whole(text: &str) -> (Facts, String) {
    let (facts, masked) = feed(&[Some(text.as_bytes())]);
    (facts, String::from_utf8(masked).unwrap())
}

#[test]
fn a_request_keeps_its_parameters_and_loses_its_text() {
    let (facts, masked) = whole(
        r#"{"messages":[{"role":"user","content":"my pin is 1234 \"model\":\"x\" é"}],"model":"org\/m-1","user":"bob",
        "max_tokens":128,"temperature":0.25,"stream":true,"stream_options":{"include_usage":true},"secret7":null}"#,
    );
    assert_eq!(facts.model.as_deref(), Some("org/m-1"));
    assert_eq!((facts.stream, facts.max_tokens, facts.include_usage), (Some(true), Some(128), Some(true)));
    assert_eq!(
        masked,
        r#"{"messages":[{"role":"xxxx","content":"xx xxx xx xxxx xxxxxxxxx:xxxxx xx"}],"model":"org\/m-1","xxxx":"xxx",
        "max_tokens":128,"temperature":1.11,"stream":true,"stream_options":{"include_usage":true},"xxxxxxx":null}"#
    );
}

#[test]
fn an_answer_keeps_its_counts() {
    let (facts, masked) = whole(
        r#"{"id":"c-1","object":"chat.completion","created":17,"model":"m","choices":[{"index":0,"message":
        {"role":"assistant","content":"secret"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,
        "completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":5}}}"#,
    );
    assert_eq!((facts.input_tokens, facts.output_tokens), (Some(7), Some(2)));
    assert_eq!(facts.finish_reason.as_deref(), Some("stop"));
    assert!(facts.any_content && !facts.error && !facts.interleaved);
    assert!(!masked.contains("secret") && masked.contains(r#""created":11"#), "{masked}");
}

/// It is a name of the engine's; a server can put text there all the same.
#[test]
fn a_finish_reason_is_a_word() {
    let long = "a".repeat(300);
    for (reason, known) in [
        ("stop", Some("stop")),
        ("MAX_TOKENS", Some("MAX_TOKENS")),
        ("the s3cret", Some("other")),
        ("", Some("")),
        (&long, None),
    ] {
        let (facts, masked) = whole(&format!(r#"{{"choices":[{{"finish_reason":"{reason}"}}]}}"#));
        assert_eq!(facts.finish_reason.as_deref(), known, "{reason}");
        assert!(!masked.contains(&"a".repeat(33)));
    }
}

#[test]
fn what_is_content_and_what_is_an_error() {
    for (text, content, error) in [
        (r#"{"choices":[{"delta":{"content":""}}]}"#, false, false),
        (r#"{"choices":[{"delta":{"content":"a"}}]}"#, true, false),
        (r#"{"choices":[{"delta":{"content":"\n"}}]}"#, true, false),
        (r#"{"choices":[{"delta":{"reasoning":"a"}}]}"#, true, false),
        (r#"{"choices":[{"message":{"tool_calls":[{"id":"a"}]}}]}"#, true, false),
        (r#"{"choices":[{"message":{"content":null,"tool_calls":[]}}]}"#, false, false),
        (r#"{"choices":[{"text":"a"}]}"#, true, false),
        (r#"{"content":"a","text":"b","delta":{"content":"c"}}"#, false, false),
        (r#"{"error":{"message":"a"}}"#, false, true),
        (r#"{"error":"a"}"#, false, true),
        (r#"{"error":""}"#, false, false),
        (r#"{"error":null,"x":{"error":"a"}}"#, false, false),
        (r#"{"object":"error","message":"a"}"#, false, true),
    ] {
        let (facts, masked) = whole(text);
        assert_eq!((facts.any_content, facts.error), (content, error), "{text}");
        assert_eq!(whole(&masked).0, facts, "{text}");
    }
}

#[test]
fn only_the_roots_model_counts() {
    for (text, expected) in [
        (r#"{"a":{"model":"x"},"model":"m","b":[{"model":"y"}]}"#, Some("m")),
        (r#"{"model":{"model":"x"}}"#, None),
        (r#"[{"model":"x"}]"#, None),
        (r#"{"model":7}"#, None),
        (r#"{"mode":"x","models":"y"}"#, None),
    ] {
        assert_eq!(whole(text).0.model.as_deref(), expected, "{text}");
    }
    let long = format!(r#"{{"model":"{}","stream":false}}"#, "m".repeat(MAX_KEPT + 1));
    assert_eq!((whole(&long).0.model, whole(&long).0.stream), (None, Some(false)));
}

#[test]
fn two_choices_with_content_interleave() {
    let event = |index: u32| format!(r#"{{"choices":[{{"index":{index},"delta":{{"content":"a"}}}}]}}"#);
    let one = [event(1), event(1)].join("\n");
    let two = [event(0), event(1)].join("\n");
    assert!(!whole(&one).0.interleaved);
    assert!(whole(&two).0.interleaved);
    assert!(whole(r#"{"choices":[{"text":"a"},{"text":"b","index":1}]}"#).0.interleaved);
}

#[test]
fn what_is_not_json_is_masked_whole() {
    for (text, expected) in [
        ("secret", "xxxxxx"),
        ("{secret}", "{xxxxxx}"),
        (r#"{"model":tralala,"model":"m"}"#, r#"{"model":trxxxxx,"xxxxx":"x"}"#),
        (r#"{"a":1}]secret"#, r#"{"x":1}]xxxxxx"#),
        ("pin=1234&b", "xxx=xxxx&x"),
    ] {
        let (facts, masked) = whole(text);
        assert_eq!(masked, expected);
        assert_eq!(whole(&masked), (facts, masked.clone()));
    }
    let deep = "[".repeat(MAX_DEPTH + 1) + r#"{"model":"m"}"#;
    assert_eq!(whole(&deep).0.model, None);
}

#[test]
fn the_tail_of_a_body_is_understood_after_a_gap() {
    for (tail, model, stream) in [
        (r#" quoted \"model\":\"x\" text"}],"model":"m","stream":true}"#, Some("m"), Some(true)),
        // Whether these quotes are escaped is not known.
        (r#""model":"x"}],"stream":true,"model": "m"}"#, Some("m"), Some(true)),
        (r#"\"model":"x"},"model":"m"}"#, Some("m"), None),
        // Members of the root win over members of something in it, whatever their order.
        (r#"lost","model":"inner"}}],"model":"m","tools":[{"function":{"model":"y"}}]}"#, Some("m"), None),
        (r#"lost"}],"model":"m","metadata":{"model":"inner"}}"#, Some("m"), None),
        (r#"lost",1,"x"],[true,null],"model":"m"}"#, Some("m"), None),
        ("no quotes at all", None, None),
        (r#"lost"}],"stream":false}"#, None, Some(false)),
        (r#"","model"#, None, None),
    ] {
        let head = br#"{"messages":[{"role":"user","content":"secret"#;
        let pieces: [Option<&[u8]>; 3] = [Some(head), None, Some(tail.as_bytes())];
        let (facts, masked) = feed(&pieces);
        assert_eq!((facts.model.as_deref(), facts.stream), (model, stream), "{tail}");
        let (a, b) = masked.split_at(head.len());
        assert_eq!(feed(&[Some(a), None, Some(b)]), (facts, masked.clone()), "{tail}");
    }
    let tail = br#"secret"},"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
    let (facts, _) = feed(&[None, Some(tail)]);
    assert_eq!((facts.input_tokens, facts.output_tokens), (Some(3), Some(4)));
    assert_eq!(facts.finish_reason.as_deref(), Some("length"));
}

// A deterministic generator of documents that look like those of the APIs.

const NAMES: &[&str] = &[
    "model",
    "stream",
    "max_tokens",
    "choices",
    "delta",
    "message",
    "content",
    "usage",
    "prompt_tokens",
    "completion_tokens",
    "finish_reason",
    "index",
    "error",
    "object",
    "tool_calls",
    "stream_options",
    "include_usage",
    "text",
    "user",
    "mode",
    "",
    "naïve",
    "a\\\"b",
    "top\\u0041",
];
const TEXTS: &[&str] = &[
    "",
    "stop",
    "hello 42",
    "a\\\"model\\\":\\\"x\\\",",
    "\\\\",
    "\\u00e9\\n",
    "日本語",
    "{}[]:,",
    "content_filter",
    "\\\\\\\"",
];
const NUMBERS: &[&str] = &["0", "7", "-1.5e3", "1234567890123456789", "99999999999999999999999", "0.25"];

fn generate(lcg: &mut Lcg, depth: u32, out: &mut String) {
    let blank = [" ", "\n", "", "", ""][lcg.below(5)];
    out.push_str(blank);
    match lcg.below(if depth > 5 { 4 } else { 8 }) {
        0 => out.push_str(NUMBERS[lcg.below(NUMBERS.len())]),
        1 => out.push_str(["true", "false", "null"][lcg.below(3)]),
        2 | 3 => {
            out.push('"');
            out.push_str(TEXTS[lcg.below(TEXTS.len())]);
            out.push('"');
        }
        4 | 5 => list(lcg, depth, out, ['[', ']'], false),
        _ => list(lcg, depth, out, ['{', '}'], true),
    }
    out.push_str(blank);
}

fn list(lcg: &mut Lcg, depth: u32, out: &mut String, around: [char; 2], named: bool) {
    out.push(around[0]);
    for i in 0..lcg.below(5) {
        if i > 0 {
            out.push(',');
        }
        if named {
            out.push('"');
            out.push_str(NAMES[lcg.below(NAMES.len())]);
            out.push_str("\":");
        }
        generate(lcg, depth + 1, out);
    }
    out.push(around[1]);
}

#[test]
fn masked_documents_are_valid_and_tell_the_same() {
    let mut lcg = Lcg::new(7);
    for _ in 0..3000 {
        let mut text = String::new();
        list(&mut lcg, 0, &mut text, ['{', '}'], true);
        assert!(serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok(), "{text}");
        let (facts, masked) = whole(&text);
        assert!(serde_json::from_str::<serde::de::IgnoredAny>(&masked).is_ok(), "{text}\n{masked}");
        assert_eq!(masked.len(), text.len());
        assert_eq!(whole(&masked), (facts.clone(), masked.clone()), "{text}");
    }
}

#[test]
fn splits_do_not_matter() {
    let mut lcg = Lcg::new(11);
    for _ in 0..150 {
        let mut text = String::new();
        list(&mut lcg, 0, &mut text, ['{', '}'], true);
        let bytes = text.as_bytes();
        let (facts, _) = feed(&[Some(bytes)]);
        for at in 0..=bytes.len() {
            let (a, b) = bytes.split_at(at);
            let (split, masked) = feed(&[Some(a), Some(b)]);
            assert_eq!(split, facts, "{text} at {at}");
            let (a, b) = masked.split_at(at);
            assert_eq!(feed(&[Some(a), Some(b)]), (split, masked.clone()), "{text} at {at}");
        }
        let single: Vec<Option<&[u8]>> = bytes.chunks(1).map(Some).collect();
        assert_eq!(feed(&single).0, facts, "{text}");
    }
}

#[test]
fn gaps_tell_the_same_after_masking() {
    let mut lcg = Lcg::new(13);
    for _ in 0..3000 {
        let mut text = String::new();
        list(&mut lcg, 0, &mut text, ['{', '}'], true);
        let bytes = text.as_bytes();
        let (mut a, mut b) = (lcg.below(bytes.len() + 1), lcg.below(bytes.len() + 1));
        if a > b {
            (a, b) = (b, a);
        }
        let middle = b + lcg.below(bytes.len() - b + 1);
        let (facts, masked) =
            feed(&[Some(&bytes[..a]), None, Some(&bytes[b..middle]), Some(&bytes[middle..])]);
        let (head, rest) = masked.split_at(a);
        let (tail, end) = rest.split_at(middle - b);
        assert_eq!(
            feed(&[Some(head), None, Some(tail), Some(end)]),
            (facts, masked.clone()),
            "{text} {a}..{b}"
        );
    }
}
