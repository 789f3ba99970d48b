use super::*;

const DEFAULTS: Defaults = Defaults { max_tokens: 7, seed: 1 };

fn call(endpoint: Endpoint, body: &str) -> Result<Call, String> {
    parse(endpoint, body.as_bytes(), DEFAULTS).map_err(|error| error.to_string())
}

#[test]
fn prompts_are_counted_in_words() {
    use Endpoint::{Chat, Completions};
    let cases = [
        (Completions, r#"{"model":"m","prompt":"a b c"}"#, 3, 7),
        (Completions, r#"{"model":"m","prompt":["a b"],"max_tokens":2}"#, 2, 2),
        (Completions, r#"{"model":"m","prompt":[1,2,3,4]}"#, 4, 7),
        (Completions, r#"{"model":"m","prompt":""}"#, 1, 7),
        (
            Chat,
            r#"{"model":"m","messages":[{"role":"user","content":"a b"},{"role":"user","content":"c"}]}"#,
            3,
            7,
        ),
        (
            Chat,
            r#"{"model":"m","messages":[{"content":[{"type":"text","text":"a b"}]}],"max_tokens":3}"#,
            2,
            3,
        ),
        (
            Chat,
            r#"{"model":"m","messages":[{"content":null}],"max_completion_tokens":4,"max_tokens":3}"#,
            1,
            4,
        ),
    ];
    for (endpoint, body, input, output) in cases {
        let call = call(endpoint, body).unwrap();
        assert_eq!((call.input_tokens, call.output_tokens), (input, output), "{body}");
    }
}

#[test]
fn bad_bodies_say_what_is_wrong() {
    use Endpoint::{Chat, Completions};
    let cases = [
        (Completions, "{", "not a valid request"),
        (Completions, r#"{"prompt":"a"}"#, "'model'"),
        (Completions, r#"{"model":"","prompt":"a"}"#, "'model'"),
        (Completions, r#"{"model":"m"}"#, "'prompt'"),
        (Completions, r#"{"model":"m","prompt":["a","b"]}"#, "one prompt"),
        (Chat, r#"{"model":"m","prompt":"a"}"#, "'messages'"),
        (Chat, r#"{"model":"m","messages":[]}"#, "'messages'"),
        (Completions, r#"{"model":"m","prompt":"a","max_tokens":0}"#, "between 1 and"),
        (Completions, r#"{"model":"m","prompt":"a","max_tokens":99999999}"#, "between 1 and"),
        (Completions, r#"{"model":"m","prompt":"a","n":2}"#, "n must be 1"),
    ];
    for (endpoint, body, expected) in cases {
        let message = call(endpoint, body).unwrap_err();
        assert!(message.contains(expected), "{body}: {message}");
    }
}

#[test]
fn chunks_have_openais_shape() {
    let body = r#"{"model":"m","messages":[{"content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}"#;
    let answer = Answer { call: call(Endpoint::Chat, body).unwrap(), number: 10, created: 5 };
    let value = |event: &str| -> Value {
        serde_json::from_str(event.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap()).unwrap()
    };
    let content = value(&answer.content_chunk(" x", true));
    assert_eq!(content["choices"][0], json!({"index":0,"delta":{"content":" x"},"finish_reason":"stop"}));
    assert_eq!((&content["object"], &content["usage"]), (&json!("chat.completion.chunk"), &Value::Null));
    assert_eq!(value(&answer.role_chunk().unwrap())["choices"][0]["delta"]["role"], "assistant");
    let usage = value(&answer.usage_chunk(3).unwrap());
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"], json!({"prompt_tokens":1,"completion_tokens":3,"total_tokens":4}));
    let whole: Value = serde_json::from_str(&answer.whole(" x y", 2)).unwrap();
    assert_eq!(whole["choices"][0]["message"]["content"], " x y");
    assert_eq!(whole["usage"]["completion_tokens"], 2);
}
