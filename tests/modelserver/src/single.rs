//! The engine of shape `single`, in the thread that also owns the sockets, as llama.cpp's server: one request at a time,
//! or as many as it has slots. Whoever calls [`Single::turn`] waits for the step.

use std::time::Duration;

use crate::args::Args;
use crate::backend::{Backend, BackendError};
use crate::clock::{now, stamped};
use crate::cuda::Stream;
use crate::gpu::Gpu;
use crate::scheduler::{Member, Plan, Scheduler};
use crate::step::{Admission, Job, Output, StepDone};
use crate::text;
use crate::trouble;
use crate::truth::Busy;

/// Prompt tokens whose ids are copied; the time of longer prompts is unchanged.
const ID_CAPACITY: usize = 64 << 10;

/// Queue, running requests, GPU.
pub(crate) struct Single {
    args: Args,
    gpu: Option<Gpu>,
    load_at: u64,
    scheduler: Scheduler,
    busy: Busy,
    index: u64,
}

impl Single {
    /// Loads the driver, now or (with `--dlopen-delay-ms`) at the first turn after the delay.
    pub(crate) fn new(args: &Args) -> Result<Self, BackendError> {
        let gpu = (args.dlopen_delay_ms == 0).then(|| Gpu::open(args, ID_CAPACITY)).transpose()?;
        // One slot takes a prompt as a whole.
        let step_tokens = if args.slots == 1 { u32::MAX } else { args.step_tokens };
        Ok(Self {
            args: args.clone(),
            gpu,
            load_at: now() + args.dlopen_delay_ms * 1_000_000,
            scheduler: Scheduler::new(args.slots as usize, step_tokens),
            busy: Busy::default(),
            index: 0,
        })
    }

    /// What a step gave one of its requests.
    fn output(&self, member: &Member, sched_ns: u64, launch_ns: u64) -> Output {
        let job = self.scheduler.job(member.id);
        let admission = job
            .filter(|_| member.first)
            .map(|job| Admission { sched_ns, queue_ns: self.busy.measure(job.read_ns, launch_ns) });
        let text = member.token.zip(job).map(|(token, job)| text::token(job.seed, token).to_owned());
        Output { id: member.id, text, last: member.last, admission }
    }

    /// Runs a step. A request that comes into it needs its context set up, which syncs the per-thread stream, on which
    /// nothing is pending.
    fn step(&mut self, gpu: &mut Gpu, plan: &Plan) -> Result<StepDone, BackendError> {
        let (index, sched_ns, prefill) = (self.index, now(), plan.prefill_tokens());
        self.index += 1;
        if plan.members.iter().any(|member| member.first) {
            gpu.cuda.synchronize(Stream::PER_THREAD)?;
        }
        gpu.troubled()?;
        let scratch = gpu.scratch(index);
        let batch = u32::try_from(plan.members.len()).unwrap_or(u32::MAX);
        let inputs = gpu.id_bytes(prefill.max(batch));
        gpu.cuda.to_device(gpu.ids, gpu.host[0], inputs, gpu.stream)?;
        let prefill_us = prefill.saturating_mul(self.args.prefill_us_per_token);
        let total_us = prefill_us.saturating_add(self.args.decode_us_of(plan.decoding()));
        let kernels = if prefill > 0 { self.args.prefill_kernels } else { self.args.decode_kernels };
        let launch = gpu.kernels(total_us, kernels, false)?;
        gpu.cuda.to_host(gpu.host[1], gpu.ids, gpu.id_bytes(batch), gpu.stream)?;
        let (result, synced) = stamped(|| gpu.cuda.synchronize(gpu.stream));
        synced?;
        let outputs = plan.members.iter().map(|member| self.output(member, sched_ns, launch.0)).collect();
        self.busy.begin(launch.0);
        self.busy.end(result.1);
        scratch.map_or(Ok(()), |memory| gpu.cuda.free(memory))?;
        let last = plan.members.iter().filter(|member| member.last);
        last.for_each(|member| self.scheduler.remove(member.id));
        Ok(StepDone { index, launch, result, batch, outputs, alloc_failures: gpu.alloc_failures })
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
        (!self.scheduler.is_idle()).then_some(Duration::ZERO)
    }

    fn submit(&mut self, job: Job) -> Result<u64, BackendError> {
        let handoff = now();
        self.scheduler.submit(job);
        Ok(handoff)
    }

    fn cancel(&mut self, id: u64) -> Result<(), BackendError> {
        self.scheduler.remove(id);
        Ok(())
    }

    fn turn(&mut self, done: &mut Vec<StepDone>) -> Result<(), BackendError> {
        if self.gpu.is_none() && now() >= self.load_at {
            self.gpu = Some(Gpu::open(&self.args, ID_CAPACITY)?);
        }
        let Some(mut gpu) = self.gpu.take() else { return Ok(()) };
        self.scheduler.hold_at_most(trouble::held());
        let planned = self.scheduler.plan();
        let result = planned.map(|plan| self.step(&mut gpu, &plan)).transpose();
        self.gpu = Some(gpu);
        done.extend(result?);
        Ok(())
    }
}
