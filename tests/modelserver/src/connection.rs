//! A client's connection: the socket, what came in, what has to go out, the request in progress.

use std::io;
use std::net::TcpStream;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::args::{Args, Shape};
use crate::clock::stamped;
use crate::exchange::Exchange;
use crate::http::{Inbound, Outbound, Written};

/// What came of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Bytes, or none for now.
    Open,
    /// The client has closed.
    Closed,
}

/// A connection.
pub(crate) struct Connection {
    stream: TcpStream,
    shape: Shape,
    /// What was read and not taken yet.
    pub(crate) inbound: Inbound,
    /// What has to be written.
    pub(crate) outbound: Outbound,
    /// The request in progress; others wait in `inbound`.
    pub(crate) exchange: Option<Exchange>,
}

impl Connection {
    /// Takes an accepted socket.
    pub(crate) fn new(stream: TcpStream, args: &Args) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        if args.send_buffer > 0 {
            set_socket_send_buffer_size(&stream, args.send_buffer)?;
        }
        let shape = args.shape;
        Ok(Self { stream, shape, inbound: Inbound::default(), outbound: Outbound::default(), exchange: None })
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// What to wait for.
    pub(crate) fn interest(&self) -> PollFlags {
        let input = if self.inbound.is_full() { PollFlags::empty() } else { PollFlags::IN };
        let output = if self.outbound.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        input | output
    }

    /// Whether neither a request nor a part of one is here.
    pub(crate) fn is_idle(&self) -> bool {
        self.exchange.is_none() && self.inbound.is_empty() && self.outbound.is_empty()
    }

    /// One read, as one readiness gives: `recv` as cpp-httplib, or `read` as uvloop.
    pub(crate) fn read(&mut self) -> io::Result<Read> {
        let mut buffer = [0; 16 << 10];
        let (stamp, result) = stamped(|| match self.shape {
            Shape::Single => recv(&self.stream, &mut buffer, RecvFlags::empty()).map(|count| count.0),
            Shape::Split => rustix::io::read(&self.stream, &mut buffer),
        });
        match result {
            Ok(0) => Ok(Read::Closed),
            Ok(count) => {
                self.inbound.push(&buffer[..count], stamp);
                Ok(Read::Open)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Read::Open),
            Err(error) => Err(error.into()),
        }
    }

    /// Queues what the request in progress has, and writes: `send` as cpp-httplib, or `write` as uvloop.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if let Some(exchange) = &mut self.exchange {
            exchange.pump(&mut self.outbound);
        }
        let mut done = Vec::new();
        let (stream, shape) = (&self.stream, self.shape);
        let result = self.outbound.flush(|bytes| write(stream, shape, bytes), &mut done);
        self.note(&done);
        result
    }

    fn note(&mut self, done: &[Written]) {
        let blocked = self.outbound.take_blocked();
        let Some(exchange) = &mut self.exchange else { return };
        for written in done {
            exchange.on_written(*written);
        }
        if let Some(truth) = &mut exchange.truth {
            truth.blocked += blocked;
        }
    }
}

fn write(stream: &TcpStream, shape: Shape, bytes: &[u8]) -> io::Result<usize> {
    let count = match shape {
        Shape::Single => send(stream, bytes, SendFlags::NOSIGNAL),
        Shape::Split => rustix::io::write(stream, bytes),
    };
    Ok(count?)
}
