//! The front's side: starts the engine processes, hands requests over, takes finished steps.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::PollFlags;

use super::link::Link;
use super::shared::{self, Shared};
use super::{Command, Event};
use crate::args::{Args, Part, Shape};
use crate::backend::{Backend, BackendError};
use crate::clock::now;
use crate::part::{Child, pair};
use crate::step::{Job, StepDone};

/// An engine process and the links to it. They are closed before their processes are waited for.
struct Engine {
    requests: Link,
    /// `None` where results come the way that requests go.
    results: Option<Link>,
    processes: Vec<Child>,
    ready: bool,
    /// Numbers of the requests that it has.
    jobs: Vec<u64>,
    /// Their ends cannot be seen on the links.
    silent: bool,
}

/// The engines of a server.
pub(crate) struct Front {
    engines: Vec<Engine>,
    /// Names by which requests choose their engine; empty where any engine takes any request.
    models: Vec<String>,
}

impl Front {
    /// Starts the engines. Waits until they have loaded the driver, unless that is to be late.
    pub(crate) fn start(args: &Args) -> Result<Self, BackendError> {
        let start = |index| Engine::start(args, index);
        let engines = (0..args.engines()).map(start).collect::<io::Result<_>>()?;
        let mut front = Self { engines, models: args.models.clone() };
        if args.dlopen_delay_ms == 0 {
            for engine in &mut front.engines {
                engine.wait_until_ready()?;
            }
        }
        Ok(front)
    }

    /// The engine of a request: that of its model, else the one with the fewest.
    fn choose(&mut self, job: &Job) -> Option<&mut Engine> {
        let named = self.models.iter().position(|model| *model == job.model);
        let of_model = named.or_else(|| (!self.models.is_empty()).then_some(0));
        match of_model {
            Some(index) => self.engines.get_mut(index),
            None => self.engines.iter_mut().min_by_key(|engine| engine.jobs.len()),
        }
    }
}

impl Engine {
    fn start(args: &Args, index: usize) -> io::Result<Self> {
        match args.shape {
            Shape::Chain => Self::chain(args, index),
            Shape::Shm => Self::shared(args, index),
            _ => Self::split(args, index),
        }
    }

    fn new(requests: Link, results: Option<Link>, processes: Vec<Child>) -> Self {
        Self { requests, results, processes, ready: false, jobs: Vec::new(), silent: false }
    }

    fn split(args: &Args, index: usize) -> io::Result<Self> {
        let (ours, theirs) = pair()?;
        let engine = Child::start(Part::Engine, &[("input-fd", &theirs)], Some(args.place_of(index)))?;
        Ok(Self::new(Link::new(ours)?, None, vec![engine]))
    }

    fn chain(args: &Args, index: usize) -> io::Result<Self> {
        let ((ours, theirs), (out, into)) = (pair()?, pair()?);
        let (text, results) = pair()?;
        let fds: [(&str, &OwnedFd); 2] = [("input-fd", &theirs), ("output-fd", &out)];
        let engine = Child::start(Part::Engine, &fds, Some(args.place_of(index)))?;
        let fds: [(&str, &OwnedFd); 2] = [("input-fd", &into), ("output-fd", &text)];
        let detokenizer = Child::start(Part::Detokenizer, &fds, None)?;
        Ok(Self::new(Link::new(ours)?, Some(Link::new(results)?), vec![engine, detokenizer]))
    }

    fn shared(args: &Args, index: usize) -> io::Result<Self> {
        let memory = shared::memory()?;
        let engine = Child::start(Part::Engine, &[("input-fd", &memory)], Some(args.place_of(index)))?;
        let link = Link::shared(Shared::front(&memory)?);
        Ok(Self { silent: true, ..Self::new(link, None, vec![engine]) })
    }

    fn wait_until_ready(&mut self) -> Result<(), BackendError> {
        while !self.ready {
            self.results.as_ref().unwrap_or(&self.requests).wait()?;
            self.turn(&mut Vec::new())?;
        }
        Ok(())
    }

    fn turn(&mut self, done: &mut Vec<StepDone>) -> Result<(), BackendError> {
        self.requests.flush()?;
        for event in self.results.as_mut().unwrap_or(&mut self.requests).receive()? {
            match event {
                Event::Ready => self.ready = true,
                Event::Step(step) => {
                    self.jobs
                        .retain(|job| !step.outputs.iter().any(|output| output.last && output.id == *job));
                    done.push(step);
                }
                Event::Failed(reason) => return Err(BackendError::Engine(reason)),
            }
        }
        for process in self.processes.iter_mut().filter(|_| self.silent) {
            if process.has_ended()? {
                return Err(BackendError::Engine("the engine process has ended".to_owned()));
            }
        }
        Ok(())
    }
}

impl Backend for Front {
    fn ready(&self) -> bool {
        self.engines.iter().all(|engine| engine.ready)
    }

    fn wake(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let links = self.engines.iter().flat_map(|engine| [Some(&engine.requests), engine.results.as_ref()]);
        links.flatten().filter_map(Link::wake).collect()
    }

    fn submit(&mut self, job: Job) -> Result<u64, BackendError> {
        let handoff = now();
        if let Some(engine) = self.choose(&job) {
            engine.jobs.push(job.id);
            engine.requests.send(&Command::Submit(job))?;
        }
        Ok(handoff)
    }

    fn cancel(&mut self, id: u64) -> Result<(), BackendError> {
        let has = |engine: &&mut Engine| engine.jobs.contains(&id);
        let Some(engine) = self.engines.iter_mut().find(has) else { return Ok(()) };
        engine.jobs.retain(|job| *job != id);
        engine.requests.send(&Command::Cancel(id))
    }

    fn turn(&mut self, done: &mut Vec<StepDone>) -> Result<(), BackendError> {
        self.engines.iter_mut().try_for_each(|engine| engine.turn(done))
    }
}
