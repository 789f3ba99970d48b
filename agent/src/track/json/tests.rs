mod documents;
mod properties;

use super::{scalar::MAX_KEPT, *};

/// Feeds pieces, with a gap between them where `None` stands; the facts and the masked bytes.
fn feed_as(grammar: Grammar, pieces: &[Option<&[u8]>]) -> (Facts, Vec<u8>) {
    let mut lexer = Lexer::new(grammar);
    let mut all = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let Some(bytes) = piece else {
            lexer.gap();
            continue;
        };
        let mut bytes = bytes.to_vec();
        lexer.feed(&mut bytes, at + 1 == pieces.len());
        all.extend_from_slice(&bytes);
    }
    (lexer.facts().clone(), all)
}

fn feed(pieces: &[Option<&[u8]>]) -> (Facts, Vec<u8>) {
    feed_as(Grammar::OPENAI.both(), pieces)
}

fn as_text(grammar: Grammar, text: &str) -> (Facts, String) {
    let (facts, masked) = feed_as(grammar, &[Some(text.as_bytes())]);
    (facts, String::from_utf8(masked).unwrap())
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
    assert_eq!((facts.input_tokens(), facts.output_tokens()), (Some(7), Some(2)));
    assert_eq!(facts.finish_reason(), Some("stop"));
    assert!(facts.has_content() && !facts.error && !facts.interleaved);
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
        // llama.cpp says so of a choice that goes on.
        ("", None),
        (&long, Some("other")),
        ("stopped", Some("other")),
        ("s3cret", Some("other")),
        ("geheim", Some("other")),
        ("none", None),
    ] {
        let (facts, masked) = whole(&format!(r#"{{"choices":[{{"finish_reason":"{reason}"}}]}}"#));
        assert_eq!(facts.finish_reason(), known, "{reason}");
        assert_eq!(masked.contains(reason), known != Some("other"), "{masked}");
        assert!(["s3cret", "geheim", "aaa"].iter().all(|text| !masked.contains(text)), "{masked}");
        assert_eq!(whole(&masked).0, facts, "{masked}");
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
        assert_eq!((facts.has_content(), facts.error), (content, error), "{text}");
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
    assert_eq!((facts.input_tokens(), facts.output_tokens()), (Some(3), Some(4)));
    assert_eq!(facts.finish_reason(), Some("length"));
}

/// After a gap a member may be anybody's until it is known how far outside the root is.
#[test]
fn a_model_that_proves_to_be_no_root_s_is_neither_kept_nor_believed() {
    let head = br#"{"model_info":1,"messages":[{"role":"user","content":"lorem"#;
    for (tail, model) in [
        (r#"lost"}],"metadata":{"model":"s3cret"}}"#, None),
        (r#"lost"}],"metadata":{"model":"s3cret"},"stream":true}"#, None),
        (r#"lost"}],"metadata":{"a":{"model":"s3cret"}},"model":"m"}"#, Some("m")),
        (r#"lost"}],"tools":[{"model":"s3cret"}]}"#, None),
        (r#"lost"}],"model":"s3cret"#, None),
        // More comes with the next read: what follows its object shows that it was not the root.
        (r#"lost"}],"metadata":{"model":"s3cret"},"stream":true"#, None),
        (r#"lost"}],"metadata":{"a":1,"model":"s3cret"} , "#, None),
        (r#"lost"}],"metadata":{"model":"s3cret","a":{"id":1}},"#, None),
        (r#"lost"}],"model":"m","stream":true}"#, Some("m")),
    ] {
        let pieces: [Option<&[u8]>; 3] = [Some(head), None, Some(tail.as_bytes())];
        let (facts, masked) = feed(&pieces);
        assert_eq!(facts.model.as_deref(), model, "{tail}");
        assert!(!String::from_utf8_lossy(&masked).contains("s3cret"), "{}", String::from_utf8_lossy(&masked));
        let (a, b) = masked.split_at(head.len());
        assert_eq!(feed(&[Some(a), None, Some(b)]), (facts, masked.clone()), "{tail}");
    }
}

/// Its object may be the root, but not unless the body ends with it.
#[test]
fn a_model_at_the_end_of_a_read_stays_only_where_the_body_ends_too() {
    let text = r#"lost"}],"model":"s3cret"}"#;
    for (last, model) in [(true, Some("s3cret")), (false, None)] {
        let mut lexer = Lexer::new(Grammar::OPENAI.both());
        lexer.gap();
        let mut bytes = text.as_bytes().to_vec();
        lexer.feed(&mut bytes, last);
        assert_eq!(lexer.facts().model.as_deref(), model);
        assert_eq!(String::from_utf8(bytes).unwrap().contains("s3cret"), model.is_some());
    }
}

#[test]
fn a_side_keeps_only_what_it_may_tell() {
    let text = r#"{"model":"m","stop_reason":"end_turn","max_tokens":12,"usage":{"input_tokens":34},"type":"error"}"#;
    for (grammar, expected) in [
        (
            Grammar::ANTHROPIC.request(),
            r#"{"model":"m","stop_reason":"xxx_xxxx","max_tokens":12,"usage":{"input_tokens":11},"type":"xxxxx"}"#,
        ),
        (
            Grammar::ANTHROPIC.answer(),
            r#"{"model":"m","stop_reason":"end_turn","max_tokens":11,"usage":{"input_tokens":34},"type":"error"}"#,
        ),
        (
            Grammar::SGLANG.answer(),
            r#"{"model":"x","stop_reason":"xxx_xxxx","max_tokens":11,"usage":{"input_tokens":11},"type":"xxxxx"}"#,
        ),
    ] {
        assert_eq!(as_text(grammar, text).1, expected);
    }
}

#[test]
fn words_are_kept_only_if_listed() {
    let grammar = Grammar::RESPONSES.answer();
    for (value, kept) in [
        ("completed", true),
        ("complete", false),
        ("completed2", false),
        ("comp\\u006ceted", false),
        ("my secret", false),
        ("", true),
    ] {
        let text = format!(r#"{{"status":"{value}","model":"m"}}"#);
        let (facts, masked) = as_text(grammar, &text);
        assert_eq!((facts.finish_reason(), masked == text), ((value == "completed").then_some(value), kept));
        assert_eq!(facts.model.as_deref(), Some("m"), "{value}");
    }
}

#[test]
fn prompt_tokens_of_a_cache_are_counted() {
    let text = r#"{"usage":{"input_tokens":3,"cache_read_input_tokens":40,"cache_creation_input_tokens":500,
        "output_tokens":9}}"#;
    let facts = as_text(Grammar::ANTHROPIC.answer(), text).0;
    assert_eq!((facts.input_tokens(), facts.output_tokens()), (Some(543), Some(9)));
}

#[test]
fn usage_is_better_than_timings_whatever_their_order() {
    let usage = r#""usage":{"prompt_tokens":7,"completion_tokens":2}"#;
    let timings = r#""timings":{"prompt_n":4,"cache_n":1,"predicted_n":3}"#;
    for (text, expected) in [
        (format!("{{{usage},{timings}}}"), (Some(7), Some(2), Some("usage"))),
        (format!("{{{timings},{usage}}}"), (Some(7), Some(2), Some("usage"))),
        (format!("{{{timings}}}"), (Some(5), Some(3), Some("timings"))),
    ] {
        let facts = whole(&text).0;
        assert_eq!((facts.input_tokens(), facts.output_tokens(), facts.tokens_source()), expected, "{text}");
    }
}

#[test]
fn counts_of_one_choice_are_not_those_of_several() {
    let one = r#"{"text":"a","meta_info":{"prompt_tokens":3,"completion_tokens":1}}"#;
    let facts = as_text(Grammar::SGLANG.answer(), &format!("[{one}]")).0;
    assert_eq!((facts.output_tokens(), facts.tokens_source()), (Some(1), Some("meta_info")));
    let facts = as_text(Grammar::SGLANG.answer(), &format!("[{one},{one}]")).0;
    assert_eq!((facts.input_tokens(), facts.output_tokens(), facts.tokens_source()), (None, None, None));
    assert!(facts.has_content());
}
