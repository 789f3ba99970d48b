//! Device and host memory as the caller sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, Mutex};

use crate::abi::{Out, give};
use crate::context::current;
use crate::device::{config, shared_device};
use crate::error::Error;
use crate::handles::lock;
use crate::owner::Owner;
use crate::shared::shared;
use crate::{allocator, truth};

/// Device addresses begin here: far from where Linux puts a program's memory.
const BASE: u64 = 1 << 44;
/// Distance between the memories of two devices.
const STRIDE: u64 = 1 << 40;

/// Alignment of host memory.
const PAGE: usize = 4096;

/// A block of this process.
struct Own {
    size: u64,
    context: u64,
}

/// Blocks of this process by device address.
static OWN: Mutex<BTreeMap<u64, Own>> = Mutex::new(BTreeMap::new());
/// Addresses of host allocations.
static HOST: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
static ME: LazyLock<Owner> = LazyLock::new(Owner::this_process);

/// Is this an address of device memory?
pub(crate) fn is_device(at: u64) -> bool {
    (BASE..BASE + STRIDE * config().devices as u64).contains(&at)
}

/// Does one block of this process hold all of the range?
pub(crate) fn owns(at: u64, bytes: u64) -> bool {
    let own = lock(&OWN);
    let before = own.range(..=at).next_back();
    before.is_some_and(|(start, block)| at.checked_add(bytes).is_some_and(|end| end <= start + block.size))
}

/// Memory per device, bytes.
pub(crate) fn total() -> u64 {
    shared().layout.mem_bytes.load(Ordering::Acquire)
}

/// Frees what processes left behind that are gone.
pub(crate) fn purge_dead() {
    let _lock = shared().lock_heaps();
    for device in 0..config().devices {
        purge_device(device);
    }
}

/// The caller holds the heap lock.
fn purge_device(device: usize) {
    let heap = &shared_device(device).heap;
    allocator::purge(heap, Owner::lives);
    allocator::sweep(heap, Owner::lives);
}

fn allocate(bytes: u64) -> Result<u64, Error> {
    let context = current()?;
    let (device, heap) = (context.totals.device, &shared_device(context.totals.device).heap);
    let _lock = shared().lock_heaps();
    allocator::purge(heap, Owner::may_live);
    let take = || allocator::allocate(heap, total(), bytes, *ME);
    let offset = take().or_else(|| {
        purge_device(device);
        take()
    });
    let address = BASE + STRIDE * device as u64 + offset.ok_or(Error::OUT_OF_MEMORY)?;
    lock(&OWN).insert(address, Own { size: bytes, context: context.totals.id });
    truth::allocated(bytes);
    Ok(address)
}

fn free(address: u64) -> Result<(), Error> {
    lock(&OWN).remove(&address).ok_or(Error::INVALID_VALUE)?;
    let _lock = shared().lock_heaps();
    free_shared(address);
    truth::freed();
    Ok(())
}

/// The caller holds the heap lock.
fn free_shared(address: u64) {
    let (device, offset) = ((address - BASE) / STRIDE, (address - BASE) % STRIDE);
    if let Ok(device) = usize::try_from(device) {
        allocator::free(&shared_device(device).heap, offset, *ME);
    }
}

fn release(gone: impl Fn(&Own) -> bool) {
    let gone: Vec<u64> = lock(&OWN).extract_if(.., |_, own| gone(own)).map(|(address, _)| address).collect();
    if !gone.is_empty() {
        let _lock = shared().lock_heaps();
        gone.into_iter().for_each(free_shared);
    }
}

/// The context is destroyed.
pub(crate) fn release_context(id: u64) {
    release(|own| own.context == id);
}

/// The process exits.
pub(crate) fn release_all() {
    release(|_| true);
}

fn info() -> Result<(usize, usize), Error> {
    let device = current()?.totals.device;
    let _lock = shared().lock_heaps();
    purge_device(device);
    let free = total() - allocator::used(&shared_device(device).heap);
    let size = |bytes: u64| usize::try_from(bytes).map_err(|_| Error::UNKNOWN);
    Ok((size(free)?, size(total())?))
}

fn host_allocate(bytes: usize) -> Result<*mut c_void, Error> {
    let mut at = std::ptr::null_mut();
    // SAFETY: `at` is writable and the alignment is a power of two and a multiple of a pointer's size.
    let refused = unsafe { libc::posix_memalign(&raw mut at, PAGE, bytes) };
    if refused != 0 {
        return Err(Error::OUT_OF_MEMORY);
    }
    lock(&HOST).insert(at.expose_provenance());
    Ok(at)
}

export! {
    /// Allocates device memory.
    fn cuMemAlloc_v2(address: Out<'_, u64>, bytes: usize) {
        let address = address.filter(|_| bytes > 0).ok_or(Error::INVALID_VALUE)?;
        give(Some(address), allocate(bytes as u64)?)
    }

    /// Frees it; unlike the real driver without waiting for the device. Null is fine.
    fn cuMemFree_v2(address: u64) {
        if address == 0 { Ok(()) } else { free(address) }
    }

    /// Free and total memory of the current device.
    fn cuMemGetInfo_v2(free: Out<'_, usize>, total: Out<'_, usize>) {
        let (free_bytes, total_bytes) = info()?;
        give(free, free_bytes)?;
        give(total, total_bytes)
    }

    /// Allocates host memory. Flags are not looked at.
    fn cuMemHostAlloc(address: Out<'_, *mut c_void>, bytes: usize, _flags: u32) {
        current()?;
        let address = address.filter(|_| bytes > 0).ok_or(Error::INVALID_VALUE)?;
        give(Some(address), host_allocate(bytes)?)
    }

    /// Frees it.
    fn cuMemFreeHost(address: usize) {
        if !lock(&HOST).remove(&address) {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: posix_memalign returned it, and it was in the table, so it is freed once.
        unsafe { libc::free(std::ptr::with_exposed_provenance_mut(address)) };
        Ok(())
    }
}
