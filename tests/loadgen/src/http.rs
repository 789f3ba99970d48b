//! HTTP/1.1 responses, as they come: any split of the bytes gives the same result.

use thiserror::Error;

/// Response heads larger than this are not for us.
const MAX_HEAD: usize = 64 << 10;
/// Chunk-size and trailer lines likewise.
const MAX_LINE: usize = 4 << 10;
const MAX_HEADERS: usize = 64;

/// What is wrong with a response.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum HttpError {
    /// By the parser of heads.
    #[error("bad response head: {0}")]
    Head(httparse::Error),
    /// No end in sight.
    #[error("response head or chunk line too long")]
    TooLong,
    /// Framing headers that make no sense.
    #[error("bad Content-Length or Transfer-Encoding")]
    Framing,
    /// A chunk without a size, or without its end.
    #[error("bad chunk")]
    Chunk,
    /// More than was asked for.
    #[error("bytes after the end of the response")]
    Excess,
}

/// What matters of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Status code.
    pub status: u16,
    /// Content type is `text/event-stream`.
    pub is_event_stream: bool,
    /// The connection may be used again.
    pub keep_alive: bool,
}

/// Takes a response apart.
#[derive(Debug, Default)]
pub(crate) struct Response {
    /// Its head, once complete.
    pub head: Option<Head>,
    state: State,
    /// Bytes of the head or of a line that is not complete yet.
    partial: Vec<u8>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Length(u64),
    UntilClose,
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailer,
    Done,
}

impl Response {
    /// Takes in bytes; body bytes, freed of their framing, are appended to `body`.
    pub(crate) fn push(&mut self, mut data: &[u8], body: &mut Vec<u8>) -> Result<(), HttpError> {
        while !data.is_empty() {
            data = match self.state {
                State::Head => self.head(data)?,
                State::Length(left) | State::ChunkData(left) => self.take(data, left, body),
                State::UntilClose => {
                    body.extend_from_slice(data);
                    &[]
                }
                State::ChunkSize | State::ChunkEnd | State::Trailer => self.line(data)?,
                State::Done => return Err(HttpError::Excess),
            };
        }
        Ok(())
    }

    /// Nothing more will come.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The server closed; true when that is how the response was to end.
    pub(crate) fn close(&mut self) -> bool {
        if self.state == State::UntilClose {
            self.state = State::Done;
        }
        self.is_done()
    }

    fn head<'d>(&mut self, data: &'d [u8]) -> Result<&'d [u8], HttpError> {
        let before = self.partial.len();
        self.partial.extend_from_slice(data);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(length) = head.parse(&self.partial).map_err(HttpError::Head)? else {
            return if self.partial.len() > MAX_HEAD { Err(HttpError::TooLong) } else { Ok(&[]) };
        };
        let (head, state) = interpret(&head)?;
        // 1xx announces; the response proper follows.
        if head.status >= 200 {
            self.head = Some(head);
            self.state = state;
        }
        self.partial.clear();
        Ok(&data[length - before..])
    }

    fn take<'d>(&mut self, data: &'d [u8], left: u64, body: &mut Vec<u8>) -> &'d [u8] {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
        let (taken, rest) = data.split_at(count);
        body.extend_from_slice(taken);
        let left = left - count as u64;
        self.state = match self.state {
            State::ChunkData(_) if left == 0 => State::ChunkEnd,
            State::ChunkData(_) => State::ChunkData(left),
            _ if left == 0 => State::Done,
            _ => State::Length(left),
        };
        rest
    }

    fn line<'d>(&mut self, data: &'d [u8]) -> Result<&'d [u8], HttpError> {
        let end = data.iter().position(|&b| b == b'\n');
        let (line, rest) = data.split_at(end.map_or(data.len(), |i| i + 1));
        self.partial.extend_from_slice(line);
        if self.partial.len() > MAX_LINE {
            return Err(HttpError::TooLong);
        }
        if end.is_some() {
            let line = std::mem::take(&mut self.partial);
            self.state = self.after_line(line.trim_ascii())?;
        }
        Ok(rest)
    }

    fn after_line(&self, line: &[u8]) -> Result<State, HttpError> {
        match (&self.state, line.is_empty()) {
            (State::ChunkSize, _) => match chunk_size(line)? {
                0 => Ok(State::Trailer),
                size => Ok(State::ChunkData(size)),
            },
            (State::ChunkEnd, true) => Ok(State::ChunkSize),
            (State::Trailer, true) => Ok(State::Done),
            (State::Trailer, false) => Ok(State::Trailer),
            _ => Err(HttpError::Chunk),
        }
    }
}

fn chunk_size(line: &[u8]) -> Result<u64, HttpError> {
    let digits = line.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
    let digits = std::str::from_utf8(digits).map_err(|_| HttpError::Chunk)?;
    if digits.starts_with('+') {
        return Err(HttpError::Chunk);
    }
    u64::from_str_radix(digits, 16).map_err(|_| HttpError::Chunk)
}

fn interpret(response: &httparse::Response<'_, '_>) -> Result<(Head, State), HttpError> {
    let values = |name: &'static str| {
        let named = response.headers.iter().filter(move |h| h.name.eq_ignore_ascii_case(name));
        named.map(|h| h.value.trim_ascii().to_ascii_lowercase())
    };
    let status = response.code.unwrap_or(0);
    let token = |name: &'static str, token: &[u8]| {
        values(name).any(|v| v.split(|&b| b == b',').any(|t| t.trim_ascii() == token))
    };
    let keep_alive = match response.version {
        Some(1) => !token("connection", b"close"),
        _ => token("connection", b"keep-alive"),
    };
    let is_event_stream = values("content-type").any(|v| v.starts_with(b"text/event-stream"));
    let state =
        framing(status, values("transfer-encoding").next_back(), values("content-length").next_back())?;
    let keep_alive = keep_alive && state != State::UntilClose;
    Ok((Head { status, is_event_stream, keep_alive }, state))
}

fn framing(status: u16, encoding: Option<Vec<u8>>, length: Option<Vec<u8>>) -> Result<State, HttpError> {
    match (status, encoding, length) {
        (204 | 304, ..) => Ok(State::Done),
        (_, Some(encoding), _) if encoding == b"chunked" => Ok(State::ChunkSize),
        (_, Some(_), _) => Err(HttpError::Framing),
        (_, None, Some(length)) => {
            let length =
                std::str::from_utf8(&length).ok().and_then(|l| l.parse().ok()).ok_or(HttpError::Framing)?;
            Ok(if length == 0 { State::Done } else { State::Length(length) })
        }
        (_, None, None) => Ok(State::UntilClose),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes in pieces of `size` bytes.
    fn parse(text: &str, size: usize) -> Result<(Response, String), HttpError> {
        let (mut response, mut body) = (Response::default(), Vec::new());
        for piece in text.as_bytes().chunks(size) {
            response.push(piece, &mut body)?;
        }
        Ok((response, String::from_utf8(body).unwrap()))
    }

    #[test]
    fn any_split_gives_the_same() {
        let cases = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", true, true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello", "hello", true, false),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n, world!!!\r\n0\r\nA: b\r\n\r\n",
                "hello, world!!!",
                true,
                true,
            ),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", "", true, true),
            ("HTTP/1.0 200 OK\r\n\r\nrest", "rest", false, false),
            ("HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", "", true, true),
        ];
        for (text, want, done, keep_alive) in cases {
            for size in 1..=text.len() {
                let (mut response, body) = parse(text, size).unwrap();
                let head = response.head.unwrap();
                assert_eq!(
                    (body.as_str(), response.is_done(), head.keep_alive),
                    (want, done, keep_alive),
                    "{text:?}"
                );
                assert!(response.close());
            }
        }
    }

    #[test]
    fn a_cut_response_is_not_done() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        for cut in 0..text.len() {
            let (mut response, _) = parse(&text[..cut], 7).unwrap();
            assert!(!response.close(), "{cut}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (text, want) in [
            (format!("{chunked}zz\r\n"), HttpError::Chunk),
            (format!("{chunked}+5\r\n"), HttpError::Chunk),
            (format!("{chunked}1\r\nabc\r\n"), HttpError::Chunk),
            (format!("{chunked}{}", "1".repeat(MAX_LINE + 1)), HttpError::TooLong),
            ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n".to_owned(), HttpError::Framing),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(), HttpError::Framing),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab".to_owned(), HttpError::Excess),
            ("SSH-2.0\r\n\r\n".to_owned(), HttpError::Head(httparse::Error::Version)),
        ] {
            assert_eq!(parse(&text, text.len()).err(), Some(want), "{text:?}");
        }
    }

    #[test]
    fn event_streams_are_recognised() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\n";
        assert!(parse(head, 3).unwrap().0.head.unwrap().is_event_stream);
    }
}
