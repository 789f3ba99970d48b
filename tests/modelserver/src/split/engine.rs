//! The engine process: continuous batching with two steps in flight.
//!
//! Step N+1 is planned and launched before the result of step N is waited for. A pure decode step is one graph
//! launch; a step that contains prefill is many kernel launches. Results leave by a second stream that waits for
//! the first. In shape `shm` a thread of its own waits for them.

use std::collections::VecDeque;
use std::time::Duration;

use super::detokenizer::is_end;
use super::device::{DEPTH, Device};
use super::link::Link;
use super::shared::Shared;
use super::{Command, Event};
use crate::args::{Args, Shape};
use crate::backend::BackendError;
use crate::clock::{Stamp, now, stamped};
use crate::cuda::{DeviceMem, Waiter};
use crate::part::inherited;
use crate::scheduler::{Member, Plan, Scheduler};
use crate::step::{Admission, Output, StepDone};
use crate::text;
use crate::trouble;
use crate::truth::Busy;

/// A step whose result is not known yet.
struct Flight {
    index: u64,
    slot: usize,
    launch: Stamp,
    members: Vec<Member>,
    admissions: Vec<Option<Admission>>,
    scratch: Option<DeviceMem>,
}

/// The engine loop's state.
struct Engine {
    args: Args,
    requests: Link,
    /// Where results go, if not back where requests come from.
    results: Option<Link>,
    /// Waits for results, if not this thread.
    waiter: Option<Waiter>,
    device: Device,
    scheduler: Scheduler,
    flights: VecDeque<Flight>,
    busy: Busy,
    index: u64,
}

impl Engine {
    /// Takes the messages that are there.
    fn receive(&mut self) -> Result<(), BackendError> {
        self.requests.flush()?;
        self.results.as_mut().map_or(Ok(()), Link::flush)?;
        for command in self.requests.receive()? {
            match command {
                Command::Submit(job) => self.scheduler.submit(job),
                Command::Cancel(id) => self.scheduler.remove(id),
            }
        }
        Ok(())
    }

    fn tell(&mut self, event: &Event) -> Result<(), BackendError> {
        self.results.as_mut().unwrap_or(&mut self.requests).send(event)
    }

    /// What the front has to know about members whose first step this is.
    fn admissions(&self, members: &[Member], sched_ns: u64, launch_ns: u64) -> Vec<Option<Admission>> {
        let admission = |member: &Member| {
            let job = self.scheduler.job(member.id).filter(|_| member.first)?;
            Some(Admission { sched_ns, queue_ns: self.busy.measure(job.read_ns, launch_ns) })
        };
        members.iter().map(admission).collect()
    }

    fn launch(&mut self, plan: Plan, sched_ns: u64) -> Result<(), BackendError> {
        let index = self.index;
        self.index += 1;
        let slot = usize::try_from(index).unwrap_or_default() % DEPTH;
        let scratch = self.device.gpu.scratch(index);
        let launch = self.device.launch(&plan, slot, &self.args)?;
        let admissions = self.admissions(&plan.members, sched_ns, launch.0);
        self.busy.begin(launch.0);
        self.flights.push_back(Flight { index, slot, launch, members: plan.members, admissions, scratch });
        Ok(())
    }

    /// What the step gave one of its requests. A cancelled request was in the step, but gets nothing.
    fn output(&self, member: &Member, admission: Option<Admission>) -> Output {
        let job = self.scheduler.job(member.id);
        let text = member.token.zip(job).map(|(token, job)| text::token(job.seed, token).to_owned());
        Output { id: member.id, text, last: member.last, admission }
    }

    /// Waits for the oldest step's result and sends it.
    fn complete(&mut self, flight: Flight) -> Result<(), BackendError> {
        let copied = self.device.copied(flight.slot);
        let (result, waited) = match &self.waiter {
            Some(waiter) => waiter.wait(copied),
            None => stamped(|| self.device.gpu.cuda.wait(copied)),
        };
        waited?;
        self.busy.end(result.1);
        let batch = u32::try_from(flight.members.len()).unwrap_or(u32::MAX);
        let outputs = flight.members.iter().zip(flight.admissions);
        let outputs = outputs.map(|(member, admission)| self.output(member, admission)).collect();
        flight
            .members
            .iter()
            .filter(|member| member.last)
            .for_each(|member| self.scheduler.remove(member.id));
        let alloc_failures = self.device.gpu.alloc_failures;
        let step =
            StepDone { index: flight.index, launch: flight.launch, result, batch, outputs, alloc_failures };
        self.tell(&Event::Step(step))?;
        Ok(flight.scratch.map_or(Ok(()), |memory| self.device.gpu.cuda.free(memory))?)
    }

    fn turn(&mut self) -> Result<(), BackendError> {
        if self.flights.is_empty() && self.scheduler.is_idle() {
            // Only when there is nothing to compute.
            self.requests.wait()?;
        }
        self.receive()?;
        let sched_ns = now();
        self.scheduler.hold_at_most(trouble::held());
        let planned = self.scheduler.plan();
        let waits = planned.is_none();
        if let Some(plan) = planned {
            self.launch(plan, sched_ns)?;
        }
        if waits || self.flights.len() == DEPTH {
            self.flights.pop_front().map_or(Ok(()), |flight| self.complete(flight))?;
        }
        Ok(())
    }
}

/// The links that this process was given: where requests come from, and where results go if elsewhere.
fn links(args: &Args) -> Result<(Link, Option<Link>), BackendError> {
    let input = inherited(args.input_fd)?;
    if args.shape == Shape::Shm {
        return Ok((Link::shared(Shared::engine(&input)?), None));
    }
    let output = args.output_fd.map(|fd| Link::new(inherited(Some(fd))?)).transpose()?;
    Ok((Link::new(input)?, output))
}

/// Runs until the front closes the link.
pub(crate) fn run(args: &Args) -> Result<(), BackendError> {
    let (mut requests, mut results) = links(args)?;
    std::thread::sleep(Duration::from_millis(args.dlopen_delay_ms));
    let device = match Device::open(args) {
        Ok(device) => device,
        Err(error) => {
            results.as_mut().unwrap_or(&mut requests).send(&Event::Failed(error.to_string()))?;
            return Err(error.into());
        }
    };
    let waiter = (args.shape == Shape::Shm).then(|| device.gpu.cuda.waiter());
    let mut engine = Engine {
        args: args.clone(),
        requests,
        results,
        waiter,
        device,
        scheduler: Scheduler::new(args.max_batch as usize, args.step_tokens),
        flights: VecDeque::new(),
        busy: Busy::default(),
        index: 0,
    };
    engine.tell(&Event::Ready)?;
    loop {
        match engine.turn() {
            Ok(()) => {}
            Err(BackendError::Link(error)) if is_end(&error) => return Ok(()),
            Err(error) => {
                // The front may be gone too; the error itself is what matters.
                drop(engine.tell(&Event::Failed(error.to_string())));
                return Err(error);
            }
        }
    }
}
