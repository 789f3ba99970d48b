//! Who is watched.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;

use crate::maps::{SCOPE, own_tgid};

/// The thread in whose context a program runs, as the kernel packs it: tgid in the upper half, tid in the lower.
#[derive(Clone, Copy)]
pub(crate) struct Task(pub(crate) u64);

impl Task {
    #[inline(always)]
    pub(crate) fn current() -> Self {
        Self(bpf_get_current_pid_tgid())
    }

    /// Nobody: for what happens in interrupts.
    pub(crate) const NOBODY: Self = Self(0);

    /// First thread of a process.
    #[inline(always)]
    pub(crate) const fn leader(tgid: u32) -> Self {
        Self((tgid as u64) << 32 | tgid as u64)
    }

    #[inline(always)]
    pub(crate) const fn tgid(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub(crate) const fn tid(self) -> u32 {
        self.0 as u32
    }

    /// Whether it is the first thread of its process.
    #[inline(always)]
    pub(crate) const fn is_leader(self) -> bool {
        self.tgid() == self.tid()
    }

    /// Whether any of the `SCOPE_*` bits of `wanted` is set for its process. The agent itself never is in scope.
    #[inline(always)]
    pub(crate) fn is_watched(self, wanted: u32) -> bool {
        scope_of(self.tgid()) & wanted != 0
    }
}

/// The `SCOPE_*` bits of a process; 0 when it is not watched.
#[inline(always)]
pub(crate) fn scope_of(tgid: u32) -> u32 {
    // SAFETY: a single aligned word; a torn or stale value is not possible.
    let bits = unsafe { SCOPE.get(tgid) }.copied().unwrap_or(0);
    if tgid == own_tgid() { 0 } else { bits }
}
