//! A connection whose writes are stamped.

use std::fs::OpenOptions;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tokio::net::TcpStream;

/// Content events carry this word, once, and nothing else does.
const MARK: &[u8] = b"lorem";

/// What is true of a request.
#[derive(Default, Serialize)]
pub(crate) struct Line {
    pub(crate) request_id: Option<String>,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) model: Option<String>,
    pub(crate) status: u16,
    pub(crate) outcome: &'static str,
    pub(crate) streaming: bool,
    pub(crate) t_first_token_write_ns: Option<[u64; 2]>,
    pub(crate) t_last_write_ns: Option<[u64; 2]>,
    pub(crate) content_write_ns: Vec<[u64; 2]>,
    pub(crate) bytes_out: u64,
    pub(crate) said: Option<serde_json::Value>,
}

/// The request that is being answered on a connection. Its last write is known when the next request comes, or the
/// end of the connection.
#[derive(Default)]
pub(crate) struct Log {
    current: Option<Line>,
}

impl Log {
    pub(crate) fn begin(&mut self, line: Line) {
        self.end();
        self.current = Some(line);
    }

    fn wrote<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>, len: usize, stamp: [u64; 2]) {
        let Some(line) = &mut self.current else { return };
        line.t_last_write_ns = Some(stamp);
        line.bytes_out += len as u64;
        if line.streaming {
            let mut bytes: Vec<u8> = parts.flatten().copied().collect();
            bytes.truncate(len);
            let events = bytes.windows(MARK.len()).filter(|window| *window == MARK).count();
            line.content_write_ns.extend(std::iter::repeat_n(stamp, events));
            line.t_first_token_write_ns = line.content_write_ns.first().copied();
        }
    }

    fn end(&mut self) {
        let Some(line) = self.current.take() else { return };
        let path = std::env::var_os("TRUTH").expect("the tests set TRUTH");
        let mut text = serde_json::to_string(&line).expect("strings and numbers are always JSON");
        text.push('\n');
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("TRUTH is writable");
        file.write_all(text.as_bytes()).expect("TRUTH is writable");
    }
}

/// `io`, with stamps.
pub(crate) struct Stamped {
    io: TokioIo<TcpStream>,
    log: Arc<Mutex<Log>>,
}

impl Stamped {
    pub(crate) fn new(io: TokioIo<TcpStream>, log: Arc<Mutex<Log>>) -> Self {
        Self { io, log }
    }

    fn wrote<'a>(
        &self,
        parts: impl Iterator<Item = &'a [u8]>,
        result: &Poll<io::Result<usize>>,
        before: u64,
    ) {
        if let Poll::Ready(Ok(len)) = result {
            let stamp = [before, now()];
            self.log.lock().unwrap_or_else(PoisonError::into_inner).wrote(parts, *len, stamp);
        }
    }
}

impl Drop for Stamped {
    fn drop(&mut self) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).end();
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or_default() * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or_default()
}

impl Read for Stamped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for Stamped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let before = now();
        let result = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.wrote(std::iter::once(bytes), &result, before);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let before = now();
        let result = Pin::new(&mut self.io).poll_write_vectored(cx, parts);
        self.wrote(parts.iter().map(|part| &**part), &result, before);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
