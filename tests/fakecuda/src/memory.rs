//! Device memory as the caller sees it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use crate::abi::{Out, give};
use crate::accounts::{self, Kind};
use crate::context::current;
use crate::device::{config, shared_device};
use crate::error::Error;
use crate::functions::Func;
use crate::handles::lock;
use crate::owner::Owner;
use crate::shared::shared;
use crate::{allocator, pool, vmm};

/// Device addresses begin here: far from where Linux puts a program's memory.
const BASE: u64 = 1 << 44;
/// Distance between the memories of two devices.
const STRIDE: u64 = 1 << 40;
/// Addresses of memory that moves between host and devices; in this simulation it takes none of a device.
const MANAGED_BASE: u64 = 1 << 43;
/// Rows of pitched memory begin at multiples of this.
const PITCH: usize = 512;

/// A block of this process.
pub(crate) struct Own {
    pub(crate) size: u64,
    pub(crate) context: u64,
    pub(crate) kind: Kind,
    /// The pool it came from, 0 for none.
    pub(crate) pool: u64,
}

/// Blocks of this process by device address.
static OWN: Mutex<BTreeMap<u64, Own>> = Mutex::new(BTreeMap::new());
static ME: LazyLock<Owner> = LazyLock::new(Owner::this_process);

/// Is this an address of device memory?
pub(crate) fn is_device(at: u64) -> bool {
    (BASE..BASE + STRIDE * config().devices as u64).contains(&at) || vmm::is_range(at)
}

/// Does one block of this process hold all of the range?
pub(crate) fn owns(at: u64, bytes: u64) -> bool {
    let own = lock(&OWN);
    let before = own.range(..=at).next_back();
    let in_block = before
        .is_some_and(|(start, block)| at.checked_add(bytes).is_some_and(|end| end <= start + block.size));
    in_block || vmm::is_mapped(at, bytes)
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

/// Takes a hole of the device for this process; returns its address.
pub(crate) fn take(func: Func, device: usize, bytes: u64) -> Result<u64, Error> {
    let heap = &shared_device(device).heap;
    let _lock = shared().lock_heaps();
    allocator::purge(heap, Owner::may_live);
    let take = || allocator::allocate(heap, total(), bytes, *ME);
    let offset = take().or_else(|| {
        purge_device(device);
        take()
    });
    let offset =
        offset.ok_or_else(|| accounts::no_room(func, bytes, allocator::free_and_hole(heap, total())))?;
    Ok(BASE + STRIDE * device as u64 + offset)
}

/// Gives a hole back that [`take`] returned.
pub(crate) fn put_back(address: u64) {
    let _lock = shared().lock_heaps();
    free_shared(address);
}

/// Makes a block of this process known.
pub(crate) fn insert(address: u64, own: Own) {
    lock(&OWN).insert(address, own);
}

/// Takes a block out that `is_it` accepts.
pub(crate) fn remove(address: u64, is_it: impl FnOnce(&Own) -> bool) -> Result<Own, Error> {
    let mut own = lock(&OWN);
    if !own.get(&address).is_some_and(is_it) {
        return Err(Error::INVALID_VALUE);
    }
    own.remove(&address).ok_or(Error::INVALID_VALUE)
}

pub(crate) fn allocate(func: Func, kind: Kind, bytes: u64) -> Result<u64, Error> {
    let context = current()?;
    let address = take(func, context.totals.device, bytes)?;
    insert(address, Own { size: bytes, context: context.totals.id, kind, pool: 0 });
    accounts::allocated(kind, bytes);
    Ok(address)
}

fn allocate_managed(bytes: u64) -> Result<u64, Error> {
    static NEXT: AtomicU64 = AtomicU64::new(MANAGED_BASE);
    let context = current()?.totals.id;
    let address = NEXT.fetch_add(bytes.next_multiple_of(allocator::GRANULE), Ordering::Relaxed);
    insert(address, Own { size: bytes, context, kind: Kind::Managed, pool: 0 });
    accounts::allocated(Kind::Managed, bytes);
    Ok(address)
}

/// `cuMemFree` takes what came from a pool too.
fn free(address: u64) -> Result<(), Error> {
    let own = remove(address, |own| own.kind != Kind::Array)?;
    match own.kind {
        Kind::Pool => pool::give_back(address, &own),
        Kind::Managed => {}
        _ => put_back(address),
    }
    accounts::freed(own.kind, own.size);
    Ok(())
}

/// The caller holds the heap lock.
fn free_shared(address: u64) {
    let Some(offset) = address.checked_sub(BASE) else { return };
    if let Ok(device) = usize::try_from(offset / STRIDE) {
        allocator::free(&shared_device(device).heap, offset % STRIDE, *ME);
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
    pool::release_all();
    vmm::release_all();
}

fn info() -> Result<(usize, usize), Error> {
    let device = current()?.totals.device;
    let _lock = shared().lock_heaps();
    purge_device(device);
    let free = total() - allocator::used(&shared_device(device).heap);
    let size = |bytes: u64| usize::try_from(bytes).map_err(|_| Error::UNKNOWN);
    Ok((size(free)?, size(total())?))
}

export! {
    /// Allocates device memory.
    fn cuMemAlloc_v2(address: Out<'_, u64>, bytes: usize) {
        let address = address.filter(|_| bytes > 0).ok_or(Error::INVALID_VALUE)?;
        give(Some(address), allocate(Func::cuMemAlloc_v2, Kind::Device, bytes as u64)?)
    }

    /// Allocates rows of device memory. The size of an element is not looked at.
    fn cuMemAllocPitch_v2(
        address: Out<'_, u64>, pitch: Out<'_, usize>, width: usize, height: usize, _element: u32,
    ) {
        let address = address.filter(|_| width > 0 && height > 0).ok_or(Error::INVALID_VALUE)?;
        let row = width.next_multiple_of(PITCH);
        let bytes = (row as u64).checked_mul(height as u64).ok_or(Error::INVALID_VALUE)?;
        give(Some(address), allocate(Func::cuMemAllocPitch_v2, Kind::Device, bytes)?)?;
        give(pitch, row)
    }

    /// Allocates memory that moves; it takes none of the device here.
    fn cuMemAllocManaged(address: Out<'_, u64>, bytes: usize, _flags: u32) {
        let address = address.filter(|_| bytes > 0).ok_or(Error::INVALID_VALUE)?;
        give(Some(address), allocate_managed(bytes as u64)?)
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
}
