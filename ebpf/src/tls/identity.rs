//! Which TLS connection: birth, and the running offset of each direction.

use wire::counter::Counter;
use wire::socket::DIR_SEND;

use crate::atomic::Word;
use crate::cuda::zeroed;
use crate::emit::Stop;
use crate::maps::SSLS;
use crate::scope::Task;

/// `BPF_NOEXIST`.
const NO_EXIST: u64 = 1;

/// An `SSL` of a process.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SslKey {
    tgid: u32,
    /// Keeps the key free of padding.
    reserved: u32,
    ssl: u64,
}

impl SslKey {
    #[inline(always)]
    pub(crate) const fn new(task: Task, ssl: u64) -> Self {
        Self { tgid: task.tgid(), reserved: 0, ssl }
    }
}

/// What is known of it.
#[repr(C)]
pub(crate) struct Ssl {
    /// `CLOCK_MONOTONIC` ns; 0 until it is set, just after the entry was made.
    birth_ns: Word,
    received: Word,
    sent: Word,
}

impl Ssl {
    /// The entry; made now if it is not known.
    #[inline(always)]
    pub(crate) fn find_or_make(key: SslKey) -> Result<&'static Self, Stop> {
        // If another thread was faster, its entry is as good.
        let _ = SSLS.insert(key, zeroed::<Self>(), NO_EXIST);
        // SAFETY: map memory outlives the program; all of it is words.
        unsafe { SSLS.get(key) }.ok_or(Stop::Count(Counter::MapFull))
    }

    /// When it was first seen: `now`, if this is the first time.
    #[inline(always)]
    pub(crate) fn born(&self, now: u64) -> u64 {
        if self.birth_ns.replace(0, now) { now } else { self.birth_ns.get() }
    }

    /// Counts `bytes` more of a direction and returns how many went before.
    #[inline(always)]
    pub(crate) fn advance(&self, dir: u8, bytes: u64) -> u64 {
        let offset = if dir == DIR_SEND { &self.sent } else { &self.received };
        offset.fetch_add(bytes)
    }
}
