//! The proxy: a connection to the runner for each request, and its events as they come.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::PollFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::{Value, json};

use super::Told;
use crate::args::{Args, Part};
use crate::backend::{Backend, BackendError};
use crate::clock::now;
use crate::part::Child;
use crate::split::link::Link;
use crate::step::{Job, StepDone};
use crate::truth::Busy;

/// A request at the runner.
struct Ask {
    stream: TcpStream,
    input: Vec<u8>,
    read_ns: u64,
    /// Steps that held it and whose tokens have not come yet.
    steps: VecDeque<StepDone>,
    /// Tokens that have come before their steps were heard of: the pipe was full.
    owed: usize,
    /// No more tokens will come.
    ended: bool,
}

/// The proxy's side of the runner.
pub(crate) struct Proxy {
    told: Link,
    runner: Child,
    port: Option<u16>,
    loaded: bool,
    /// Requests that came before the port was known.
    early: Vec<Job>,
    asks: BTreeMap<u64, Ask>,
    busy: Busy,
}

impl Proxy {
    /// Starts the runner. Waits until it has loaded the driver, unless that is to be late.
    pub(crate) fn start(args: &Args) -> Result<Self, BackendError> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let runner = Child::start(Part::Runner, &[("output-fd", &theirs)], None)?;
        drop(theirs);
        let (early, asks, busy) = (Vec::new(), BTreeMap::new(), Busy::default());
        let mut proxy = Self { told: Link::new(ours)?, runner, port: None, loaded: false, early, asks, busy };
        while proxy.port.is_none() || (args.dlopen_delay_ms == 0 && !proxy.loaded) {
            proxy.told.wait()?;
            proxy.hear()?;
        }
        Ok(proxy)
    }

    fn hear(&mut self) -> Result<(), BackendError> {
        for told in self.told.receive()? {
            match told {
                Told::Listens(port) => self.port = Some(port),
                Told::Loaded => self.loaded = true,
                Told::Step(step) => self.step(&step),
            }
        }
        Ok(())
    }

    /// The queue is measured from the read of the request that the client sent.
    fn step(&mut self, step: &StepDone) {
        for output in &step.outputs {
            let Some(ask) = self.asks.get_mut(&output.id) else { continue };
            let mut own = StepDone { outputs: vec![output.clone()], ..step.clone() };
            if let Some(admission) = own.outputs.iter_mut().find_map(|output| output.admission.as_mut()) {
                admission.queue_ns = self.busy.measure(ask.read_ns, step.launch.0);
            }
            ask.steps.push_back(own);
        }
        self.busy.begin(step.launch.0);
        self.busy.end(step.result.1);
    }

    fn ask(&mut self, port: u16, job: &Job) -> io::Result<()> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        let prompt = vec![1; job.input_tokens as usize];
        let body =
            json!({ "model": job.model, "stream": true, "prompt": prompt, "max_tokens": job.output_tokens });
        let body = body.to_string();
        let (id, length) = (job.id, body.len());
        write!(
            stream,
            "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nx-rig-job: {id}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
        stream.set_nonblocking(true)?;
        let ask = Ask {
            stream,
            input: Vec::new(),
            read_ns: job.read_ns,
            steps: VecDeque::new(),
            owed: 0,
            ended: false,
        };
        self.asks.insert(job.id, ask);
        Ok(())
    }
}

impl Ask {
    /// Takes what has come and hands over the steps whose tokens are in it.
    fn take(&mut self, done: &mut Vec<StepDone>) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        while let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            self.line(line.trim_ascii());
        }
        self.hand_over(done);
        Ok(())
    }

    fn line(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data: ") else { return };
        self.ended |= data == b"[DONE]";
        // Each token's text begins with the one space in it.
        let event: Value = serde_json::from_slice(data).unwrap_or_default();
        self.owed += event["choices"][0]["text"].as_str().map_or(0, |text| text.matches(' ').count());
    }

    /// The steps of the tokens that have come, and those without a token before them.
    fn hand_over(&mut self, done: &mut Vec<StepDone>) {
        while self.owed > 0
            && let Some(step) = self.steps.pop_front()
        {
            self.owed -= usize::from(step.outputs.iter().any(|output| output.text.is_some()));
            done.push(step);
        }
    }

    fn is_over(&self) -> bool {
        self.ended && self.owed == 0
    }
}

impl Backend for Proxy {
    fn ready(&self) -> bool {
        self.loaded
    }

    fn wake(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let asks = self.asks.values().map(|ask| (ask.stream.as_fd(), PollFlags::IN));
        self.told.wake().into_iter().chain(asks).collect()
    }

    fn submit(&mut self, job: Job) -> Result<u64, BackendError> {
        let handoff = now();
        match self.port {
            Some(port) => self.ask(port, &job)?,
            None => self.early.push(job),
        }
        Ok(handoff)
    }

    fn cancel(&mut self, id: u64) -> Result<(), BackendError> {
        self.early.retain(|job| job.id != id);
        // Closed: the runner sees that its client has gone.
        self.asks.remove(&id);
        Ok(())
    }

    fn turn(&mut self, done: &mut Vec<StepDone>) -> Result<(), BackendError> {
        self.hear()?;
        if let Some(port) = self.port {
            for job in std::mem::take(&mut self.early) {
                self.ask(port, &job)?;
            }
        }
        if self.runner.has_ended()? {
            return Err(BackendError::Engine("the runner has ended".to_owned()));
        }
        for ask in self.asks.values_mut() {
            ask.take(done)?;
        }
        self.asks.retain(|_, ask| !ask.is_over());
        Ok(())
    }
}
