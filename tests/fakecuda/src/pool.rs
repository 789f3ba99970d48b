//! Pools: stream-ordered allocations. What is given back stays with the pool, for requests of the same size, until it
//! is trimmed or has no room for another. The order of streams is not simulated: memory is there, and back, at once. In a
//! capture there is an address and no memory: the graph would take it when it runs, which is not simulated.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{Out, give};
use crate::accounts::{self, Kind};
use crate::context::{Context, current};
use crate::device;
use crate::error::Error;
use crate::functions::Func;
use crate::handles::lock;
use crate::memory::{self, Own};
use crate::stream::{self, Default::Legacy, Default::PerThread};

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: u32 = 4;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const RESERVED_CURRENT: u32 = 5;
/// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`.
const USED_CURRENT: u32 = 7;

/// Handles begin here; those of the devices' own pools are the first.
const BASE: u64 = 0x7d00_0000_0000;
const STEP: u64 = 0x40;

#[derive(Default)]
struct Pool {
    device: usize,
    used: u64,
    threshold: u64,
    /// Address and size of what was given back.
    cached: Vec<(u64, u64)>,
}

/// Addresses that captured allocations give begin here.
const CAPTURED: u64 = 1 << 45;

/// An address for an allocation that went into a graph.
fn captured() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(CAPTURED);
    NEXT.fetch_add(1 << 21, Ordering::Relaxed)
}

static POOLS: Mutex<BTreeMap<u64, Pool>> = Mutex::new(BTreeMap::new());

fn own_pool(device: usize) -> u64 {
    BASE + STEP * device as u64
}

fn with<T>(handle: u64, f: impl FnOnce(&mut Pool) -> T) -> Result<T, Error> {
    let mut pools = lock(&POOLS);
    if (BASE..BASE + STEP * device::config().devices as u64).contains(&handle) && handle.is_multiple_of(STEP)
    {
        let number = usize::try_from((handle - BASE) / STEP).map_err(|_| Error::UNKNOWN)?;
        pools.entry(handle).or_insert(Pool { device: number, ..Pool::default() });
    }
    pools.get_mut(&handle).map(f).ok_or(Error::INVALID_VALUE)
}

fn allocate(func: Func, context: &Context, handle: u64, bytes: u64) -> Result<u64, Error> {
    let (kept, on) = with(handle, |pool| {
        let fits = pool.cached.iter().position(|&(_, size)| size == bytes);
        (fits.map(|at| pool.cached.swap_remove(at).0), pool.device)
    })?;
    let address = match kept {
        Some(address) => address,
        None if lacks_room(on, bytes) && trim(handle, 0)? > 0 => memory::take(func, on, bytes)?,
        None => memory::take(func, on, bytes)?,
    };
    with(handle, |pool| pool.used += bytes)?;
    let own = Own { size: bytes, context: context.totals.id, kind: Kind::Pool, pool: handle };
    memory::insert(address, own);
    accounts::allocated(Kind::Pool, bytes);
    Ok(address)
}

/// Whether there is no hole for it, without counting that as a failure.
fn lacks_room(on: usize, bytes: u64) -> bool {
    let _lock = crate::shared::shared().lock_heaps();
    crate::allocator::free_and_hole(&device::shared_device(on).heap, memory::total()).1 < bytes
}

/// The pool takes a block back.
pub(crate) fn give_back(address: u64, own: &Own) {
    let kept = with(own.pool, |pool| {
        pool.used -= own.size;
        pool.cached.push((address, own.size));
    });
    if kept.is_err() {
        // Its pool was destroyed before.
        memory::put_back(address);
    }
}

/// Gives back what the pool holds beyond `keep` and is not in use: how much.
fn trim(handle: u64, keep: u64) -> Result<u64, Error> {
    let gone = with(handle, |pool| {
        let mut gone = Vec::new();
        let mut reserved = pool.used + pool.cached.iter().map(|(_, size)| size).sum::<u64>();
        while reserved > keep
            && let Some(block) = pool.cached.pop()
        {
            reserved -= block.1;
            gone.push(block);
        }
        gone
    })?;
    for &(address, _) in &gone {
        memory::put_back(address);
    }
    Ok(gone.iter().map(|(_, size)| size).sum())
}

fn free(address: u64) -> Result<(), Error> {
    let own = memory::remove(address, |own| own.kind == Kind::Pool)?;
    give_back(address, &own);
    accounts::freed(Kind::Pool, own.size);
    Ok(())
}

/// A free that a capture collects frees nothing.
fn free_in(stream: &stream::Stream, address: u64) -> Result<(), Error> {
    if stream.is_capturing() { Ok(()) } else { free(address) }
}

/// The process exits.
pub(crate) fn release_all() {
    for (_, pool) in std::mem::take(&mut *lock(&POOLS)) {
        pool.cached.into_iter().for_each(|(address, _)| memory::put_back(address));
    }
}

fn create() -> u64 {
    let mut pools = lock(&POOLS);
    let first = BASE + STEP * crate::config::MAX_DEVICES as u64;
    let last = pools.keys().next_back().copied().unwrap_or(first).max(first);
    pools.insert(last + STEP, Pool::default());
    last + STEP
}

fn from_own(
    func: Func,
    address: Out<'_, u64>,
    bytes: usize,
    stream: u64,
    default: stream::Default,
) -> Result<(), Error> {
    let address = address.filter(|_| bytes > 0).ok_or(Error::INVALID_VALUE)?;
    if stream::resolve(stream, default)?.is_capturing() {
        return give(Some(address), captured());
    }
    let context = current()?;
    give(Some(address), allocate(func, &context, own_pool(context.totals.device), bytes as u64)?)
}

fn from_pool(
    func: Func,
    address: Out<'_, u64>,
    bytes: usize,
    pool: u64,
    stream: u64,
    default: stream::Default,
) -> Result<(), Error> {
    let address = address.filter(|_| bytes > 0).ok_or(Error::INVALID_VALUE)?;
    if stream::resolve(stream, default)?.is_capturing() {
        return give(Some(address), captured());
    }
    give(Some(address), allocate(func, &*current()?, pool, bytes as u64)?)
}

export! {
    /// Allocates from the device's own pool.
    fn cuMemAllocAsync(address: Out<'_, u64>, bytes: usize, stream: u64) {
        from_own(Func::cuMemAllocAsync, address, bytes, stream, Legacy)
    }

    /// The same; stream 0 is the thread's own.
    fn cuMemAllocAsync_ptsz(address: Out<'_, u64>, bytes: usize, stream: u64) {
        from_own(Func::cuMemAllocAsync_ptsz, address, bytes, stream, PerThread)
    }

    /// Allocates from a pool.
    fn cuMemAllocFromPoolAsync(address: Out<'_, u64>, bytes: usize, pool: u64, stream: u64) {
        from_pool(Func::cuMemAllocFromPoolAsync, address, bytes, pool, stream, Legacy)
    }

    /// The same; stream 0 is the thread's own.
    fn cuMemAllocFromPoolAsync_ptsz(address: Out<'_, u64>, bytes: usize, pool: u64, stream: u64) {
        from_pool(Func::cuMemAllocFromPoolAsync_ptsz, address, bytes, pool, stream, PerThread)
    }

    /// Gives memory back to its pool.
    fn cuMemFreeAsync(address: u64, stream: u64) {
        free_in(&*stream::resolve(stream, Legacy)?, address)
    }

    /// The same; stream 0 is the thread's own.
    fn cuMemFreeAsync_ptsz(address: u64, stream: u64) {
        free_in(&*stream::resolve(stream, PerThread)?, address)
    }

    /// A new pool of the first device. Its properties are not looked at.
    fn cuMemPoolCreate(pool: Out<'_, u64>, _properties: *const c_void) {
        give(pool, create())
    }

    /// Destroys it; what was taken from it lives on.
    fn cuMemPoolDestroy(pool: u64) {
        trim(pool, 0)?;
        lock(&POOLS).remove(&pool).map(drop).ok_or(Error::INVALID_VALUE)
    }

    /// Gives back what is not in use, down to `keep`.
    fn cuMemPoolTrimTo(pool: u64, keep: usize) {
        trim(pool, keep as u64).map(drop)
    }

    /// Sets the release threshold; other attributes are not looked at.
    fn cuMemPoolSetAttribute(pool: u64, attribute: u32, value: Out<'_, u64>) {
        let value = *value.ok_or(Error::INVALID_VALUE)?;
        with(pool, |pool| if attribute == RELEASE_THRESHOLD { pool.threshold = value })
    }

    /// What it holds, what of it is in use, and its release threshold.
    fn cuMemPoolGetAttribute(pool: u64, attribute: u32, value: Out<'_, u64>) {
        let of = |pool: &mut Pool| match attribute {
            RELEASE_THRESHOLD => Ok(pool.threshold),
            RESERVED_CURRENT => Ok(pool.used + pool.cached.iter().map(|(_, size)| size).sum::<u64>()),
            USED_CURRENT => Ok(pool.used),
            _ => Err(Error::INVALID_VALUE),
        };
        give(value, with(pool, of)??)
    }

    /// The device's own pool.
    fn cuDeviceGetDefaultMemPool(pool: Out<'_, u64>, device: i32) {
        give(pool, own_pool(device::index(device)?))
    }
}
