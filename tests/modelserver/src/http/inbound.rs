//! The bytes of a connection as they were read, and the requests in them.

use std::collections::VecDeque;

use httparse::Status;
use thiserror::Error;

use crate::clock::Stamp;

/// Longest request head, bytes.
pub(super) const MAX_HEAD: usize = 32 << 10;
/// Longest request body, bytes.
pub(super) const MAX_BODY: usize = 8 << 20;
/// With this much unparsed data no more is read from the connection.
const HIGH_WATER: usize = MAX_HEAD + MAX_BODY;

/// Why a byte stream is not a request that the server takes. The connection cannot go on.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum HttpError {
    /// Not HTTP.
    #[error("malformed request head: {0}")]
    Malformed(httparse::Error),
    /// A `Content-Length` that is no number.
    #[error("malformed content-length")]
    BadLength,
    /// The head does not end.
    #[error("request head over {MAX_HEAD} bytes")]
    HeadTooLarge,
    /// The body is too long.
    #[error("request body of {0} bytes, the limit is {MAX_BODY}")]
    BodyTooLarge(usize),
    /// A transfer coding; clients of model servers send a length.
    #[error("requests need a content-length, transfer codings are not taken")]
    LengthRequired,
}

impl HttpError {
    /// The status of the answer.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) | Self::BadLength => 400,
            Self::HeadTooLarge => 431,
            Self::BodyTooLarge(_) => 413,
            Self::LengthRequired => 411,
        }
    }
}

/// A parsed head.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Head {
    method: String,
    path: String,
    http11: bool,
    keep_alive: bool,
    request_id: Option<String>,
    job: Option<u64>,
    expects_continue: bool,
    len: usize,
    body_len: usize,
}

/// One whole request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Method, upper case as sent.
    pub(crate) method: String,
    /// Path without the query.
    pub(crate) path: String,
    /// HTTP/1.1, thus able to take chunks.
    pub(crate) http11: bool,
    /// Whether the connection may go on after the answer.
    pub(crate) keep_alive: bool,
    /// The client's `x-request-id`.
    pub(crate) client_id: Option<String>,
    /// The number that a proxy of this rig gave it.
    pub(crate) job: Option<u64>,
    /// The body.
    pub(crate) body: Vec<u8>,
    /// Around the read that brought the first byte.
    pub(crate) first_read: Stamp,
    /// Around the read that brought the last byte.
    pub(crate) last_read: Stamp,
}

/// What the bytes so far amount to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// More bytes are needed.
    Incomplete,
    /// More bytes are needed and the client waits for `100 Continue` before it sends them. Said once a request.
    SendContinue,
    /// A whole request, taken out of the buffer.
    Request(Request),
}

/// What was read from a connection and not yet taken as requests.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    bytes: Vec<u8>,
    /// Offset of `bytes[0]` in the connection's stream.
    base: u64,
    /// The reads that brought `bytes`: the stream offset of each one's end, and its clock readings.
    reads: VecDeque<(u64, Stamp)>,
    head: Option<Head>,
    continued: bool,
}

impl Inbound {
    /// Whether nothing is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the connection should not be read for now.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= HIGH_WATER
    }

    /// Appends what one read brought.
    pub(crate) fn push(&mut self, data: &[u8], stamp: Stamp) {
        self.bytes.extend_from_slice(data);
        self.reads.push_back((self.base + self.bytes.len() as u64, stamp));
    }

    /// Takes the next request if it is there in full.
    pub(crate) fn next(&mut self) -> Result<Parsed, HttpError> {
        if self.head.is_none() {
            self.head = parse_head(&self.bytes)?;
        }
        match &self.head {
            None => Ok(Parsed::Incomplete),
            Some(head) if self.bytes.len() < head.len + head.body_len => {
                let ask = head.expects_continue && !self.continued;
                self.continued |= ask;
                Ok(if ask { Parsed::SendContinue } else { Parsed::Incomplete })
            }
            Some(_) => Ok(self.take()),
        }
    }

    fn take(&mut self) -> Parsed {
        let Some(head) = self.head.take() else { return Parsed::Incomplete };
        self.continued = false;
        let end = head.len + head.body_len;
        let (first_read, last_read) = self.stamps(end);
        let body = self.bytes[head.len..end].to_vec();
        self.drop_front(end);
        Parsed::Request(Request {
            method: head.method,
            path: head.path,
            http11: head.http11,
            keep_alive: head.keep_alive,
            client_id: head.request_id,
            job: head.job,
            body,
            first_read,
            last_read,
        })
    }

    /// The reads that brought the first and the last of the next `len` bytes (1 or more).
    fn stamps(&self, len: usize) -> (Stamp, Stamp) {
        let at = |offset: u64| {
            let read = self.reads.iter().find(|read| read.0 > offset);
            read.map_or(Stamp::default(), |read| read.1)
        };
        (at(self.base), at(self.base + len as u64 - 1))
    }

    /// The reads that brought the first and the last of all pending bytes; `None` when there are none.
    pub(crate) fn pending_stamps(&self) -> Option<(Stamp, Stamp)> {
        (!self.bytes.is_empty()).then(|| self.stamps(self.bytes.len()))
    }

    fn drop_front(&mut self, len: usize) {
        self.bytes.drain(..len);
        self.base += len as u64;
        while self.reads.front().is_some_and(|read| read.0 <= self.base) {
            self.reads.pop_front();
        }
    }
}

fn parse_head(bytes: &[u8]) -> Result<Option<Head>, HttpError> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(Status::Complete(len)) => read_head(&request, len).map(Some),
        Ok(Status::Partial) if bytes.len() > MAX_HEAD => Err(HttpError::HeadTooLarge),
        Ok(Status::Partial) => Ok(None),
        Err(error) => Err(HttpError::Malformed(error)),
    }
}

fn read_head(request: &httparse::Request<'_, '_>, len: usize) -> Result<Head, HttpError> {
    let target = request.path.unwrap_or_default();
    let http11 = request.version == Some(1);
    let mut head = Head {
        method: request.method.unwrap_or_default().to_owned(),
        path: target.split('?').next().unwrap_or_default().to_owned(),
        http11,
        keep_alive: http11,
        request_id: None,
        job: None,
        expects_continue: false,
        len,
        body_len: 0,
    };
    for header in request.headers.iter() {
        read_header(&mut head, header.name, &String::from_utf8_lossy(header.value))?;
    }
    Ok(head)
}

fn read_header(head: &mut Head, name: &str, value: &str) -> Result<(), HttpError> {
    match name.to_ascii_lowercase().as_str() {
        "content-length" => {
            head.body_len = value.trim().parse().map_err(|_| HttpError::BadLength)?;
            if head.body_len > MAX_BODY {
                return Err(HttpError::BodyTooLarge(head.body_len));
            }
        }
        "transfer-encoding" => return Err(HttpError::LengthRequired),
        "connection" if value.eq_ignore_ascii_case("close") => head.keep_alive = false,
        "connection" if value.eq_ignore_ascii_case("keep-alive") => head.keep_alive = true,
        "expect" => head.expects_continue = value.eq_ignore_ascii_case("100-continue"),
        "x-rig-job" => head.job = value.trim().parse().ok(),
        "x-request-id" => head.request_id = Some(value.to_owned()),
        _ => {}
    }
    Ok(())
}
