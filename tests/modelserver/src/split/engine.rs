//! The engine process: continuous batching with two steps in flight.
//!
//! Step N+1 is planned and launched before the result of step N is waited for. A pure decode step is one graph
//! launch; a step that contains prefill is many kernel launches. Results leave by a second stream that waits for
//! the first.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, poll};

use super::link::Link;
use super::{Command, Event};
use crate::args::Args;
use crate::backend::BackendError;
use crate::clock::{Stamp, now, stamped};
use crate::cuda::{self, CudaError, DeviceMem, Graph, Stream};
use crate::gpu::Gpu;
use crate::scheduler::{Member, Plan, Scheduler};
use crate::step::{Admission, Output, StepDone};
use crate::text;
use crate::truth::Busy;

/// Steps in flight.
const DEPTH: usize = 2;

/// What one of the two steps in flight uses.
struct Slot {
    computed: cuda::Event,
    copied: cuda::Event,
}

/// The GPU side: streams, events, one graph per batch bucket.
struct Device {
    gpu: Gpu,
    copy: Stream,
    slots: Vec<Slot>,
    /// Largest batch of the bucket, and its graph.
    graphs: Vec<(usize, Graph)>,
}

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
    link: Link,
    device: Device,
    scheduler: Scheduler,
    flights: VecDeque<Flight>,
    busy: Busy,
    index: u64,
}

/// The buckets of vLLM's graph sizes: 1, 2, 4, then multiples of 8.
fn buckets(max_batch: usize) -> Vec<usize> {
    let all = [1, 2, 4].into_iter().chain((8..).step_by(8));
    let mut buckets: Vec<usize> = all.take_while(|&size| size < max_batch).collect();
    buckets.push(max_batch);
    buckets
}

impl Device {
    fn open(args: &Args) -> Result<Self, CudaError> {
        let gpu = Gpu::open(args, (args.step_tokens.max(args.max_batch)) as usize)?;
        let copy = gpu.cuda.stream()?;
        let slot = || Ok(Slot { computed: gpu.cuda.event()?, copied: gpu.cuda.event()? });
        let slots = (0..DEPTH).map(|_| slot()).collect::<Result<_, CudaError>>()?;
        let work = || gpu.kernels(args.decode_us, args.decode_kernels, false).map(drop);
        let graph = |size| Ok((size, gpu.cuda.capture(gpu.stream, work)?));
        let graphs =
            buckets(args.max_batch as usize).into_iter().map(graph).collect::<Result<_, CudaError>>()?;
        Ok(Self { gpu, copy, slots, graphs })
    }

    /// Launches the compute part; readings around its first launch.
    fn compute(&self, plan: &Plan, args: &Args) -> Result<Stamp, CudaError> {
        let batch = plan.members.len();
        let prefill = plan.prefill_tokens();
        let graph = self.graphs.iter().find(|graph| graph.0 >= batch).filter(|_| prefill == 0);
        if let Some(graph) = graph {
            let (stamp, result) = stamped(|| self.gpu.cuda.launch_graph(graph.1, self.gpu.stream));
            return result.map(|()| stamp);
        }
        let decode_us = if plan.decodes() { args.decode_us } else { 0 };
        let total_us = prefill.saturating_mul(args.prefill_us_per_token).saturating_add(decode_us);
        self.gpu.kernels(total_us, args.prefill_kernels, true)
    }

    /// Launches a step: inputs (prompts only, as decode reads its ids on the device), compute, copy of the result.
    fn launch(&self, plan: &Plan, slot: usize, args: &Args) -> Result<Stamp, CudaError> {
        let (gpu, events) = (&self.gpu, &self.slots[slot]);
        let prefill = plan.prefill_tokens();
        if prefill > 0 {
            gpu.cuda.to_device(gpu.ids, gpu.host[slot], gpu.id_bytes(prefill), gpu.stream)?;
        }
        let stamp = self.compute(plan, args)?;
        let batch = u32::try_from(plan.members.len()).unwrap_or(u32::MAX);
        gpu.cuda.record(events.computed, gpu.stream)?;
        gpu.cuda.stream_wait(self.copy, events.computed)?;
        gpu.cuda.to_host(gpu.host[slot], gpu.ids, gpu.id_bytes(batch), self.copy)?;
        gpu.cuda.record(events.copied, self.copy)?;
        Ok(stamp)
    }
}

impl Engine {
    /// Takes the messages that are there.
    fn receive(&mut self) -> Result<(), BackendError> {
        self.link.flush()?;
        for command in self.link.receive()? {
            match command {
                Command::Submit(job) => self.scheduler.submit(job),
                Command::Cancel(id) => self.scheduler.remove(id),
            }
        }
        Ok(())
    }

    /// Sleeps until a message comes: only when there is nothing to compute.
    fn wait_for_message(&self) -> Result<(), BackendError> {
        let (fd, flags) = self.link.wake();
        match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
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
        let copied = self.device.slots[flight.slot].copied;
        let (result, waited) = stamped(|| self.device.gpu.cuda.wait(copied));
        waited?;
        self.busy.end(result.1);
        let outputs = flight.members.iter().zip(flight.admissions);
        let outputs = outputs.map(|(member, admission)| self.output(member, admission)).collect();
        flight
            .members
            .iter()
            .filter(|member| member.last)
            .for_each(|member| self.scheduler.remove(member.id));
        let alloc_failures = self.device.gpu.alloc_failures;
        let step = StepDone { index: flight.index, launch: flight.launch, result, outputs, alloc_failures };
        self.link.send(&Event::Step(step))?;
        Ok(flight.scratch.map_or(Ok(()), |memory| self.device.gpu.cuda.free(memory))?)
    }

    fn turn(&mut self) -> Result<(), BackendError> {
        if self.flights.is_empty() && self.scheduler.is_idle() {
            self.wait_for_message()?;
        }
        self.receive()?;
        let sched_ns = now();
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

/// Runs until the front closes the link.
pub(crate) fn run(args: &Args, fd: OwnedFd) -> Result<(), BackendError> {
    let mut link = Link::new(fd)?;
    std::thread::sleep(Duration::from_millis(args.dlopen_delay_ms));
    let device = match Device::open(args) {
        Ok(device) => device,
        Err(error) => {
            link.send(&Event::Failed(error.to_string()))?;
            return Err(error.into());
        }
    };
    link.send(&Event::Ready)?;
    let mut engine = Engine {
        args: args.clone(),
        link,
        device,
        scheduler: Scheduler::new(args.slots(), args.step_tokens),
        flights: VecDeque::new(),
        busy: Busy::default(),
        index: 0,
    };
    loop {
        match engine.turn() {
            Ok(()) => {}
            Err(BackendError::Link(error)) if is_end(&error) => return Ok(()),
            Err(error) => {
                // The front may be gone too; the error itself is what matters.
                drop(engine.link.send(&Event::Failed(error.to_string())));
                return Err(error);
            }
        }
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_end_with_the_largest_batch() {
        let cases: [(usize, &[usize]); 5] =
            [(1, &[1]), (2, &[1, 2]), (3, &[1, 2, 3]), (16, &[1, 2, 4, 8, 16]), (20, &[1, 2, 4, 8, 16, 20])];
        for (max_batch, expected) in cases {
            assert_eq!(buckets(max_batch), expected);
        }
    }
}
