//! Places on the time line: what an operation costs, on which engine, and when a stream gets to it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::config::Config;
use crate::graph::Capture;
use crate::shared::{Device, Engine};

/// Operations that a stream may have in flight; submitting one more blocks until the oldest is done.
pub(crate) const QUEUE_DEPTH: usize = 1024;

/// Device to device is that many times faster than host to device.
const ON_DEVICE_SPEEDUP: u64 = 50;

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyKind {
    /// Host to device.
    H2D,
    /// Device to host.
    D2H,
    /// Device to device.
    D2D,
    /// Host to host, which `cuMemcpy` allows.
    H2H,
}

impl CopyKind {
    pub(crate) const ALL: [Self; 4] = [Self::H2D, Self::D2H, Self::D2D, Self::H2H];

    pub(crate) const fn name(self) -> &'static str {
        ["h2d", "d2h", "d2d", "h2h"][self as usize]
    }
}

/// An operation of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// A kernel of `units` blocks in x.
    Kernel { units: u32 },
    /// A copy.
    Copy { kind: CopyKind, bytes: u64 },
    /// Memory set to a value.
    Memset { bytes: u64 },
    /// An executable graph: its whole duration in ns and the kernels in it.
    Graph { duration: u64, kernels: u64 },
}

impl Op {
    /// Nanoseconds on the device.
    pub(crate) fn duration(self, config: &Config) -> u64 {
        match self {
            Self::Kernel { units } => u64::from(units) * config.unit_ns,
            Self::Graph { duration, .. } => duration,
            Self::Copy { kind: CopyKind::H2H, .. } => 0,
            Self::Copy { kind: CopyKind::D2D, bytes } | Self::Memset { bytes } => {
                transfer(config, bytes, ON_DEVICE_SPEEDUP)
            }
            Self::Copy { bytes, .. } => transfer(config, bytes, 1),
        }
    }

    /// What runs it.
    pub(crate) fn engine(self, device: &Device) -> &Engine {
        match self {
            Self::Copy { kind: CopyKind::H2D, .. } => &device.h2d,
            Self::Copy { kind: CopyKind::D2H, .. } => &device.d2h,
            Self::Kernel { .. } | Self::Graph { .. } | Self::Copy { .. } | Self::Memset { .. } => {
                &device.compute
            }
        }
    }
}

fn transfer(config: &Config, bytes: u64, speedup: u64) -> u64 {
    let rate = u128::from(config.copy_bytes_per_us * speedup);
    let transfer = u128::from(bytes) * 1000 / rate;
    config.copy_latency_ns + u64::try_from(transfer).unwrap_or(u64::MAX >> 2)
}

/// One stream's part of the time line.
#[derive(Default)]
pub(crate) struct Line {
    /// End of the last operation, or the event it waits for, ns.
    pub ready: u64,
    /// Ends of the operations in flight, oldest first.
    pending: VecDeque<u64>,
    /// Capture that the stream takes part in.
    pub capture: Option<Arc<Capture>>,
}

impl Line {
    /// When there is room for one more operation: 0 = now, otherwise the end of the oldest.
    pub(crate) fn room_at(&mut self, now: u64) -> u64 {
        while self.pending.front().is_some_and(|&end| end <= now) {
            self.pending.pop_front();
        }
        if self.pending.len() < QUEUE_DEPTH { 0 } else { self.pending.front().copied().unwrap_or(0) }
    }

    /// The last operation now ends at `end`.
    pub(crate) fn push(&mut self, end: u64) {
        self.ready = end;
        self.pending.push_back(end);
    }
}
