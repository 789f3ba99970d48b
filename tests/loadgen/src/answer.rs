//! What an `OpenAI` answer says, whole or in pieces.

use serde_json::Value;

/// What was learned so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    /// Content-bearing events; 1 for a whole answer with content.
    pub chunks: u32,
    /// The `usage` object, as it came last.
    pub usage: Option<Value>,
    /// Why the model stopped.
    pub finish_reason: Option<String>,
    /// Message of an error object.
    pub error: Option<String>,
    /// `data: [DONE]` came.
    pub is_done: bool,
}

impl Answer {
    /// Takes in the data of one event; true when it carries content.
    pub(crate) fn event(&mut self, data: &[u8]) -> bool {
        if data == b"[DONE]" {
            self.is_done = true;
            return false;
        }
        match serde_json::from_slice(data) {
            Ok(value) => self.object(&value, "delta"),
            Err(e) => {
                self.error.get_or_insert(format!("an event is not JSON: {e}"));
                false
            }
        }
    }

    /// Takes in a body that is not a stream. Error pages need not be JSON.
    pub(crate) fn whole(&mut self, body: &[u8]) {
        match serde_json::from_slice(body) {
            Ok(value) => drop(self.object(&value, "message")),
            Err(_) => self.error = Some(String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned()),
        }
        self.is_done = true;
    }

    fn object(&mut self, value: &Value, part: &str) -> bool {
        if let Some(error) = value.get("error").filter(|e| !e.is_null()) {
            let message = error.get("message").and_then(Value::as_str);
            self.error = Some(message.map_or_else(|| error.to_string(), str::to_owned));
        }
        if let Some(usage) = value.get("usage").filter(|u| u.is_object()) {
            self.usage = Some(usage.clone());
        }
        let choices = value.get("choices").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for reason in choices.iter().filter_map(|c| c.get("finish_reason")?.as_str()) {
            self.finish_reason = Some(reason.to_owned());
        }
        let has_content = choices.iter().any(|c| has_text(c, "text") || c.get(part).is_some_and(carries));
        self.chunks += u32::from(has_content);
        has_content
    }
}

/// Thinking and tool calls are tokens too; a role alone is none.
fn carries(message: &Value) -> bool {
    let calls = message.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty());
    calls || ["content", "reasoning_content", "reasoning"].iter().any(|key| has_text(message, key))
}

fn has_text(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_events_carry_content() {
        let cases = [
            (r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#, false),
            (r#"{"choices":[{"delta":{"content":"a"}}]}"#, true),
            (r#"{"choices":[{"delta":{"content":null,"reasoning_content":"a"}}]}"#, true),
            (r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#, true),
            (r#"{"choices":[{"text":"a"}]}"#, true),
            (r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#, false),
            (r#"{"choices":[],"usage":{"completion_tokens":3}}"#, false),
            ("[DONE]", false),
        ];
        let mut all = Answer::default();
        for (event, want) in cases {
            assert_eq!(all.event(event.as_bytes()), want, "{event}");
        }
        assert_eq!((all.chunks, all.is_done, all.error), (4, true, None));
        assert_eq!(all.finish_reason.as_deref(), Some("stop"));
        assert_eq!(all.usage.unwrap()["completion_tokens"], 3);
    }

    #[test]
    fn errors_are_kept() {
        let error = |f: &dyn Fn(&mut Answer)| {
            let mut answer = Answer::default();
            f(&mut answer);
            answer.error.unwrap()
        };
        assert_eq!(error(&|a| assert!(!a.event(br#"{"error":{"message":"broken"}}"#))), "broken");
        assert_eq!(error(&|a| a.whole(br#"{"error":"plain"}"#)), "\"plain\"");
        assert_eq!(error(&|a| a.whole(b"Internal Server Error")), "Internal Server Error");
        assert!(error(&|a| assert!(!a.event(b"{"))).contains("not JSON"));
    }
}
