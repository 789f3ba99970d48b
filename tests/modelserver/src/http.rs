//! HTTP/1.1 on a non-blocking socket: requests out of bytes, responses into writes, each with its clock readings.

mod inbound;
mod outbound;

pub(crate) use inbound::{HttpError, Inbound, Parsed, Request};
pub(crate) use outbound::{Mark, Outbound, Written};

/// How a response body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `Content-Length`.
    Length(usize),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The end of the connection (HTTP/1.0 clients).
    Close,
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Unknown",
    }
}

/// A response head.
pub(crate) fn head(status: u16, content_type: &str, framing: Framing, keep_alive: bool) -> Vec<u8> {
    let length = match framing {
        Framing::Length(length) => format!("content-length: {length}\r\n"),
        Framing::Chunked => "transfer-encoding: chunked\r\n".to_owned(),
        Framing::Close => String::new(),
    };
    let close = if keep_alive && framing != Framing::Close { "" } else { "connection: close\r\n" };
    let reason = reason(status);
    format!(
        "HTTP/1.1 {status} {reason}\r\nserver: modelserver\r\ncontent-type: {content_type}\r\n{length}{close}\r\n"
    )
    .into_bytes()
}

/// One piece of a streamed body, framed.
pub(crate) fn body_piece(framing: Framing, data: &str) -> Vec<u8> {
    match framing {
        Framing::Chunked => format!("{:x}\r\n{data}\r\n", data.len()).into_bytes(),
        Framing::Length(_) | Framing::Close => data.as_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests;
