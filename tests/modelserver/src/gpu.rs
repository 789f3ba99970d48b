//! What both engines do on the GPU: a number of kernels that take a given time, results copied back.

use crate::args::Args;
use crate::clock::{Stamp, stamped};
use crate::cuda::{Cuda, CudaError, DeviceMem, HostMem, Stream};
use crate::trouble::{self, Word};

/// Bytes of one token id.
pub(crate) const TOKEN_BYTES: usize = 4;

/// The grid sizes of `count` kernels (fewer when there is less to share) that together take `total_us`.
///
/// The rig's simulated device runs one block of x for a microsecond.
pub(crate) fn grids(total_us: u32, count: u32) -> impl Iterator<Item = u32> {
    let total = total_us.max(1);
    let count = count.clamp(1, total);
    (0..count).map(move |index| total / count + u32::from(index < total % count))
}

/// The driver, the compute stream and the buffers of token ids.
pub(crate) struct Gpu {
    /// The driver.
    pub(crate) cuda: Cuda,
    /// The compute stream.
    pub(crate) stream: Stream,
    /// Device side of the token ids.
    pub(crate) ids: DeviceMem,
    /// Host side of the token ids; one buffer per step in flight.
    pub(crate) host: [HostMem; 2],
    capacity: usize,
    alloc_every: u64,
    alloc_bytes: usize,
    /// Blocks that an allocator keeps for later, and gives back when it gets no other.
    kept: Vec<DeviceMem>,
    rank: u16,
    /// Allocations that failed.
    pub(crate) alloc_failures: u64,
}

impl Gpu {
    /// Loads the driver and makes buffers for `tokens` ids.
    pub(crate) fn open(args: &Args, tokens: usize) -> Result<Self, CudaError> {
        let cuda = Cuda::open(&args.libcuda, args.device)?;
        let capacity = tokens * TOKEN_BYTES;
        Ok(Self {
            stream: cuda.stream()?,
            ids: cuda.alloc(capacity)?,
            host: [cuda.host(capacity)?, cuda.host(capacity)?],
            cuda,
            capacity,
            alloc_every: args.alloc_every,
            alloc_bytes: args.alloc_bytes,
            kept: Vec::new(),
            rank: args.rank,
            alloc_failures: 0,
        })
    }

    /// Bytes of `tokens` ids, as far as the buffers go.
    pub(crate) fn id_bytes(&self, tokens: u32) -> usize {
        (tokens.max(1) as usize * TOKEN_BYTES).min(self.capacity)
    }

    /// Launches kernels that take `total_us` together, every fourth by `cuLaunchKernelEx` if `ex`. Returns the
    /// readings around the first launch.
    pub(crate) fn kernels(&self, total_us: u32, count: u32, ex: bool) -> Result<Stamp, CudaError> {
        let total_us = total_us.saturating_add(self.more_us(total_us));
        let mut first = None;
        for (index, blocks) in grids(total_us, count).enumerate() {
            let (stamp, result) = stamped(|| {
                if ex && index % 4 == 3 {
                    self.cuda.launch_ex(self.stream, blocks)
                } else {
                    self.cuda.launch(self.stream, blocks)
                }
            });
            result?;
            first.get_or_insert(stamp);
        }
        Ok(first.unwrap_or_default())
    }

    /// What trouble adds to so much work.
    pub(crate) fn more_us(&self, us: u32) -> u32 {
        let rank = if self.rank == 1 { trouble::now(Word::RankSlowerPercent) } else { 0 };
        let percent = trouble::now(Word::SlowerPercent) + rank;
        u32::try_from(u64::from(us) * percent / 100).unwrap_or(u32::MAX)
    }

    /// What trouble does before a step.
    pub(crate) fn troubled(&self) -> Result<(), CudaError> {
        trouble::block(Word::GapUs);
        if trouble::now(Word::Modules) > 0 { self.cuda.module().map(drop) } else { Ok(()) }
    }

    /// Memory that step `index` uses, if it is one of those that allocate. A failure is counted, as by a caching
    /// allocator that goes on with what it has.
    pub(crate) fn scratch(&mut self, index: u64) -> Option<DeviceMem> {
        let more = usize::try_from(trouble::now(Word::AllocBytes)).unwrap_or(usize::MAX);
        if more > 0 {
            return self.insist(more);
        }
        if self.alloc_every == 0 || index % self.alloc_every != self.alloc_every - 1 {
            return None;
        }
        let memory = self.cuda.alloc(self.alloc_bytes);
        self.alloc_failures += u64::from(memory.is_err());
        memory.ok()
    }

    /// Memory as a caching allocator gets it: if the driver has none, it waits for the GPU, gives back what it keeps, and
    /// tries again.
    fn insist(&mut self, bytes: usize) -> Option<DeviceMem> {
        if self.kept.is_empty() {
            self.kept.extend((0..KEPT).filter_map(|_| self.cuda.alloc(KEPT_BYTES).ok()));
        }
        let first = self.cuda.alloc(bytes);
        self.alloc_failures += u64::from(first.is_err());
        if first.is_ok() {
            return first.ok();
        }
        drop(self.cuda.synchronize(self.stream));
        self.kept.drain(..).for_each(|memory| drop(self.cuda.free(memory)));
        let second = self.cuda.alloc(bytes);
        self.alloc_failures += u64::from(second.is_err());
        second.ok()
    }
}

/// Blocks that an allocator keeps, and their size.
const KEPT: usize = 4;
const KEPT_BYTES: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_share_the_time() {
        let cases: [(u32, u32, &[u32]); 5] = [
            (0, 4, &[1]),
            (1, 4, &[1]),
            (3, 4, &[1, 1, 1]),
            (10, 4, &[3, 3, 2, 2]),
            (8000, 2, &[4000, 4000]),
        ];
        for (total, count, expected) in cases {
            assert_eq!(grids(total, count).collect::<Vec<_>>(), expected, "{total} {count}");
        }
    }
}
