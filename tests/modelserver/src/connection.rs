//! A client's connection: the socket, what came in, what has to go out, the request in progress.

use std::io::{self, IoSlice, IoSliceMut};
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

    /// One read, as one readiness gives, by the call that the engine's HTTP library makes: `recv` in cpp-httplib and hyper,
    /// `readv` in libevhtp, `read` in uvloop and Go.
    pub(crate) fn read(&mut self) -> io::Result<Read> {
        let mut buffer = [0; 16 << 10];
        let (stamp, result) = stamped(|| match self.shape {
            Shape::Single | Shape::Sharded => {
                recv(&self.stream, &mut buffer, RecvFlags::empty()).map(|count| count.0)
            }
            Shape::Shm => rustix::io::readv(&self.stream, &mut [IoSliceMut::new(&mut buffer)]),
            Shape::Split | Shape::Chain | Shape::Proxied => rustix::io::read(&self.stream, &mut buffer),
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

    /// Queues what the request in progress has, and writes, likewise: `send`, `writev` or `write`.
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
        Shape::Sharded => rustix::io::writev(stream, &pieces(bytes).map(IoSlice::new)),
        Shape::Shm => rustix::io::writev(stream, &[IoSlice::new(bytes)]),
        Shape::Split | Shape::Chain | Shape::Proxied => rustix::io::write(stream, bytes),
    };
    Ok(count?)
}

/// Size, data and end of a chunk, which hyper writes as three vectors; all in the last one where it is no chunk.
fn pieces(bytes: &[u8]) -> [&[u8]; 3] {
    let size = bytes.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    match bytes.get(size..size + 2) {
        Some(b"\r\n") if size > 0 && bytes.len() >= size + 4 => {
            let (head, rest) = bytes.split_at(size + 2);
            let (data, end) = rest.split_at(rest.len() - 2);
            [head, data, end]
        }
        _ => [&[], &[], bytes],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_three_pieces() {
        let cases: [(&[u8], [&[u8]; 3]); 4] = [
            (b"3\r\nabc\r\n", [b"3\r\n", b"abc", b"\r\n"]),
            (b"0\r\n\r\n", [b"0\r\n", b"", b"\r\n"]),
            (b"HTTP/1.1 200 OK\r\n\r\n", [b"", b"", b"HTTP/1.1 200 OK\r\n\r\n"]),
            (b"bc\r\n", [b"", b"", b"bc\r\n"]),
        ];
        for (bytes, want) in cases {
            assert_eq!(pieces(bytes), want);
        }
    }
}
