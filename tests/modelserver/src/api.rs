//! The shapes of `OpenAI`'s API: requests in, chunks and answers out.

use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::text;

/// Most tokens that one request may ask for.
pub(crate) const MAX_TOKENS: u32 = 65_536;

/// Which endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

/// Why a body is refused, with status 400.
#[derive(Debug, Error)]
pub(crate) enum ApiError {
    /// Not JSON, or of the wrong types.
    #[error("the body is not a valid request: {0}")]
    Json(#[from] serde_json::Error),
    /// A field that must be there.
    #[error("you must provide the field '{0}'")]
    Missing(&'static str),
    /// A field with a value that the server does not take.
    #[error("{0}")]
    Invalid(String),
}

/// A request for tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Which endpoint.
    pub(crate) endpoint: Endpoint,
    /// Model name, echoed.
    pub(crate) model: String,
    /// Whether the answer is a stream.
    pub(crate) stream: bool,
    /// Whether a stream ends with usage.
    pub(crate) include_usage: bool,
    /// Prompt tokens.
    pub(crate) input_tokens: u32,
    /// Tokens to generate.
    pub(crate) output_tokens: u32,
    /// Whether the client set that number.
    pub(crate) limited: bool,
    /// Seed of the token texts.
    pub(crate) seed: u64,
}

impl Call {
    /// What a probe of the engine asks for: one token for one.
    pub(crate) fn probe() -> Self {
        Self {
            endpoint: Endpoint::Completions,
            model: String::new(),
            stream: false,
            include_usage: false,
            input_tokens: 1,
            output_tokens: 1,
            limited: true,
            seed: 0,
        }
    }
}

/// The list of models; one of no name where none was named.
pub(crate) fn models(names: &[String]) -> String {
    let rig = ["rig".to_owned()];
    let names = if names.is_empty() { &rig } else { names };
    let model = |name: &String| json!({ "id": name, "object": "model", "owned_by": "stagelens" });
    json!({ "object": "list", "data": names.iter().map(model).collect::<Vec<_>>() }).to_string()
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
    Nothing(()),
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
struct Message {
    content: Content,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
}

#[derive(Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    messages: Option<Vec<Message>>,
    prompt: Option<Prompt>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    n: Option<u32>,
}

/// What is used where the body says nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// Tokens to generate.
    pub(crate) max_tokens: u32,
    /// The server's seed.
    pub(crate) seed: u64,
}

fn message_text(message: &Message) -> String {
    match &message.content {
        Content::Text(text) => text.clone(),
        Content::Parts(parts) => parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join(" "),
        Content::Nothing(()) => String::new(),
    }
}

/// The prompt's text and its number of tokens.
fn prompt(endpoint: Endpoint, body: &Body) -> Result<(String, u32), ApiError> {
    let text = match (endpoint, &body.messages, &body.prompt) {
        (Endpoint::Chat, Some(messages), _) if !messages.is_empty() => {
            messages.iter().map(message_text).collect::<Vec<_>>().join("\n")
        }
        (Endpoint::Chat, ..) => return Err(ApiError::Missing("messages")),
        (Endpoint::Completions, _, Some(Prompt::Text(text))) => text.clone(),
        (Endpoint::Completions, _, Some(Prompt::Texts(texts))) if texts.len() == 1 => texts[0].clone(),
        (Endpoint::Completions, _, Some(Prompt::Texts(_))) => {
            return Err(ApiError::Invalid("one prompt at a time".into()));
        }
        (Endpoint::Completions, _, Some(Prompt::Tokens(tokens))) => {
            let count = u32::try_from(tokens.len()).unwrap_or(u32::MAX).max(1);
            return Ok((format!("{tokens:?}"), count));
        }
        (Endpoint::Completions, _, None) => return Err(ApiError::Missing("prompt")),
    };
    let count = text::count(&text);
    Ok((text, count))
}

/// Reads a request body.
pub(crate) fn parse(endpoint: Endpoint, body: &[u8], defaults: Defaults) -> Result<Call, ApiError> {
    let body: Body = serde_json::from_slice(body)?;
    let (prompt, input_tokens) = prompt(endpoint, &body)?;
    let model = body.model.filter(|model| !model.is_empty()).ok_or(ApiError::Missing("model"))?;
    let limit = body.max_completion_tokens.or(body.max_tokens);
    let output_tokens = limit.unwrap_or(defaults.max_tokens);
    if !(1..=MAX_TOKENS).contains(&output_tokens) {
        return Err(ApiError::Invalid(format!("max_tokens must be between 1 and {MAX_TOKENS}")));
    }
    if body.n.unwrap_or(1) != 1 {
        return Err(ApiError::Invalid("n must be 1".into()));
    }
    Ok(Call {
        endpoint,
        model,
        stream: body.stream,
        include_usage: body.stream_options.unwrap_or_default().include_usage,
        input_tokens,
        output_tokens,
        limited: limit.is_some(),
        seed: text::seed(defaults.seed, &prompt),
    })
}

/// An error object.
pub(crate) fn error(status: u16, message: &str) -> String {
    let kind = if status < 500 { "BadRequestError" } else { "InternalServerError" };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": status } }).to_string()
}

/// One SSE event.
pub(crate) fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

/// What the chunks of one answer have in common.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The request.
    pub(crate) call: Call,
    /// Number of the request in this server.
    pub(crate) number: u64,
    /// Wall clock, s.
    pub(crate) created: u64,
}

impl Answer {
    fn finish_reason(&self) -> &'static str {
        if self.call.limited { "length" } else { "stop" }
    }

    fn envelope(&self, chunk: bool, choices: &Value) -> Value {
        let (prefix, object) = match (self.call.endpoint, chunk) {
            (Endpoint::Chat, true) => ("chatcmpl", "chat.completion.chunk"),
            (Endpoint::Chat, false) => ("chatcmpl", "chat.completion"),
            (Endpoint::Completions, _) => ("cmpl", "text_completion"),
        };
        json!({
            "id": format!("{prefix}-{:016x}", self.number), "object": object, "created": self.created,
            "model": self.call.model, "choices": choices,
        })
    }

    fn usage(&self, tokens: u32) -> Value {
        let input = self.call.input_tokens;
        json!({ "prompt_tokens": input, "completion_tokens": tokens, "total_tokens": u64::from(input) + u64::from(tokens) })
    }

    fn chunk(&self, choice: &Value) -> String {
        let mut chunk = self.envelope(true, &json!([choice]));
        if self.call.include_usage {
            chunk["usage"] = Value::Null;
        }
        event(&chunk.to_string())
    }

    /// The first chunk of a chat: a role, no content.
    pub(crate) fn role_chunk(&self) -> Option<String> {
        let choice =
            json!({ "index": 0, "delta": { "role": "assistant", "content": "" }, "finish_reason": null });
        (self.call.endpoint == Endpoint::Chat).then(|| self.chunk(&choice))
    }

    /// A chunk with text; the last one may carry the reason why it is the last.
    pub(crate) fn content_chunk(&self, text: &str, finish: bool) -> String {
        let reason = finish.then(|| self.finish_reason());
        self.chunk(&match self.call.endpoint {
            Endpoint::Chat => json!({ "index": 0, "delta": { "content": text }, "finish_reason": reason }),
            Endpoint::Completions => {
                json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": reason })
            }
        })
    }

    /// A chunk without text that says why the answer ends.
    pub(crate) fn finish_chunk(&self) -> String {
        let reason = self.finish_reason();
        self.chunk(&match self.call.endpoint {
            Endpoint::Chat => json!({ "index": 0, "delta": {}, "finish_reason": reason }),
            Endpoint::Completions => {
                json!({ "index": 0, "text": "", "logprobs": null, "finish_reason": reason })
            }
        })
    }

    /// The chunk with usage, if the client asked for it.
    pub(crate) fn usage_chunk(&self, tokens: u32) -> Option<String> {
        let mut chunk = self.envelope(true, &json!([]));
        chunk["usage"] = self.usage(tokens);
        self.call.include_usage.then(|| event(&chunk.to_string()))
    }

    /// The whole answer of a request that is not streamed.
    pub(crate) fn whole(&self, text: &str, tokens: u32) -> String {
        let reason = self.finish_reason();
        let choice = match self.call.endpoint {
            Endpoint::Chat => json!({
                "index": 0, "message": { "role": "assistant", "content": text }, "finish_reason": reason,
            }),
            Endpoint::Completions => {
                json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": reason })
            }
        };
        let mut answer = self.envelope(false, &json!([choice]));
        answer["usage"] = self.usage(tokens);
        answer.to_string()
    }
}

#[cfg(test)]
mod tests;
