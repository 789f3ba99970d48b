//! The poll loop: sockets, signals and the engine, in one thread.

mod counters;
mod requests;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

use crate::args::{Args, Shape};
use crate::backend::{Backend, BackendError};
use crate::clock::{now, spin};
use crate::connection::{Connection, Read};
use crate::proxied::Told;
use crate::signals;
use crate::split::link::Link;
use crate::step::{Output, StepDone};
use crate::trouble::{self, Word};
use crate::truth::{Outcome, Sink};
use counters::Counters;

/// Connections open at the same time; others wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 4096;

/// Why the server ended other than by a drain.
#[derive(Debug, Error)]
pub(crate) enum ServeError {
    /// Set-up or the loop's own calls.
    #[error("{0}: {1}")]
    Io(&'static str, #[source] io::Error),
    /// The engine.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The drain took too long.
    #[error("{0} connections were still busy when the time for the drain was over")]
    Drain(usize),
}

fn io_error(what: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    move |error| ServeError::Io(what, error)
}

/// What a poll found ready.
#[derive(Clone, Copy)]
enum Ready {
    Listener,
    Signals,
    Engine,
    Connection(u64, PollFlags),
}

/// The HTTP side of the server.
pub(crate) struct Server<'a, B> {
    args: &'a Args,
    backend: B,
    listener: Option<TcpListener>,
    accept_paused: bool,
    signals: OwnedFd,
    connections: BTreeMap<u64, Connection>,
    /// Requests in the engine, and their connections.
    owners: HashMap<u64, u64>,
    numbers: u64,
    sink: Sink,
    /// Where steps are told before their tokens are written, for a proxy that writes the truth of both.
    told: Option<Link>,
    /// It was told that the driver is loaded.
    told_loaded: bool,
    counters: Counters,
    /// When the drain has to be over, ns.
    drain_until: Option<u64>,
}

impl<'a, B: Backend> Server<'a, B> {
    /// Listens and says so in the port file. `signals` is from [`signals::descriptor`].
    pub(crate) fn new(
        args: &'a Args,
        mut told: Option<Link>,
        backend: B,
        signals: OwnedFd,
    ) -> Result<Self, ServeError> {
        let listener =
            TcpListener::bind(SocketAddr::new(args.host, args.port)).map_err(io_error("cannot listen"))?;
        listener.set_nonblocking(true).map_err(io_error("cannot listen"))?;
        let sink = Sink::open(args.truth.as_deref()).map_err(io_error("cannot open the truth file"))?;
        let port = listener.local_addr().map_err(io_error("cannot listen"))?.port();
        args.port_file
            .as_deref()
            .map_or(Ok(()), |path| write_port(path, port).map_err(io_error("port file")))?;
        told.as_mut().map_or(Ok(()), |told| told.send(&Told::Listens(port)))?;
        let mut server = Self {
            args,
            told,
            told_loaded: false,
            backend,
            listener: Some(listener),
            accept_paused: false,
            signals,
            connections: BTreeMap::new(),
            owners: HashMap::new(),
            numbers: 0,
            sink,
            counters: Counters::default(),
            drain_until: None,
        };
        server.tell(&[])?;
        Ok(server)
    }

    /// Serves until a signal, and then until the requests in flight are over.
    pub(crate) fn run(mut self) -> Result<(), ServeError> {
        let result = self.serve();
        let (outcome, reason) = match &result {
            Ok(()) => return Ok(()),
            Err(ServeError::Drain(_)) => (Outcome::Truncated, String::new()),
            Err(error) => (Outcome::InBandError, error.to_string()),
        };
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        for id in ids {
            self.abandon(id, outcome, &reason);
        }
        result
    }

    fn serve(&mut self) -> Result<(), ServeError> {
        while self.drain_until.is_none() || !self.connections.is_empty() {
            if self.drain_until.is_some_and(|until| now() >= until) {
                return Err(ServeError::Drain(self.connections.len()));
            }
            for ready in self.wait()? {
                match ready {
                    Ready::Listener => self.accept(),
                    Ready::Signals => self.drain()?,
                    Ready::Engine => {}
                    Ready::Connection(id, flags) => self.on_ready(id, flags)?,
                }
            }
            self.turn()?;
        }
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        let drain = self.drain_until.map(|until| Duration::from_nanos(until.saturating_sub(now())));
        [self.backend.patience(), drain].into_iter().flatten().min()
    }

    fn wait(&self) -> Result<Vec<Ready>, ServeError> {
        let mut names = vec![Ready::Signals];
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let told = self.told.as_ref().and_then(Link::wake);
        for (fd, flags) in self.backend.wake().into_iter().chain(told) {
            names.push(Ready::Engine);
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        let accepts = !self.accept_paused && self.connections.len() < MAX_CONNECTIONS;
        if let Some(listener) = self.listener.as_ref().filter(|_| accepts) {
            names.push(Ready::Listener);
            fds.push(PollFd::new(listener, PollFlags::IN));
        }
        for (id, connection) in &self.connections {
            names.push(Ready::Connection(*id, PollFlags::empty()));
            fds.push(PollFd::new(connection.socket(), connection.interest()));
        }
        let timeout = self.timeout().and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(ServeError::Io("poll", error.into())),
        }
        let ready = names.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|(name, fd)| with_flags(name, fd.revents())).collect())
    }

    fn accept(&mut self) {
        while let Some(listener) = self.listener.as_ref().filter(|_| self.connections.len() < MAX_CONNECTIONS)
        {
            match listener.accept().and_then(|(stream, _)| Connection::new(stream, self.args)) {
                Ok(connection) => {
                    self.numbers += 1;
                    self.counters.connections += 1;
                    self.connections.insert(self.numbers, connection);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Out of descriptors, or the client is gone: try again when a connection has ended.
                    self.counters.accept_errors += 1;
                    self.accept_paused = !self.connections.is_empty();
                    return;
                }
            }
        }
    }

    /// A signal: the first starts the drain, the second ends it.
    fn drain(&mut self) -> Result<(), ServeError> {
        let mut info = [0; 1024];
        rustix::io::read(&self.signals, &mut info)
            .map_err(|error| ServeError::Io("signalfd", error.into()))?;
        let allowed = if self.drain_until.is_none() { self.args.drain_ms } else { 0 };
        self.drain_until = Some(now() + allowed * 1_000_000);
        self.listener = None;
        self.connections.retain(|_, connection| !connection.is_idle());
        Ok(())
    }

    fn on_ready(&mut self, id: u64, flags: PollFlags) -> Result<(), ServeError> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let broken = flags.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        let read = match flags.contains(PollFlags::IN) {
            true => connection.read().unwrap_or(Read::Closed),
            false if broken => Read::Closed,
            false => Read::Open,
        };
        match read {
            Read::Open => self.drive(id),
            Read::Closed => self.disconnect(id),
        }
    }

    /// Lets the engine work (or takes its messages) and writes what came of it.
    fn turn(&mut self) -> Result<(), ServeError> {
        let mut done = Vec::new();
        self.backend.turn(&mut done)?;
        self.tell(&done)?;
        let mut touched = Vec::new();
        let mut stalls = false;
        for step in done {
            self.counters.steps += 1;
            stalls |= self.args.stall_every > 0 && self.counters.steps.is_multiple_of(self.args.stall_every);
            self.apply(&step, &mut touched);
        }
        for id in touched {
            self.drive(id)?;
        }
        if stalls {
            self.counters.stalls += 1;
            spin(self.args.stall_us);
        }
        Ok(())
    }

    fn tell(&mut self, done: &[StepDone]) -> Result<(), ServeError> {
        let Some(told) = &mut self.told else { return Ok(()) };
        told.flush().map_err(io_error("pipe to the proxy"))?;
        if !self.told_loaded && self.backend.ready() {
            told.send(&Told::Loaded)?;
            self.told_loaded = true;
        }
        Ok(done.iter().try_for_each(|step| told.send(&Told::Step(step.clone())))?)
    }

    /// Busy time for the text of a token; another process has it in `chain`.
    fn detokenize(&self, output: &Output) {
        if output.text.is_some() && self.args.shape != Shape::Chain {
            spin(self.args.detok_us);
            trouble::block(Word::DetokUs);
        }
    }

    fn apply(&mut self, step: &StepDone, touched: &mut Vec<u64>) {
        self.counters.alloc_failures = step.alloc_failures;
        for output in &step.outputs {
            let owner = if output.last {
                self.owners.remove(&output.id)
            } else {
                self.owners.get(&output.id).copied()
            };
            let Some(id) = owner else { continue };
            self.detokenize(output);
            let exchange = self.connections.get_mut(&id).and_then(|connection| connection.exchange.as_mut());
            let Some(exchange) = exchange else { continue };
            exchange.on_step(step, output);
            if !touched.contains(&id) {
                touched.push(id);
            }
        }
    }
}

fn with_flags(ready: Ready, flags: PollFlags) -> Ready {
    match ready {
        Ready::Connection(id, _) => Ready::Connection(id, flags),
        other => other,
    }
}

/// The file appears with its content or not at all.
fn write_port(path: &Path, port: u16) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    std::fs::write(&name, format!("{port}\n"))?;
    std::fs::rename(&name, path)
}

/// Serves with this backend until told to stop. `told` is where a proxy in front hears of steps.
pub(crate) fn serve<B: Backend>(
    args: &Args,
    told: Option<Link>,
    start: impl FnOnce(&Args) -> Result<B, BackendError>,
) -> Result<(), ServeError> {
    // First, so that a signal during the start is not lost.
    let signals = signals::descriptor().map_err(io_error("signals"))?;
    Server::new(args, told, start(args)?, signals)?.run()
}
