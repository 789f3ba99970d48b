//! From a connection's bytes to answers and truth lines.

use std::time::SystemTime;

use super::{ServeError, Server};
use crate::api::{self, Answer, Call, Defaults, Endpoint};
use crate::backend::Backend;
use crate::clock::{Stamp, now, spin};
use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::http::{HttpError, Mark, Parsed, Request};
use crate::step::Job;
use crate::trouble::{self, Word};
use crate::truth::{Outcome, Truth};

/// Where a request goes.
enum Route {
    /// Tokens are wanted.
    Call(Endpoint),
    /// One token is wanted, to see whether the engine lives: no truth line.
    Generate,
    /// Not a request to the model: no truth line.
    Probe,
    /// Refused with this status.
    Refused(u16, &'static str),
}

fn route(method: &str, path: &str) -> Route {
    match (method, path) {
        ("POST", "/v1/chat/completions") => Route::Call(Endpoint::Chat),
        ("POST", "/v1/completions") => Route::Call(Endpoint::Completions),
        ("GET", "/health_generate") => Route::Generate,
        ("GET", "/health" | "/metrics" | "/v1/models") => Route::Probe,
        (_, "/v1/chat/completions" | "/v1/completions" | "/health" | "/metrics" | "/v1/models") => {
            Route::Refused(405, "method not allowed")
        }
        _ => Route::Refused(404, "no such path"),
    }
}

/// What a connection needs after its writes.
enum Progress {
    /// More became writable.
    More,
    /// The answer is out.
    Finish,
    /// No request is in progress.
    Next,
}

impl<B: Backend> Server<'_, B> {
    /// Writes what there is, ends what is over, starts what comes next, as far as the connection goes.
    pub(super) fn drive(&mut self, id: u64) -> Result<(), ServeError> {
        while let Some(connection) = self.connections.get_mut(&id) {
            if connection.flush().is_err() {
                return self.disconnect(id);
            }
            let progress = match &connection.exchange {
                None => Progress::Next,
                Some(exchange) if exchange.is_done() => Progress::Finish,
                Some(exchange) if exchange.has_pending() && !connection.outbound.is_full() => Progress::More,
                Some(_) => return Ok(()),
            };
            match progress {
                Progress::More => {}
                Progress::Finish => self.finish(id),
                Progress::Next if self.next_request(id)? => {}
                Progress::Next => return Ok(()),
            }
        }
        Ok(())
    }

    /// Starts the next request; false if none is there in full.
    fn next_request(&mut self, id: u64) -> Result<bool, ServeError> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(false) };
        match connection.inbound.next() {
            Ok(Parsed::Incomplete) => return Ok(false),
            Ok(Parsed::SendContinue) => {
                connection.outbound.push(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), Mark::Interim);
            }
            Ok(Parsed::Request(request)) => self.begin(id, &request)?,
            Err(error) => self.reject(id, &error),
        }
        Ok(true)
    }

    fn truth(&self, path: &str, first_read: Stamp, last_read: Stamp) -> Truth {
        Truth {
            request_id: None,
            shape: self.args.shape,
            path: path.to_owned(),
            streaming: false,
            status: 0,
            outcome: Outcome::Ok,
            first_read,
            last_read,
            handoff: None,
            sched: None,
            queue: None,
            steps: Vec::new(),
            first_byte: None,
            last_write: None,
            content: Vec::new(),
            input_tokens: 0,
            output_tokens: 0,
            blocked: 0,
            cancel: None,
        }
    }

    fn set(&mut self, id: u64, make: impl FnOnce(&mut Connection) -> Exchange) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.exchange = Some(make(connection));
        }
    }

    /// Bytes that are no request: an answer, then the end of the connection.
    fn reject(&mut self, id: u64, error: &HttpError) {
        let stamps = self.connections.get(&id).and_then(|connection| connection.inbound.pending_stamps());
        let (first_read, last_read) = stamps.unwrap_or_default();
        let truth = self.truth("", first_read, last_read);
        let (status, message) = (error.status(), error.to_string());
        self.set(id, |connection| Exchange::refuse(truth, status, &message, false, &mut connection.outbound));
    }

    fn begin(&mut self, id: u64, request: &Request) -> Result<(), ServeError> {
        let keep_alive = request.keep_alive && !self.ends(id);
        self.numbers += 1;
        let number = request.job.unwrap_or(self.numbers);
        let mut truth = self.truth(&request.path, request.first_read, request.last_read);
        truth.request_id = Some(request.client_id.clone().unwrap_or_else(|| format!("modelserver-{number}")));
        let refused = match route(&request.method, &request.path) {
            // Spread over all of them.
            Route::Call(_) if number * 37 % 100 < trouble::now(Word::FailPercent) => {
                (500, "the engine has failed".to_owned())
            }
            Route::Call(endpoint) => match self.call(endpoint, request) {
                Ok(call) => return self.generate(id, truth, (number, call), request.http11, keep_alive),
                Err(refused) => refused,
            },
            Route::Generate => {
                self.counters.probes += 1;
                return self.generate(id, truth, (number, Call::probe()), request.http11, keep_alive);
            }
            Route::Probe => {
                self.probe(id, &request.path, keep_alive);
                return Ok(());
            }
            Route::Refused(status, message) => (status, message.to_owned()),
        };
        self.set(id, |connection| {
            Exchange::refuse(truth, refused.0, &refused.1, keep_alive, &mut connection.outbound)
        });
        Ok(())
    }

    /// Reads the body, if there is a place for the request; else status and message.
    fn call(&mut self, endpoint: Endpoint, request: &Request) -> Result<Call, (u16, String)> {
        let defaults = Defaults { max_tokens: self.args.max_tokens, seed: self.args.seed };
        let call = api::parse(endpoint, &request.body, defaults).map_err(|error| (400, error.to_string()))?;
        if self.owners.len() >= self.args.slots() + self.args.max_queue {
            self.counters.refused += 1;
            return Err((503, "the queue is full, try again later".to_owned()));
        }
        Ok(call)
    }

    fn metrics(&self) -> String {
        let blocked = self.connections.values().filter(|connection| connection.outbound.is_blocked()).count();
        self.counters.text(self.owners.len(), self.connections.len(), blocked)
    }

    fn probe(&mut self, id: u64, path: &str, keep_alive: bool) {
        self.counters.probes += 1;
        let reply = match path {
            "/health" if !self.backend.ready() => {
                (503, "application/json", r#"{"status":"loading"}"#.to_owned())
            }
            "/health" => (200, "application/json", r#"{"status":"ok"}"#.to_owned()),
            "/metrics" => (200, "text/plain; version=0.0.4", self.metrics()),
            _ => (200, "application/json", api::models(&self.args.models)),
        };
        self.set(id, |connection| {
            Exchange::reply(None, (reply.0, reply.1, &reply.2), keep_alive, &mut connection.outbound)
        });
    }

    /// Tokenizes (busy), writes the head where it goes first, hands over.
    fn generate(
        &mut self,
        id: u64,
        truth: Truth,
        (number, call): (u64, Call),
        http11: bool,
        keep_alive: bool,
    ) -> Result<(), ServeError> {
        let prompt_us = self.args.tokenizer_ns_per_token * u64::from(call.input_tokens) / 1000;
        spin(self.args.tokenizer_us + prompt_us);
        trouble::block(Word::BlockUs);
        let job = Job {
            id: number,
            model: call.model.clone(),
            input_tokens: call.input_tokens,
            output_tokens: call.output_tokens,
            seed: call.seed,
            read_ns: truth.last_read.1,
        };
        let answer = Answer { call, number, created: wall_seconds() };
        let exchange = Exchange::generate(truth, answer, http11, keep_alive);
        if !self.open(id, exchange)? {
            return Ok(());
        }
        self.owners.insert(number, id);
        let handoff = self.backend.submit(job)?;
        let exchange = self.connections.get_mut(&id).and_then(|connection| connection.exchange.as_mut());
        if let Some(truth) = exchange.and_then(|exchange| exchange.truth.as_mut()) {
            truth.handoff = Some(handoff);
        }
        Ok(())
    }

    /// Makes the exchange the connection's own and writes a head that goes first; false if the client is gone.
    fn open(&mut self, id: u64, mut exchange: Exchange) -> Result<bool, ServeError> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(false) };
        if self.args.shape.writes_heads_first() {
            exchange.head_first(&mut connection.outbound);
        }
        connection.exchange = Some(exchange);
        if connection.flush().is_err() {
            self.disconnect(id)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// The answer is out: truth line; the connection goes on or ends.
    fn finish(&mut self, id: u64) {
        let Some(exchange) = self.connections.get_mut(&id).and_then(|connection| connection.exchange.take())
        else {
            return;
        };
        if !exchange.keep_alive || self.ends(id) {
            self.close(id);
        }
        self.conclude(exchange);
    }

    /// Whether the connection has to end after the request in progress: in a drain, unless more was read already.
    fn ends(&self, id: u64) -> bool {
        let more = self.connections.get(&id).is_some_and(|connection| !connection.inbound.is_empty());
        self.drain_until.is_some() && !more
    }

    fn close(&mut self, id: u64) {
        self.connections.remove(&id);
        self.owners.retain(|_, owner| *owner != id);
        self.accept_paused = false;
    }

    fn conclude(&mut self, exchange: Exchange) {
        let Some(truth) = exchange.truth.filter(|truth| truth.path != "/health_generate") else { return };
        self.counters.ended(truth.outcome);
        self.counters.merged += truth.content.iter().filter(|write| write.1 > 1).count() as u64;
        self.counters.truth_errors += u64::from(self.sink.write(&truth).is_err());
    }

    /// The client has closed: cancel, truth line.
    pub(super) fn disconnect(&mut self, id: u64) -> Result<(), ServeError> {
        let exchange = self.connections.get_mut(&id).and_then(|connection| connection.exchange.take());
        self.close(id);
        let Some(mut exchange) = exchange else { return Ok(()) };
        let running = exchange.running();
        if let Some(truth) = &mut exchange.truth {
            truth.outcome = Outcome::ClientDisconnect;
            truth.cancel = Some(now());
        }
        self.conclude(exchange);
        Ok(running.map_or(Ok(()), |number| self.backend.cancel(number))?)
    }

    /// The server ends before the answer: an error to the client if it is one, truth line.
    pub(super) fn abandon(&mut self, id: u64, outcome: Outcome, reason: &str) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(exchange) = &mut connection.exchange
            && outcome == Outcome::InBandError
        {
            exchange.fail(reason, &mut connection.outbound);
        }
        // One try: a client that does not take it sees the connection end.
        drop(connection.flush());
        let exchange = connection.exchange.take();
        self.close(id);
        let Some(mut exchange) = exchange else { return };
        let done = exchange.is_done();
        if let Some(truth) = exchange.truth.as_mut().filter(|_| !done) {
            truth.outcome = Outcome::Truncated;
        }
        self.conclude(exchange);
    }
}

fn wall_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
