//! A client: one connection, one request at a time.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::args::Args;
use crate::clock;
use crate::connection::Connection;
use crate::exchange::{Exchange, Manner};
use crate::pace::{Pace, Ticket};
use crate::plan::Plan;
use crate::record::{Outcome, Record};
use crate::report::Report;

/// A client that gets no connection waits that long before it tries the next request.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// One client.
pub(crate) struct Worker {
    number: u16,
    args: Arc<Args>,
    pace: Arc<Pace>,
    report: Arc<Report>,
    connection: Option<Connection>,
}

impl Worker {
    pub(crate) fn new(number: u16, args: Arc<Args>, pace: Arc<Pace>, report: Arc<Report>) -> Self {
        Self { number, args, pace, report, connection: None }
    }

    /// Until there are no more requests.
    pub(crate) fn run(mut self) -> Result<()> {
        while let Some(ticket) = self.pace.next() {
            let record = self.request(ticket);
            self.report.write(&record)?;
            if record.t_send.is_none() {
                thread::sleep(RETRY_PAUSE);
            }
        }
        Ok(())
    }

    fn request(&mut self, ticket: Ticket) -> Record {
        let plan = Plan::new(&self.args, ticket.number);
        let deadline = clock::after(clock::now(), self.args.timeout);
        let pause = plan.slow.then(|| Duration::from_millis(self.args.slow_pause_ms));
        let manner = Manner { deadline, abort: plan.abort, pause };
        let mut record = self.record(ticket, &plan);
        // A slow client has a connection of its own; the usual one stays for the next request.
        let mut kept = if plan.slow { None } else { self.connection.take() };
        loop {
            let reused = kept.is_some();
            let opened = kept.take().map_or_else(|| self.open(&plan), Ok);
            let after = match opened {
                Ok(connection) => self.exchange(connection, &plan, &manner, &mut record),
                Err(e) => {
                    record.error = Some(format!("cannot connect to {}: {e}", self.args.address()));
                    None
                }
            };
            if !(reused && record.outcome == Outcome::ConnectionFailed) {
                if !plan.slow {
                    self.connection = after;
                }
                return record;
            }
            // The server closed the idle connection just now, as it may: once more on a new one.
            record = Record { retries: record.retries + 1, ..self.record(ticket, &plan) };
        }
    }

    fn open(&self, plan: &Plan) -> std::io::Result<Connection> {
        Connection::open(self.args.address(), plan.slow, self.args.timeout)
    }

    /// Returns the connection if it can be used again.
    fn exchange(
        &self,
        mut c: Connection,
        plan: &Plan,
        manner: &Manner,
        record: &mut Record,
    ) -> Option<Connection> {
        record.on_connection = c.carried;
        c.carried += 1;
        let last = plan.slow || self.args.per_connection().is_some_and(|n| c.carried >= n.get());
        let request = self.bytes(plan, &record.request_id, last);
        let end = Exchange::default().run(&mut c, &request, manner, record);
        end.is_ok_and(|keep_alive| keep_alive && !last).then_some(c)
    }

    fn bytes(&self, plan: &Plan, request_id: &str, last: bool) -> Vec<u8> {
        let body = plan.body(self.args.api, &self.args.model);
        let (path, address, length) = (self.args.api.path(), self.args.address(), body.len());
        let accept = if plan.streaming { "text/event-stream" } else { "application/json" };
        let connection = if last { "close" } else { "keep-alive" };
        let mut bytes = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nAccept: {accept}\r\n\
             x-request-id: {request_id}\r\nConnection: {connection}\r\nContent-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        bytes.extend_from_slice(&body);
        bytes
    }

    fn record(&self, ticket: Ticket, plan: &Plan) -> Record {
        Record {
            request_id: self.report.request_id(ticket.number),
            worker: self.number,
            on_connection: 0,
            path: self.args.api.path(),
            streaming: plan.streaming,
            slow: plan.slow,
            input_tokens: plan.input_tokens,
            max_tokens: plan.output_tokens,
            t_due: ticket.due,
            t_send: None,
            t_sent: None,
            t_first_byte: None,
            t_first_token: None,
            t_last_byte: None,
            status: None,
            outcome: Outcome::ConnectionFailed,
            chunks: 0,
            finish_reason: None,
            usage: None,
            retries: 0,
            error: None,
        }
    }
}
