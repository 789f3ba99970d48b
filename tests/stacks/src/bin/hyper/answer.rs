//! The answer to a request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use serde_json::{Value, json};
use tokio::time::{Sleep, sleep};

use crate::stamped::Line;

/// Between two pieces of a stream, unless `TOKEN_INTERVAL_MS` says otherwise.
const TOKEN_INTERVAL: Duration = Duration::from_millis(2);
/// Of every prompt.
const INPUT_TOKENS: u64 = 9;

fn token_interval() -> Duration {
    let asked = std::env::var("TOKEN_INTERVAL_MS").ok().and_then(|text| text.parse().ok());
    asked.map_or(TOKEN_INTERVAL, Duration::from_millis)
}

/// How a request is answered.
pub(crate) struct Plan {
    pub(crate) streaming: bool,
    pub(crate) status: u16,
    model: Option<String>,
    chat: bool,
    tokens: u64,
    outcome: &'static str,
    reason: &'static str,
}

impl Plan {
    pub(crate) fn new(body: &[u8]) -> Self {
        let asked: Value = serde_json::from_slice(body).unwrap_or_default();
        let tokens = asked["max_tokens"].as_u64().unwrap_or(8);
        let mut plan = Self {
            streaming: asked["stream"].as_bool().unwrap_or_default(),
            status: 200,
            model: asked["model"].as_str().map(str::to_owned),
            chat: asked.get("messages").is_some(),
            tokens,
            outcome: "ok",
            reason: "stop",
        };
        match tokens {
            3 => (plan.status, plan.outcome, plan.streaming) = (400, "client_4xx", false),
            4 => (plan.status, plan.outcome, plan.streaming) = (500, "server_5xx", false),
            5 if plan.streaming => plan.outcome = "in_band_error",
            6 => (plan.outcome, plan.reason) = ("content_filter", "content_filter"),
            7 => (plan.outcome, plan.tokens) = ("empty_output", 0),
            _ => {}
        }
        plan
    }

    /// What the answer says of itself, by the names of the agent's records.
    fn said(&self, path: &str) -> Value {
        let api = if path.ends_with("/chat/completions") { "openai.chat" } else { "openai.completions" };
        match self.outcome {
            _ if self.status >= 400 => json!({"api": api}),
            "in_band_error" => json!({"api": api, "tokens_source": "chunks"}),
            _ => json!({
                "api": api, "finish_reason": self.reason, "tokens_source": "usage", "output_tokens": self.tokens,
                "input_tokens": INPUT_TOKENS,
            }),
        }
    }

    pub(crate) fn line(&self, request_id: Option<String>, method: String, path: String) -> Line {
        Line {
            said: path.ends_with("/completions").then(|| self.said(&path)),
            request_id,
            method,
            path,
            model: self.model.clone(),
            status: self.status,
            outcome: self.outcome,
            streaming: self.streaming,
            ..Line::default()
        }
    }

    fn choice(&self, key: &str, text: &str, reason: Option<&str>) -> Value {
        if self.chat {
            json!({"index": 0, key: {"role": "assistant", "content": text}, "finish_reason": reason})
        } else {
            json!({"index": 0, "text": text, "finish_reason": reason})
        }
    }

    fn usage(&self) -> Value {
        let total = INPUT_TOKENS + self.tokens;
        json!({"prompt_tokens": INPUT_TOKENS, "completion_tokens": self.tokens, "total_tokens": total})
    }

    fn event(&self, choice: &Value) -> Bytes {
        let object = json!({"object": "chat.completion.chunk", "model": self.model, "choices": [choice]});
        Bytes::from(format!("data: {object}\n\n"))
    }

    pub(crate) fn pieces(&self) -> VecDeque<Bytes> {
        if self.status >= 400 {
            return [json!({"error": {"message": "no"}}).to_string().into()].into();
        }
        if !self.streaming {
            let text = "lorem ".repeat(usize::try_from(self.tokens).unwrap_or_default());
            let choices = [self.choice("message", &text, Some(self.reason))];
            let whole = json!({"model": self.model, "choices": choices, "usage": self.usage()});
            return [whole.to_string().into()].into();
        }
        let mut pieces = VecDeque::from([self.event(&self.choice("delta", "", None))]);
        pieces.extend((0..self.tokens).map(|_| self.event(&self.choice("delta", "lorem ", None))));
        if self.outcome == "in_band_error" {
            pieces.push_back(Bytes::from_static(b"data: {\"error\": {\"message\": \"broke\"}}\n\n"));
        } else {
            pieces.push_back(self.event(&self.choice("delta", "", Some(self.reason))));
            let usage = json!({"model": self.model, "choices": [], "usage": self.usage()});
            pieces.push_back(Bytes::from(format!("data: {usage}\n\n")));
        }
        pieces.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        pieces
    }
}

/// A body that comes in pieces, one an interval, or at once.
pub(crate) struct Pieces {
    left: VecDeque<Bytes>,
    sleep: Option<Pin<Box<Sleep>>>,
    interval: Duration,
}

impl Pieces {
    pub(crate) fn new(left: VecDeque<Bytes>, slowly: bool) -> Self {
        let interval = token_interval();
        Self { left, sleep: slowly.then(|| Box::pin(sleep(interval))), interval }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let interval = self.interval;
        if let Some(sleep) = self.sleep.as_mut() {
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // From when it was due, so that the rate is kept; but what was missed is not made up for in a burst.
            let due = sleep.deadline() + interval;
            sleep.as_mut().reset(due.max(tokio::time::Instant::now()));
        }
        Poll::Ready(self.left.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        match self.sleep {
            Some(_) => SizeHint::default(),
            None => SizeHint::with_exact(self.left.iter().map(|piece| piece.len() as u64).sum()),
        }
    }
}
