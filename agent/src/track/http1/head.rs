//! What the head of a message says, from its masked bytes.

use std::borrow::Cow;

use super::{super::grpc, Framing, Side};

/// Headers that there is room for without asking for memory.
const FEW_HEADERS: usize = 128;
/// Longest request id that is kept.
const MAX_REQUEST_ID: usize = 128;

/// Longest path that is kept; more of it would be kept with each request.
const MAX_PATH: usize = 512;

/// How a body is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::track) enum Content {
    /// No content type.
    #[default]
    Unknown,
    /// `text/event-stream`.
    Events,
    /// Newline-separated JSON documents.
    JsonLines,
    /// Messages of a gRPC method.
    Grpc(grpc::Method),
    /// Any other type; as JSON, until it proves to be none.
    Other,
    /// Compressed.
    Opaque,
}

/// What a connection is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::track) enum Upgrade {
    /// HTTP/2 in clear.
    H2c,
    WebSocket,
    Other,
}

/// What both kinds of head have.
#[derive(Debug, Default)]
pub(in crate::track) struct Headers {
    /// `None`: neither a length nor chunked.
    pub framing: Option<Framing>,
    pub content: Content,
    /// What the connection is to become.
    pub upgrade: Option<Upgrade>,
    /// Length of the JSON document before binary data, where the body has both.
    pub json_len: Option<u64>,
    pub request_id: Option<String>,
    pub trace_id: Option<String>,
    /// How long the client is ready to wait, where it says so.
    pub timeout_ns: Option<u64>,
}

impl Headers {
    /// Adds a field that has nothing to do with framing.
    pub(in crate::track) fn add(&mut self, name: &str, value: &[u8]) {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("content-type") && self.content != Content::Opaque {
            self.content = content(value);
        } else if is("content-encoding") && !value.eq_ignore_ascii_case(b"identity") {
            self.content = Content::Opaque;
        } else if is("upgrade") {
            self.upgrade = Some(upgrade(value));
        } else if is("inference-header-content-length") {
            self.json_len = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
        } else if is("x-request-id") {
            self.request_id = text(value);
        } else if is("traceparent") {
            self.trace_id = trace_id(value);
        }
    }
}

/// A request's head.
#[derive(Debug)]
pub(in crate::track) struct Request {
    /// `None`, like the path, when the connection's earlier headers would tell it, and those were not seen.
    pub method: Option<String>,
    /// Without query string.
    pub path: Option<String>,
    pub protocol: &'static str,
    pub headers: Headers,
}

/// A response's head.
#[derive(Debug)]
pub(in crate::track) struct Response {
    pub status: u16,
    pub headers: Headers,
}

/// Parses a request's head; `None` when it is not one that can be framed.
pub(in crate::track) fn request(bytes: &[u8]) -> Option<Request> {
    let bytes = &*unfolded(bytes);
    let (mut few, mut many) = room(bytes);
    let mut parsed = httparse::Request::new(if many.is_empty() { &mut few } else { &mut many });
    parsed.parse(bytes).ok().filter(httparse::Status::is_complete)?;
    Some(Request {
        method: Some(parsed.method?.to_owned()),
        path: Some(shortened(path(parsed.path?))),
        protocol: protocol(parsed.version?),
        headers: read(parsed.headers, Side::Request)?,
    })
}

/// Parses a response's head, likewise.
pub(in crate::track) fn response(bytes: &[u8]) -> Option<Response> {
    let bytes = &*unfolded(bytes);
    let (mut few, mut many) = room(bytes);
    let mut parsed = httparse::Response::new(if many.is_empty() { &mut few } else { &mut many });
    parsed.parse(bytes).ok().filter(httparse::Status::is_complete)?;
    Some(Response { status: parsed.code?, headers: read(parsed.headers, Side::Response)? })
}

/// Room for the headers of a head: as many as it has lines, which its own length bounds; in the first place if they fit.
fn room(bytes: &[u8]) -> ([httparse::Header<'_>; FEW_HEADERS], Vec<httparse::Header<'_>>) {
    let lines = memchr::memchr_iter(b'\n', bytes).count();
    let many = if lines > FEW_HEADERS { lines } else { 0 };
    ([httparse::EMPTY_HEADER; FEW_HEADERS], vec![httparse::EMPTY_HEADER; many])
}

/// The head with each folded line joined to the one before, as those do who still take such lines.
fn unfolded(bytes: &[u8]) -> Cow<'_, [u8]> {
    let folds = |pair: &[u8]| matches!(pair, [b'\n', b' ' | b'\t']);
    if !bytes.windows(2).any(folds) {
        return Cow::Borrowed(bytes);
    }
    let mut joined = bytes.to_vec();
    for at in (0..joined.len() - 1).filter(|at| folds(&bytes[*at..at + 2])) {
        joined[at] = b' ';
        if at > 0 && joined[at - 1] == b'\r' {
            joined[at - 1] = b' ';
        }
    }
    Cow::Owned(joined)
}

/// The whole lines of a head that a gap cut, closed as if they were all.
pub(in crate::track) fn cut(bytes: &[u8]) -> Vec<u8> {
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    [&bytes[..whole], b"\r\n"].concat()
}

fn protocol(version: u8) -> &'static str {
    if version == 0 { "HTTP/1.0" } else { "HTTP/1.1" }
}

/// The path of a request target: without query, and without scheme and host of the absolute form.
pub(in crate::track) fn path(target: &str) -> &str {
    let path = target.split('?').next().unwrap_or_default();
    match path.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            rest.find('/').map_or("/", |at| &rest[at..])
        }
        _ => path,
    }
}

/// An ellipsis shows that it was cut.
pub(in crate::track) fn shortened(path: &str) -> String {
    match path.char_indices().nth(MAX_PATH) {
        Some((end, _)) => format!("{}…", &path[..end]),
        None => path.to_owned(),
    }
}

/// `None` when lengths contradict each other, or when it is for the server to guess where a request ends.
fn read(parsed: &[httparse::Header<'_>], side: Side) -> Option<Headers> {
    let mut headers = Headers::default();
    let mut length = None;
    let mut chunked = None;
    for header in parsed {
        let value = header.value.trim_ascii();
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let value: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
            if length.replace(value).is_some_and(|before| before != value) {
                return None;
            }
        } else if is("transfer-encoding") {
            chunked = Some(ends_with(value, b"chunked"));
        } else {
            headers.add(header.name, value);
        }
    }
    headers.framing = match (chunked, side) {
        (Some(true), _) => Some(Framing::Chunked),
        (Some(false), Side::Request) => return None,
        (Some(false), Side::Response) => Some(Framing::UntilClose),
        (None, _) => length.map(Framing::Length),
    };
    Some(headers)
}

fn ends_with(value: &[u8], end: &[u8]) -> bool {
    value.len() >= end.len() && value[value.len() - end.len()..].eq_ignore_ascii_case(end)
}

fn content(value: &[u8]) -> Content {
    let end = value.iter().position(|b| *b == b';').unwrap_or(value.len());
    let kind = value[..end].trim_ascii();
    if kind.eq_ignore_ascii_case(b"text/event-stream") {
        Content::Events
    } else if [&b"application/x-ndjson"[..], b"application/jsonl", b"application/ndjson"]
        .iter()
        .any(|lines| kind.eq_ignore_ascii_case(lines))
    {
        Content::JsonLines
    } else {
        Content::Other
    }
}

fn upgrade(value: &[u8]) -> Upgrade {
    if value.eq_ignore_ascii_case(b"h2c") {
        Upgrade::H2c
    } else if value.eq_ignore_ascii_case(b"websocket") {
        Upgrade::WebSocket
    } else {
        Upgrade::Other
    }
}

fn text(value: &[u8]) -> Option<String> {
    let plain = !value.is_empty() && value.len() <= MAX_REQUEST_ID && value.iter().all(u8::is_ascii_graphic);
    plain.then(|| value.iter().copied().map(char::from).collect())
}

/// Trace id of a W3C `traceparent`, when that is valid.
fn trace_id(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let nonzero = |part: &str| part.bytes().any(|b| b != b'0');
    let valid = hex(version, 2)
        && version != "ff"
        && hex(trace, 32)
        && nonzero(trace)
        && hex(span, 16)
        && nonzero(span)
        && hex(flags, 2)
        && (version != "00" || parts.next().is_none());
    valid.then(|| trace.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_by_headers() {
        for (lines, expected) in [
            ("", Some(None)),
            ("Content-Length: 5\r\n", Some(Some(Framing::Length(5)))),
            ("content-length: 5\r\nContent-Length: 5\r\n", Some(Some(Framing::Length(5)))),
            ("Transfer-Encoding: gzip, Chunked\r\nContent-Length: 5\r\n", Some(Some(Framing::Chunked))),
            ("Content-Length: 5\r\nContent-Length: 6\r\n", None),
            ("Content-Length: -5\r\n", None),
            ("Content-Length: 5, 5\r\n", None),
            ("Content-Length: 5\r\n 0\r\n", None),
            ("Content-Length : 5\r\n", None),
            ("Transfer-Encoding: gzip\r\n", None),
            ("Transfer-Encoding: chunked, identity\r\nContent-Length: 5\r\n", None),
            ("X-A: b\r\n folded\r\nContent-Length: 5\r\n", Some(Some(Framing::Length(5)))),
            ("Content-Length:\r\n\t5\r\n", Some(Some(Framing::Length(5)))),
            ("Content-Length: 5\nX-B: c\n", Some(Some(Framing::Length(5)))),
            ("Content-Length: 99999999999999999999999\r\n", None),
        ] {
            let head = format!("POST / HTTP/1.1\r\n{lines}\r\n");
            assert_eq!(request(head.as_bytes()).map(|r| r.headers.framing), expected, "{lines}");
        }
    }

    #[test]
    fn an_answer_that_says_nothing_else_ends_with_the_connection() {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(response(head).map(|r| r.headers.framing), Some(Some(Framing::UntilClose)));
    }

    #[test]
    fn targets_lose_query_and_host() {
        for (target, expected) in [("/a?b", "/a"), ("http://h:1/a?b", "/a"), ("http://h", "/"), ("*", "*")] {
            assert_eq!(path(target), expected);
        }
    }

    #[test]
    fn a_path_is_bounded() {
        let head = |len| format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(len));
        assert_eq!(request(head(511).as_bytes()).unwrap().path.unwrap().len(), 512);
        let cut = request(head(60_000).as_bytes()).unwrap().path.unwrap();
        assert!(cut.chars().count() == MAX_PATH + 1 && cut.ends_with("a…"), "{cut}");
    }

    #[test]
    fn trace_ids_are_checked() {
        let id = "0af7651916cd43dd8448eb211c80319c";
        for (value, valid) in [
            (format!("00-{id}-b7ad6b7169203331-01"), true),
            (format!("01-{id}-b7ad6b7169203331-01-more"), true),
            (format!("00-{id}-b7ad6b7169203331-01-more"), false),
            (format!("ff-{id}-b7ad6b7169203331-01"), false),
            (format!("00-{id}-0000000000000000-01"), false),
            (format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)), false),
            (format!("00-{}-b7ad6b7169203331-01", id.to_uppercase()), false),
            ("00".into(), false),
        ] {
            assert_eq!(trace_id(value.as_bytes()).as_deref(), valid.then_some(id), "{value}");
        }
    }

    #[test]
    fn a_compressed_stream_of_events_is_opaque() {
        for lines in [
            "Content-Type: text/event-stream\r\nContent-Encoding: gzip\r\n",
            "Content-Encoding: br\r\nContent-Type: text/event-stream\r\n",
        ] {
            let head = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
            assert_eq!(response(head.as_bytes()).unwrap().headers.content, Content::Opaque);
        }
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n\r\n";
        assert_eq!(response(head).unwrap().headers.content, Content::Events);
    }

    #[test]
    fn a_cut_head_keeps_its_whole_lines() {
        let head = cut(b"POST /v1 HTTP/1.1\r\nContent-Length: 7\r\nAuthorization: xxx");
        let parsed = request(&head).unwrap();
        assert_eq!((parsed.path.as_deref(), parsed.headers.framing), (Some("/v1"), Some(Framing::Length(7))));
        assert!(request(&cut(b"POST /v1")).is_none());
    }
}
