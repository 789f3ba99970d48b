//! One request and its answer: tokens in, writes out, stamps kept.

use crate::api::{self, Answer};
use crate::args::Shape;
use crate::http::{Framing, Mark, Outbound, Written, body_piece, head};
use crate::step::{Output, StepDone};
use crate::truth::{Outcome, OwnStep, Truth};

const JSON: &str = "application/json";
const SSE: &str = "text/event-stream; charset=utf-8";

/// The answer to a call, as far as it has come.
struct Generation {
    answer: Answer,
    framing: Framing,
    head_queued: bool,
    role_queued: bool,
    /// Text that is not queued yet, and its tokens.
    text: String,
    pending: u32,
    complete: bool,
}

/// A request and its answer.
pub(crate) struct Exchange {
    /// Whether the connection may go on afterwards.
    pub(crate) keep_alive: bool,
    /// The stamps; none for probes such as `/health`.
    pub(crate) truth: Option<Truth>,
    generation: Option<Generation>,
    ended: bool,
    done: bool,
}

impl Exchange {
    /// An answer that is known at once.
    pub(crate) fn reply(
        mut truth: Option<Truth>,
        (status, content_type, body): (u16, &str, &str),
        keep_alive: bool,
        out: &mut Outbound,
    ) -> Self {
        if let Some(truth) = &mut truth {
            truth.status = status;
            truth.outcome = match status {
                200..=399 => Outcome::Ok,
                400..=499 => Outcome::Client4xx,
                _ => Outcome::Server5xx,
            };
        }
        push_whole(status, content_type, body, keep_alive, out);
        Self { keep_alive, truth, generation: None, ended: true, done: false }
    }

    /// An error object.
    pub(crate) fn refuse(
        truth: Truth,
        status: u16,
        message: &str,
        keep_alive: bool,
        out: &mut Outbound,
    ) -> Self {
        Self::reply(Some(truth), (status, JSON, &api::error(status, message)), keep_alive, out)
    }

    /// An answer that the engine will generate.
    pub(crate) fn generate(mut truth: Truth, answer: Answer, http11: bool, keep_alive: bool) -> Self {
        truth.streaming = answer.call.stream;
        truth.input_tokens = answer.call.input_tokens;
        let framing = if http11 { Framing::Chunked } else { Framing::Close };
        let keep_alive = keep_alive && (http11 || !answer.call.stream);
        let generation = Generation {
            answer,
            framing,
            head_queued: false,
            role_queued: false,
            text: String::new(),
            pending: 0,
            complete: false,
        };
        Self { keep_alive, truth: Some(truth), generation: Some(generation), ended: false, done: false }
    }

    /// The engine's number of the request, if the engine has it and still works on it.
    pub(crate) fn running(&self) -> Option<u64> {
        self.generation
            .as_ref()
            .filter(|generation| !generation.complete)
            .map(|generation| generation.answer.number)
    }

    /// Whether all is written.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Queues the head of a stream before there is any token, as vLLM does.
    pub(crate) fn head_first(&mut self, out: &mut Outbound) {
        if let Some(generation) = self.generation.as_mut().filter(|generation| generation.answer.call.stream)
        {
            generation.push_head(self.keep_alive, out);
            self.note_status(200);
        }
    }

    fn note_status(&mut self, status: u16) {
        if let Some(truth) = &mut self.truth {
            truth.status = status;
        }
    }

    /// Takes what a step gave this request.
    pub(crate) fn on_step(&mut self, step: &StepDone, output: &Output) {
        let (Some(generation), Some(truth)) = (&mut self.generation, &mut self.truth) else { return };
        let token = output.text.is_some();
        truth.steps.push(OwnStep { launch: step.launch, result: step.result, batch: step.batch, token });
        truth.output_tokens += u32::from(token);
        if let Some(admission) = output.admission {
            truth.sched = Some(admission.sched_ns);
            truth.queue = Some(admission.queue_ns);
        }
        generation.text.push_str(output.text.as_deref().unwrap_or_default());
        generation.pending += u32::from(token);
        generation.complete |= output.last;
    }

    /// Whether [`Exchange::pump`] has something to queue.
    pub(crate) fn has_pending(&self) -> bool {
        let pending = |generation: &Generation| {
            generation.complete || (generation.answer.call.stream && generation.pending > 0)
        };
        !self.ended && self.generation.as_ref().is_some_and(pending)
    }

    /// Queues what can be written. All tokens that came since the last time go into one event: more than one only
    /// when the loop was late or the client does not read.
    pub(crate) fn pump(&mut self, out: &mut Outbound) {
        if !self.has_pending() || out.is_full() {
            return;
        }
        let (Some(generation), Some(truth)) = (&mut self.generation, &self.truth) else { return };
        if generation.answer.call.stream {
            generation.push_tokens(truth.shape, self.keep_alive, out);
            if generation.complete {
                generation.push_end(truth.shape, truth.output_tokens, out);
                self.ended = true;
            }
        } else {
            let body = generation.answer.whole(&generation.text, truth.output_tokens);
            push_whole(200, JSON, &body, self.keep_alive, out);
            self.ended = true;
        }
        self.note_status(200);
    }

    /// Ends the answer because the engine is gone: a status if none was sent, else an error object in the stream.
    pub(crate) fn fail(&mut self, message: &str, out: &mut Outbound) {
        let (Some(generation), Some(truth)) = (&mut self.generation, &mut self.truth) else { return };
        if self.ended {
            return;
        }
        let body = api::error(500, message);
        if generation.head_queued {
            truth.outcome = Outcome::InBandError;
            out.push(body_piece(generation.framing, &api::event(&body)), Mark::Other);
            out.push(body_piece(generation.framing, ""), Mark::Last);
        } else {
            (truth.status, truth.outcome) = (500, Outcome::Server5xx);
            push_whole(500, JSON, &body, false, out);
        }
        (self.ended, self.keep_alive, generation.complete) = (true, false, true);
    }

    /// Notes a write.
    pub(crate) fn on_written(&mut self, written: Written) {
        self.done |= written.mark == Mark::Last;
        let Some(truth) = &mut self.truth else { return };
        if written.mark == Mark::Interim {
            return;
        }
        truth.first_byte.get_or_insert(written.stamp);
        truth.last_write = Some(written.stamp);
        if let Mark::Content(tokens) = written.mark {
            truth.content.push((written.stamp, tokens));
        }
    }
}

/// Head and body, one write each.
fn push_whole(status: u16, content_type: &str, body: &str, keep_alive: bool, out: &mut Outbound) {
    out.push(head(status, content_type, Framing::Length(body.len()), keep_alive), Mark::Other);
    out.push(body.as_bytes().to_vec(), Mark::Last);
}

impl Generation {
    fn push_head(&mut self, keep_alive: bool, out: &mut Outbound) {
        if !self.head_queued {
            out.push(head(200, SSE, self.framing, keep_alive), Mark::Other);
            self.head_queued = true;
        }
    }

    fn push(&self, event: &str, mark: Mark, out: &mut Outbound) {
        out.push(body_piece(self.framing, event), mark);
    }

    fn push_tokens(&mut self, shape: Shape, keep_alive: bool, out: &mut Outbound) {
        self.push_head(keep_alive, out);
        if !std::mem::replace(&mut self.role_queued, true)
            && let Some(role) = self.answer.role_chunk()
        {
            self.push(&role, Mark::Other, out);
        }
        if self.pending > 0 {
            // vLLM's last token carries the finish reason, llama.cpp sends it by itself.
            let finish = self.complete && shape != Shape::Single;
            let chunk = self.answer.content_chunk(&self.text, finish);
            self.push(&chunk, Mark::Content(self.pending), out);
            self.text.clear();
            self.pending = 0;
        }
    }

    fn push_end(&self, shape: Shape, tokens: u32, out: &mut Outbound) {
        if shape == Shape::Single {
            self.push(&self.answer.finish_chunk(), Mark::Other, out);
        }
        if let Some(usage) = self.answer.usage_chunk(tokens) {
            self.push(&usage, Mark::Other, out);
        }
        let chunked = self.framing == Framing::Chunked;
        self.push(&api::event("[DONE]"), if chunked { Mark::Other } else { Mark::Last }, out);
        if chunked {
            self.push("", Mark::Last, out);
        }
    }
}
