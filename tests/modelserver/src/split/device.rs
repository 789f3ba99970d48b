//! The GPU side of an engine: streams, events, one graph per batch bucket.

use crate::args::Args;
use crate::clock::{Stamp, stamped};
use crate::cuda::{CudaError, Event, Graph, Stream};
use crate::gpu::Gpu;
use crate::scheduler::Plan;

/// Steps in flight.
pub(crate) const DEPTH: usize = 2;

/// What one of the two steps in flight uses.
struct Slot {
    computed: Event,
    copied: Event,
}

/// The GPU side: streams, events, one graph per batch bucket.
pub(crate) struct Device {
    /// Driver and buffers.
    pub(crate) gpu: Gpu,
    copy: Stream,
    slots: Vec<Slot>,
    /// Largest batch of the bucket, and its graph.
    graphs: Vec<(usize, Graph)>,
}

/// The buckets of vLLM's graph sizes: 1, 2, 4, then multiples of 8.
fn buckets(max_batch: usize) -> Vec<usize> {
    let all = [1, 2, 4].into_iter().chain((8..).step_by(8));
    let mut buckets: Vec<usize> = all.take_while(|&size| size < max_batch).collect();
    buckets.push(max_batch);
    buckets
}

impl Device {
    /// Loads the driver and captures the graphs.
    pub(crate) fn open(args: &Args) -> Result<Self, CudaError> {
        let gpu = Gpu::open(args, (args.step_tokens.max(args.max_batch)) as usize)?;
        let copy = gpu.cuda.stream()?;
        let slot = || Ok(Slot { computed: gpu.cuda.event()?, copied: gpu.cuda.event()? });
        let slots = (0..DEPTH).map(|_| slot()).collect::<Result<_, CudaError>>()?;
        let work = |size| gpu.kernels(args.decode_us_of(size), args.decode_kernels, false).map(drop);
        let graph = |size| Ok((size, gpu.cuda.capture(gpu.stream, || work(size))?));
        let graphs =
            buckets(args.max_batch as usize).into_iter().map(graph).collect::<Result<_, CudaError>>()?;
        Ok(Self { gpu, copy, slots, graphs })
    }

    /// Launches the compute part; readings around its first launch.
    fn compute(&self, plan: &Plan, args: &Args) -> Result<Stamp, CudaError> {
        let batch = plan.members.len();
        let prefill = plan.prefill_tokens();
        let graph = self.graphs.iter().find(|graph| graph.0 >= batch).filter(|_| prefill == 0);
        let decode_us = args.decode_us_of(plan.decoding());
        if let Some(graph) = graph {
            let (stamp, result) = stamped(|| self.gpu.cuda.launch_graph(graph.1, self.gpu.stream));
            let more_us = self.gpu.more_us(decode_us);
            if more_us > 0 {
                self.gpu.cuda.launch(self.gpu.stream, more_us)?;
            }
            return result.map(|()| stamp);
        }
        let total_us = prefill.saturating_mul(args.prefill_us_per_token).saturating_add(decode_us);
        self.gpu.kernels(total_us, args.prefill_kernels, true)
    }

    /// Of a step in flight: recorded behind the copy of its result.
    pub(crate) fn copied(&self, slot: usize) -> Event {
        self.slots[slot % DEPTH].copied
    }

    /// Runs a step and waits for it, as a server does that is called for each: readings around its first launch and
    /// around the wait for its result.
    pub(crate) fn run(&self, plan: &Plan, args: &Args) -> Result<(Stamp, Stamp), CudaError> {
        let launch = self.launch(plan, 0, args)?;
        let (result, waited) = stamped(|| self.gpu.cuda.synchronize(self.copy));
        waited.map(|()| (launch, result))
    }

    /// Launches a step: inputs (prompts only, as decode reads its ids on the device), compute, copy of the result.
    pub(crate) fn launch(&self, plan: &Plan, slot: usize, args: &Args) -> Result<Stamp, CudaError> {
        let (gpu, events) = (&self.gpu, &self.slots[slot]);
        gpu.troubled()?;
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
