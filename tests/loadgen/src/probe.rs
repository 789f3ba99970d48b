//! Health probes beside the load, as an orchestrator sends them: each on a connection of its own, its answer of no interest.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::args::Args;

/// Probes until it is dropped.
pub(crate) struct Probes {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Probes {
    /// Starts them, if any are wanted.
    pub(crate) fn start(args: &Args) -> Option<Self> {
        let (path, every) = (args.probe.clone()?, Duration::from_millis(args.probe_every_ms));
        let (address, timeout) = (args.address(), args.timeout);
        let (stop, stopped) = channel();
        let thread = thread::spawn(move || {
            until(&stopped, every, || {
                // A server that does not answer a probe shows in its requests as well.
                let _ = TcpStream::connect_timeout(&address, timeout)
                    .and_then(|stream| ask(stream, &path, timeout));
            });
        });
        Some(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.take().map(JoinHandle::join);
    }
}

/// Does it again and again, until the other end of the channel is gone.
fn until(stopped: &Receiver<()>, every: Duration, mut probe: impl FnMut()) {
    while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        probe();
    }
}

fn ask(mut stream: TcpStream, path: &str, timeout: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(timeout))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n")?;
    stream.read_to_end(&mut Vec::new()).map(drop)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use clap::Parser as _;

    use super::*;

    #[test]
    fn probes_come_until_the_load_ends() {
        let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = server.local_addr().unwrap().port().to_string();
        let words =
            ["loadgen", "--requests", "1", "--probe", "/health", "--probe-every-ms", "1", "--port", &port];
        let probes = Probes::start(&Args::try_parse_from(words).unwrap()).unwrap();
        for _ in 0..2 {
            let (stream, _) = server.accept().unwrap();
            let mut head = [0; 12];
            (&stream).read_exact(&mut head).unwrap();
            assert_eq!(&head, b"GET /health ");
        }
        drop(server);
        drop(probes);
    }
}
