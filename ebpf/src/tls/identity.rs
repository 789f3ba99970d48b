//! Which TLS connection: birth, and the running offset of each direction.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_for_each_map_elem;
use wire::counter::Counter;
use wire::socket::DIR_SEND;

use crate::atomic::Word;
use crate::cuda::zeroed;
use crate::emit::Stop;
use crate::maps::SSLS;
use crate::repeat::{GO_ON, is_full};
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

/// Drops all entries of a process. The kernel walks the whole map, empty places included: only for a process that is
/// watched, at an `exec`. Kernels that lack the walk keep the entries until others push them out.
#[inline(always)]
pub(crate) fn forget_process(task: Task) {
    if is_full() {
        let mut tgid = task.tgid();
        let map = (&raw const SSLS).cast_mut().cast::<c_void>();
        let each: extern "C" fn(*mut c_void, *const SslKey, *mut Ssl, *mut u32) -> u64 = forget;
        // SAFETY: the helper calls `forget` with entries of the map and `tgid`, and returns before that ends.
        unsafe { bpf_for_each_map_elem(map, each as *mut c_void, (&raw mut tgid).cast(), 0) };
    }
}

/// Drops an entry if it is of process `tgid`.
extern "C" fn forget(_map: *mut c_void, key: *const SslKey, _ssl: *mut Ssl, tgid: *mut u32) -> u64 {
    // SAFETY: the helper gives a key of the map, and `tgid` as it got it.
    unsafe {
        let key = *key;
        if key.tgid == *tgid {
            let _ = SSLS.remove(key);
        }
    }
    GO_ON
}
