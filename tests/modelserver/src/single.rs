//! The engine of shape `single`: one request at a time, in the thread that also owns the sockets, as llama.cpp's
//! server with one slot. Whoever calls [`Single::turn`] waits for the step.

use std::collections::VecDeque;
use std::time::Duration;

use crate::args::Args;
use crate::backend::{Backend, BackendError};
use crate::clock::{now, stamped};
use crate::cuda::Stream;
use crate::gpu::Gpu;
use crate::step::{Admission, Job, Output, StepDone};
use crate::text;
use crate::truth::Busy;

/// Prompt tokens whose ids are copied; the time of longer prompts is unchanged.
const ID_CAPACITY: usize = 64 << 10;

struct Current {
    job: Job,
    sched_ns: u64,
    tokens: u32,
}

/// Queue, current request, GPU.
pub(crate) struct Single {
    args: Args,
    gpu: Option<Gpu>,
    load_at: u64,
    queue: VecDeque<Job>,
    current: Option<Current>,
    busy: Busy,
    index: u64,
}

impl Single {
    /// Loads the driver, now or (with `--dlopen-delay-ms`) at the first turn after the delay.
    pub(crate) fn new(args: &Args) -> Result<Self, BackendError> {
        let gpu = (args.dlopen_delay_ms == 0).then(|| Gpu::open(args, ID_CAPACITY)).transpose()?;
        Ok(Self {
            args: args.clone(),
            gpu,
            load_at: now() + args.dlopen_delay_ms * 1_000_000,
            queue: VecDeque::new(),
            current: None,
            busy: Busy::default(),
            index: 0,
        })
    }

    /// Takes the next request. Its context set-up syncs the per-thread stream, on which nothing is pending.
    fn admit(&mut self, gpu: &Gpu) -> Result<Option<Current>, BackendError> {
        let Some(job) = self.queue.pop_front() else { return Ok(None) };
        let sched_ns = now();
        gpu.cuda.synchronize(Stream::PER_THREAD)?;
        Ok(Some(Current { job, sched_ns, tokens: 0 }))
    }

    fn step(&mut self, gpu: &mut Gpu, current: &mut Current) -> Result<StepDone, BackendError> {
        let (index, job) = (self.index, &current.job);
        self.index += 1;
        let prefill = current.tokens == 0;
        let scratch = gpu.scratch(index);
        let inputs = if prefill { job.input_tokens } else { 1 };
        gpu.cuda.to_device(gpu.ids, gpu.host[0], gpu.id_bytes(inputs), gpu.stream)?;
        let launch = if prefill {
            let total_us = job.input_tokens.saturating_mul(self.args.prefill_us_per_token);
            gpu.kernels(total_us, self.args.prefill_kernels, false)?
        } else {
            gpu.kernels(self.args.decode_us, self.args.decode_kernels, false)?
        };
        gpu.cuda.to_host(gpu.host[1], gpu.ids, gpu.id_bytes(1), gpu.stream)?;
        let (result, synced) = stamped(|| gpu.cuda.synchronize(gpu.stream));
        synced?;
        let admission = prefill.then(|| Admission {
            sched_ns: current.sched_ns,
            queue_ns: self.busy.measure(job.read_ns, launch.0),
        });
        self.busy.begin(launch.0);
        self.busy.end(result.1);
        scratch.map_or(Ok(()), |memory| gpu.cuda.free(memory))?;
        let output = Output {
            id: job.id,
            text: Some(text::token(job.seed, current.tokens).to_owned()),
            last: current.tokens + 1 == job.output_tokens,
            admission,
        };
        current.tokens += 1;
        Ok(StepDone { index, launch, result, outputs: vec![output], alloc_failures: gpu.alloc_failures })
    }

    fn run(&mut self, gpu: &mut Gpu, done: &mut Vec<StepDone>) -> Result<(), BackendError> {
        let current = match self.current.take() {
            Some(current) => Some(current),
            None => self.admit(gpu)?,
        };
        let Some(mut current) = current else { return Ok(()) };
        let step = self.step(gpu, &mut current)?;
        done.push(step);
        self.current = (current.tokens < current.job.output_tokens).then_some(current);
        Ok(())
    }
}

impl Backend for Single {
    fn ready(&self) -> bool {
        self.gpu.is_some()
    }

    fn patience(&self) -> Option<Duration> {
        if self.gpu.is_none() {
            return Some(Duration::from_nanos(self.load_at.saturating_sub(now())));
        }
        (self.current.is_some() || !self.queue.is_empty()).then_some(Duration::ZERO)
    }

    fn submit(&mut self, job: Job) -> Result<u64, BackendError> {
        let handoff = now();
        self.queue.push_back(job);
        Ok(handoff)
    }

    fn cancel(&mut self, id: u64) -> Result<(), BackendError> {
        self.queue.retain(|job| job.id != id);
        self.current.take_if(|current| current.job.id == id);
        Ok(())
    }

    fn turn(&mut self, done: &mut Vec<StepDone>) -> Result<(), BackendError> {
        if self.gpu.is_none() && now() >= self.load_at {
            self.gpu = Some(Gpu::open(&self.args, ID_CAPACITY)?);
        }
        let Some(mut gpu) = self.gpu.take() else { return Ok(()) };
        let result = self.run(&mut gpu, done);
        self.gpu = Some(gpu);
        result
    }
}
