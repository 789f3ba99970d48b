//! Bodies of the APIs: what they tell does not depend on how they were cut, and no text in them stays.
//!
//! In a body that is valid, every string but those of kept members gets a mark, which must be gone afterwards. In
//! one that is not, nobody can say what is a string, so there it is only compared.

use agent::track::Exchange;
use serde_json::Value;
use wire::socket::{DIR_RECV, DIR_SEND};

use crate::{exchanges, make::Captured};

/// No name, word or number of any API has it, and masked it is not itself. An input that has it by itself, in a model's
/// name perhaps, which is kept, is left out.
const MARK: &str = "\u{e9}ZQZ";
/// Members whose text is kept.
const KEPT: [&str; 9] = [
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
pub(crate) const PATHS: [&str; 14] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/messages",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/v2/models/m/infer",
    "/generate",
    "/generate_stream",
    "/completion",
    "/predictions/m",
    "/other",
];

/// JSON: the first octet chooses the API, the second the side and the pieces.
pub fn json(data: &[u8]) {
    let [api, how, body @ ..] = data else { return };
    if contains(body, MARK.as_bytes()) {
        return;
    }
    let marked = std::str::from_utf8(body).ok().and_then(mark);
    let marked = marked.as_ref().map_or(body, |text| text.as_bytes());
    check(Case { api: *api, request: how & 1 == 0, content: "application/json", body: marked }, how >> 1);
}

/// Streams: likewise, and events or lines.
pub fn events(data: &[u8]) {
    let [api, how, body @ ..] = data else { return };
    if contains(body, MARK.as_bytes()) {
        return;
    }
    let (content, prefix) =
        if how & 1 == 0 { ("text/event-stream", "data:") } else { ("application/x-ndjson", "") };
    let marked = std::str::from_utf8(body).ok().and_then(|text| mark_lines(text, prefix));
    let marked = marked.as_ref().map_or(body, |text| text.as_bytes());
    check(Case { api: *api, request: false, content, body: marked }, how >> 1);
}

/// The document with marks; `None` if it is none.
fn mark(text: &str) -> Option<String> {
    let mut value = serde_json::from_str(text).ok()?;
    mark_value(&mut value);
    Some(value.to_string())
}

fn mark_value(value: &mut Value) {
    match value {
        Value::String(text) => text.push_str(MARK),
        Value::Array(values) => values.iter_mut().for_each(mark_value),
        Value::Object(members) => {
            for (name, value) in members {
                if !(value.is_string() && KEPT.contains(&name.as_str())) {
                    mark_value(value);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Every line with marks; `None` if a line's document is none, since then the next may be a part of it.
fn mark_lines(text: &str, prefix: &str) -> Option<String> {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        lines.push(match line.strip_prefix(prefix).map(str::trim) {
            Some("" | "[DONE]") | None => line.to_owned(),
            Some(document) => format!("{prefix} {}", mark(document)?),
        });
    }
    Some(lines.join("\n"))
}

#[derive(Clone, Copy)]
struct Case<'b> {
    api: u8,
    request: bool,
    content: &'static str,
    body: &'b [u8],
}

fn check(case: Case<'_>, piece: u8) {
    let (whole, masked) = exchange(case, case.body.len());
    assert!(!contains(&masked, MARK.as_bytes()), "{}\n{}", case.body.escape_ascii(), masked.escape_ascii());
    let (split, in_pieces) = exchange(case, usize::from(piece) + 1);
    assert_eq!(whole, split, "{}", case.body.escape_ascii());
    assert!(!contains(&in_pieces, MARK.as_bytes()), "{}", in_pieces.escape_ascii());
    let again = exchange(Case { body: &masked, ..case }, case.body.len());
    assert_eq!(again, (whole, masked), "masked again");
}

/// What is told of one exchange, and its masked body.
fn exchange(case: Case<'_>, piece: usize) -> (Vec<Exchange>, Vec<u8>) {
    let path = PATHS[usize::from(case.api) % PATHS.len()];
    let mut maker = exchanges::connection();
    let (request, answer) = if case.request { (case.body, &b"{}"[..]) } else { (&b"{}"[..], case.body) };
    let head = |first: &str, content: &str, len: usize| {
        format!("{first}\r\ncontent-type: {content}\r\ncontent-length: {len}\r\n\r\n")
    };
    let requests = head(&format!("POST {path} HTTP/1.1"), case.content, request.len());
    let answers = head("HTTP/1.1 200 OK", case.content, answer.len());
    for (dir, head, body) in [(DIR_RECV, requests, request), (DIR_SEND, answers, answer)] {
        maker.call(0, dir, Captured::whole(head.as_bytes()));
        body.chunks(piece.max(1)).for_each(|piece| maker.call(0, dir, Captured::whole(piece)));
    }
    let (exchanges, masked) = exchanges::masked(&mut maker);
    let len = case.body.len();
    let side = &masked[usize::from(!case.request)];
    (exchanges, side[side.len() - len..].to_vec())
}

fn contains(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.windows(mark.len()).any(|window| window == mark)
}
