//! One request and its answer on a connection.

use std::io::{self, Read as _, Write as _};
use std::thread;
use std::time::Duration;

use thiserror::Error;

use crate::answer::Answer;
use crate::clock;
use crate::connection::Connection;
use crate::http::{HttpError, Response};
use crate::plan::Abort;
use crate::record::{Outcome, Record};
use crate::sse::Events;

/// Bytes per read.
const READ: usize = 16 << 10;
/// Bytes per read of a slow client.
const SLOW_READ: usize = 128;

/// Why there is no complete answer.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The client went away, as planned.
    #[error("aborted")]
    Aborted,
    /// Time is up.
    #[error("no end within the time limit")]
    Timeout,
    /// The server closed too early.
    #[error("the server closed the connection before the end of the answer")]
    Closed,
    /// The connection broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Not a response.
    #[error("{0}")]
    Http(#[from] HttpError),
}

/// How the client behaves.
pub(crate) struct Manner {
    /// Give up then, `CLOCK_MONOTONIC` ns.
    pub deadline: u64,
    /// Go away early.
    pub abort: Option<Abort>,
    /// Pause between reads.
    pub pause: Option<Duration>,
}

/// The answer as far as it came.
#[derive(Default)]
pub(crate) struct Exchange {
    response: Response,
    events: Events,
    answer: Answer,
    body: Vec<u8>,
}

impl Exchange {
    /// Sends the request and reads the answer. What was seen is in `record` however it ends; returns whether the
    /// connection can be used again.
    pub(crate) fn run(
        &mut self,
        connection: &mut Connection,
        request: &[u8],
        manner: &Manner,
        record: &mut Record,
    ) -> Result<bool, Failure> {
        let end = self.talk(connection, request, manner, record);
        record.status = self.response.head.map(|h| h.status);
        record.chunks = self.answer.chunks;
        record.usage = self.answer.usage.take();
        record.finish_reason = self.answer.finish_reason.take();
        record.error = self.answer.error.take().or_else(|| end.as_ref().err().map(ToString::to_string));
        record.outcome = outcome(end.as_ref().err(), record);
        end.map(|()| self.response.head.is_some_and(|h| h.keep_alive))
    }

    fn talk(
        &mut self,
        c: &mut Connection,
        request: &[u8],
        manner: &Manner,
        record: &mut Record,
    ) -> Result<(), Failure> {
        c.stream.set_write_timeout(Some(left(manner.deadline)?))?;
        let sent = clock::now();
        record.t_send = Some(sent);
        c.stream.write_all(request).map_err(in_time)?;
        record.t_sent = Some(clock::now());
        let mut buffer = [0; READ];
        let size = if manner.pause.is_some() { SLOW_READ } else { READ };
        while !self.response.is_done() {
            let give_up = match manner.abort {
                Some(Abort::Time(patience)) => clock::after(sent, patience),
                _ => u64::MAX,
            };
            let count = read(c, &mut buffer[..size], manner.deadline, give_up)?;
            self.received(&buffer[..count], record)?;
            let enough = matches!(manner.abort, Some(Abort::Chunks(n)) if self.answer.chunks >= n);
            if enough && !self.response.is_done() {
                return Err(Failure::Aborted);
            }
            manner.pause.into_iter().for_each(thread::sleep);
        }
        self.finish(record)
    }

    /// The end is complete by HTTP; a stream must also say so itself.
    fn finish(&mut self, record: &Record) -> Result<(), Failure> {
        let is_stream = self.response.head.is_some_and(|h| h.is_event_stream);
        if !is_stream {
            self.answer.whole(&self.body);
        }
        let cut =
            is_stream && !self.answer.is_done && self.answer.error.is_none() && record.t_last_byte.is_some();
        if cut { Err(Failure::Closed) } else { Ok(()) }
    }

    /// No bytes means that the server closed.
    fn received(&mut self, data: &[u8], record: &mut Record) -> Result<(), Failure> {
        if data.is_empty() {
            return if self.response.close() { Ok(()) } else { Err(Failure::Closed) };
        }
        let now = clock::now();
        record.t_first_byte.get_or_insert(now);
        record.t_last_byte = Some(now);
        self.response.push(data, &mut self.body)?;
        if self.response.head.is_some_and(|h| h.is_event_stream) {
            self.events.push(&self.body, |event| {
                if self.answer.event(event) {
                    record.t_first_token.get_or_insert(now);
                }
            });
            self.body.clear();
        }
        Ok(())
    }
}

fn read(c: &mut Connection, buffer: &mut [u8], deadline: u64, give_up: u64) -> Result<usize, Failure> {
    let wait = clock::until(give_up).min(left(deadline)?);
    if wait.is_zero() {
        return Err(Failure::Aborted);
    }
    c.stream.set_read_timeout(Some(wait))?;
    match c.stream.read(buffer).map_err(in_time) {
        Err(Failure::Timeout) if give_up < deadline => Err(Failure::Aborted),
        other => other,
    }
}

fn left(deadline: u64) -> Result<Duration, Failure> {
    Some(clock::until(deadline)).filter(|d| !d.is_zero()).ok_or(Failure::Timeout)
}

/// Socket timeouts show as `EAGAIN`.
fn in_time(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::Timeout,
        _ => Failure::Io(error),
    }
}

fn outcome(failure: Option<&Failure>, record: &Record) -> Outcome {
    match failure {
        Some(Failure::Aborted) => Outcome::ClientDisconnect,
        Some(Failure::Timeout) => Outcome::Timeout,
        Some(Failure::Http(_)) => Outcome::ProtocolError,
        Some(Failure::Closed | Failure::Io(_)) if record.t_first_byte.is_none() => Outcome::ConnectionFailed,
        Some(Failure::Closed | Failure::Io(_)) => Outcome::Truncated,
        None => by_answer(record),
    }
}

fn by_answer(record: &Record) -> Outcome {
    match record.status.unwrap_or(0) {
        408 | 504 => Outcome::Timeout,
        400..=499 => Outcome::Client4xx,
        500..=599 => Outcome::Server5xx,
        _ if record.error.is_some() => Outcome::InBandError,
        _ if record.finish_reason.as_deref() == Some("content_filter") => Outcome::ContentFilter,
        _ if record.chunks == 0 => Outcome::EmptyOutput,
        _ => Outcome::Ok,
    }
}
