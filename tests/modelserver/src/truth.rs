//! What really happened to a request, by the server's own clock readings.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::args::Shape;
use crate::clock::Stamp;

/// How a request ended; the names are those of the agent's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// A complete answer.
    Ok,
    /// Status 4xx.
    #[serde(rename = "client_4xx")]
    Client4xx,
    /// Status 5xx.
    #[serde(rename = "server_5xx")]
    Server5xx,
    /// The client closed before the end of the answer.
    ClientDisconnect,
    /// An error object after a 200.
    InBandError,
    /// The server ended before the end of the answer.
    Truncated,
}

/// One step that held the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnStep {
    /// Around the step's first launch.
    pub(crate) launch: Stamp,
    /// Around the call whose return gave the result.
    pub(crate) result: Stamp,
    /// Requests in the step.
    pub(crate) batch: u32,
    /// Whether it gave the request a token.
    pub(crate) token: bool,
}

/// Everything stamped for one request.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    /// The client's `x-request-id`, or one made by the server; `None` when no head could be parsed.
    pub(crate) request_id: Option<String>,
    /// Shape of the server.
    pub(crate) shape: Shape,
    /// Path without the query; empty when no head could be parsed.
    pub(crate) path: String,
    /// Whether the client asked for a stream.
    pub(crate) streaming: bool,
    /// HTTP status; 0 when none was sent.
    pub(crate) status: u16,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// Around the read that brought the first byte.
    pub(crate) first_read: Stamp,
    /// Around the read that brought the last byte.
    pub(crate) last_read: Stamp,
    /// When it was handed to the engine (queue of the same process in `single`).
    pub(crate) handoff: Option<u64>,
    /// When the engine took it from the queue into a step.
    pub(crate) sched: Option<u64>,
    /// Measured by the engine when it launched the first own step; see [`Busy::measure`].
    pub(crate) queue: Option<u64>,
    /// The steps that held it, in order.
    pub(crate) steps: Vec<OwnStep>,
    /// Around the write of the first response byte.
    pub(crate) first_byte: Option<Stamp>,
    /// Around the latest write of response bytes.
    pub(crate) last_write: Option<Stamp>,
    /// Around each content-bearing event's write, and the tokens in it.
    pub(crate) content: Vec<(Stamp, u32)>,
    /// Prompt tokens.
    pub(crate) input_tokens: u32,
    /// Tokens that came from the engine.
    pub(crate) output_tokens: u32,
    /// Time during which the socket was full, ns.
    pub(crate) blocked: u64,
    /// When the server noticed that the client had gone.
    pub(crate) cancel: Option<u64>,
}

/// A request's wall time cut into stages, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stages {
    network_in: u64,
    preprocess: u64,
    queue: u64,
    prefill: u64,
    decode: u64,
    postprocess: u64,
}

/// The JSON line of a request.
#[derive(Serialize)]
struct Line<'a> {
    request_id: Option<&'a str>,
    shape: Shape,
    path: &'a str,
    streaming: bool,
    status: u16,
    outcome: Outcome,
    t_first_read_ns: Stamp,
    t_last_read_ns: Stamp,
    t_handoff_ns: Option<u64>,
    t_sched_ns: Option<u64>,
    t_first_launch_ns: Option<Stamp>,
    t_first_result_ns: Option<Stamp>,
    t_last_result_ns: Option<Stamp>,
    t_first_byte_write_ns: Option<Stamp>,
    t_first_token_write_ns: Option<Stamp>,
    t_last_write_ns: Option<Stamp>,
    t_cancel_ns: Option<u64>,
    content_write_ns: Vec<Stamp>,
    tokens_per_write: Vec<u32>,
    input_tokens: u32,
    output_tokens: u32,
    steps: usize,
    batch_sizes: Vec<u32>,
    step_launch_ns: Vec<Stamp>,
    step_result_ns: Vec<Stamp>,
    network_in_s: f64,
    preprocess_s: Option<f64>,
    queue_s: Option<f64>,
    prefill_s: Option<f64>,
    decode_s: Option<f64>,
    postprocess_s: Option<f64>,
    write_blocked_s: f64,
    e2e_s: Option<f64>,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Truth {
    /// Last response byte out as the stages count it: the return of the write.
    fn end(&self) -> Option<u64> {
        self.last_write.map(|write| write.1)
    }

    /// The step that gave the first token.
    fn first_token_step(&self) -> Option<&OwnStep> {
        self.steps.iter().find(|step| step.token)
    }

    /// The last own step whose result could be in the answer: all of them, except for a request that was
    /// cancelled while steps were in flight.
    fn last_step(&self) -> Option<&OwnStep> {
        let end = self.end()?;
        self.steps.iter().rfind(|step| step.result.1 <= end)
    }

    /// The stages, if the request went through all of them.
    ///
    /// Of each pair of readings the one nearer to the moment that an observer outside can see is used: a read,
    /// a result and a write at the return of the call, a launch at its entry.
    fn stages(&self) -> Option<Stages> {
        let (read, launch) = (self.last_read.1, self.steps.first()?.launch.0);
        let (first, last) = (self.first_token_step()?.result.1, self.last_step()?.result.1);
        let queue = self.queue?;
        Some(Stages {
            network_in: read.checked_sub(self.first_read.1)?,
            preprocess: launch.checked_sub(read)?.checked_sub(queue)?,
            queue,
            prefill: first.checked_sub(launch)?,
            decode: last.checked_sub(first)?,
            postprocess: self.end()?.checked_sub(last)?,
        })
    }

    /// The JSON line, without the line feed.
    pub(crate) fn line(&self) -> Result<String, serde_json::Error> {
        let stages = self.stages();
        let stage = |part: fn(&Stages) -> u64| stages.as_ref().map(|stages| seconds(part(stages)));
        serde_json::to_string(&Line {
            request_id: self.request_id.as_deref(),
            shape: self.shape,
            path: &self.path,
            streaming: self.streaming,
            status: self.status,
            outcome: self.outcome,
            t_first_read_ns: self.first_read,
            t_last_read_ns: self.last_read,
            t_handoff_ns: self.handoff,
            t_sched_ns: self.sched,
            t_first_launch_ns: self.steps.first().map(|step| step.launch),
            t_first_result_ns: self.first_token_step().map(|step| step.result),
            t_last_result_ns: self.last_step().map(|step| step.result),
            t_first_byte_write_ns: self.first_byte,
            t_first_token_write_ns: self.content.first().map(|write| write.0),
            t_last_write_ns: self.last_write,
            t_cancel_ns: self.cancel,
            content_write_ns: self.content.iter().map(|write| write.0).collect(),
            tokens_per_write: self.content.iter().map(|write| write.1).collect(),
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            steps: self.steps.len(),
            batch_sizes: self.steps.iter().map(|step| step.batch).collect(),
            step_launch_ns: self.steps.iter().map(|step| step.launch).collect(),
            step_result_ns: self.steps.iter().map(|step| step.result).collect(),
            network_in_s: seconds(self.last_read.1.saturating_sub(self.first_read.1)),
            preprocess_s: stage(|stages| stages.preprocess),
            queue_s: stage(|stages| stages.queue),
            prefill_s: stage(|stages| stages.prefill),
            decode_s: stage(|stages| stages.decode),
            postprocess_s: stage(|stages| stages.postprocess),
            write_blocked_s: seconds(self.blocked),
            e2e_s: self.end().map(|end| seconds(end.saturating_sub(self.first_read.1))),
        })
    }
}

/// When the engine ran steps: the union of their [first launch, result] intervals.
///
/// Steps begin and end in order, so the union is a list of disjoint intervals plus the steps still in flight.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    closed: VecDeque<(u64, u64)>,
    open: VecDeque<u64>,
}

/// No request waits longer than this between its last read and its first launch.
const MEMORY_NS: u64 = 600_000_000_000;

impl Busy {
    /// A step's first launch.
    pub(crate) fn begin(&mut self, launch: u64) {
        self.open.push_back(launch);
    }

    /// The result of the oldest step in flight.
    pub(crate) fn end(&mut self, result: u64) {
        let Some(launch) = self.open.pop_front() else { return };
        match self.closed.back_mut() {
            Some(last) if launch <= last.1 => last.1 = last.1.max(result),
            _ => self.closed.push_back((launch, result)),
        }
        while self.closed.front().is_some_and(|first| first.1 + MEMORY_NS < result) {
            self.closed.pop_front();
        }
    }

    /// Nanoseconds of `[from, to]` in which steps ran; those in flight count up to `to`.
    ///
    /// With `from` a request's last read and `to` its first own launch, no own step lies inside, so this is the
    /// time in which the engine was running other requests' steps. To be called before the own step's `begin`.
    pub(crate) fn measure(&self, from: u64, to: u64) -> u64 {
        let open = self.open.iter().map(|&launch| (launch, to));
        let over = self.closed.partition_point(|closed| closed.1 <= from);
        let mut covered = from;
        let mut total = 0;
        for (begin, end) in self.closed.range(over..).copied().chain(open) {
            let (begin, end) = (begin.max(covered), end.min(to));
            if end > begin {
                total += end - begin;
                covered = end;
            }
        }
        total
    }
}

/// Where the lines go.
pub(crate) struct Sink(Option<File>);

impl Sink {
    /// Appends to `path`; without one the lines are dropped.
    pub(crate) fn open(path: Option<&Path>) -> io::Result<Self> {
        let file = path.map(|path| File::options().create(true).append(true).open(path)).transpose()?;
        Ok(Self(file))
    }

    /// Writes one request's line, whole, by one call.
    pub(crate) fn write(&mut self, truth: &Truth) -> io::Result<()> {
        let Some(file) = &mut self.0 else { return Ok(()) };
        let mut line = truth.line()?;
        line.push('\n');
        file.write_all(line.as_bytes())
    }
}

#[cfg(test)]
mod tests;
