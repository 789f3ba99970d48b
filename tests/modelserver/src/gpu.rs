//! What both engines do on the GPU: a number of kernels that take a given time, results copied back.

use crate::args::Args;
use crate::clock::{Stamp, stamped};
use crate::cuda::{Cuda, CudaError, DeviceMem, HostMem, Stream};

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

    /// Memory that step `index` uses, if it is one of those that allocate. A failure is counted, as by a caching
    /// allocator that goes on with what it has.
    pub(crate) fn scratch(&mut self, index: u64) -> Option<DeviceMem> {
        if self.alloc_every == 0 || index % self.alloc_every != self.alloc_every - 1 {
            return None;
        }
        let memory = self.cuda.alloc(self.alloc_bytes);
        self.alloc_failures += u64::from(memory.is_err());
        memory.ok()
    }
}

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
