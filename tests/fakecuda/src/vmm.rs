//! Physical memory and addresses apart. Physical memory lives until its last handle and its last mapping are gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::abi::{Out, give};
use crate::accounts::{self, Kind};
use crate::error::Error;
use crate::functions::Func;
use crate::handles::{Handles, lock};
use crate::{device, memory};

/// Reserved addresses begin here.
const BASE: u64 = 1 << 45;
/// Sizes are multiples of this: smaller than the real driver's 2 MiB, so that tests can be small.
const GRANULARITY: u64 = 64 << 10;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: u32 = 1;

/// Beginning of `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUmemAllocationProp {
    /// Pinned memory is 1.
    pub kind: u32,
    /// Kinds of handles that it can be exported as.
    pub handle_types: u32,
    /// A device is 1.
    pub location_type: u32,
    /// Which.
    pub location_id: i32,
}

/// A piece of physical memory.
struct Physical {
    /// Where the heap has it.
    address: u64,
    size: u64,
    handles: AtomicU32,
}

impl Drop for Physical {
    fn drop(&mut self) {
        memory::put_back(self.address);
        accounts::vanished(Kind::Vmm, self.size);
    }
}

struct Mapping {
    size: u64,
    physical: Arc<Physical>,
    handle: u64,
}

static HANDLES: Handles<Physical> = Handles::new(0x7e00_0000_0000);
static MAPPINGS: Mutex<BTreeMap<u64, Mapping>> = Mutex::new(BTreeMap::new());
static RANGES: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

/// Is this an address that was reserved here?
pub(crate) fn is_range(at: u64) -> bool {
    at >= BASE && lock(&RANGES).range(..=at).next_back().is_some_and(|(start, size)| at < start + size)
}

/// Does one mapping hold all of the range?
pub(crate) fn is_mapped(at: u64, bytes: u64) -> bool {
    let mappings = lock(&MAPPINGS);
    let before = mappings.range(..=at).next_back();
    before.is_some_and(|(start, m)| at.checked_add(bytes).is_some_and(|end| end <= start + m.size))
}

/// The process exits.
pub(crate) fn release_all() {
    lock(&MAPPINGS).clear();
    HANDLES.remove_all(|_| true);
}

fn sized(bytes: usize) -> Result<u64, Error> {
    Some(bytes as u64).filter(|b| *b > 0 && b.is_multiple_of(GRANULARITY)).ok_or(Error::INVALID_VALUE)
}

fn create(size: u64, on: i32) -> Result<u64, Error> {
    let address = memory::take(Func::cuMemCreate, device::index(on)?, size)?;
    accounts::allocated(Kind::Vmm, size);
    Ok(HANDLES.insert(Arc::new(Physical { address, size, handles: AtomicU32::new(1) })))
}

fn map(at: u64, size: u64, handle: u64) -> Result<(), Error> {
    let physical = HANDLES.get(handle).map_err(|_| Error::INVALID_VALUE)?;
    let reserved = lock(&RANGES).range(..=at).next_back().is_some_and(|(s, n)| at + size <= s + n);
    let mut mappings = lock(&MAPPINGS);
    let is_free = mappings.range(..at + size).next_back().is_none_or(|(start, m)| start + m.size <= at);
    if !reserved || !is_free || size != physical.size {
        return Err(Error::INVALID_VALUE);
    }
    mappings.insert(at, Mapping { size, physical, handle });
    Ok(())
}

fn unmap(at: u64, size: u64) -> Result<(), Error> {
    let gone: Vec<Mapping> = lock(&MAPPINGS).extract_if(at..at + size, |_, _| true).map(|(_, m)| m).collect();
    if gone.is_empty() { Err(Error::INVALID_VALUE) } else { Ok(()) }
}

fn retain(at: u64) -> Result<u64, Error> {
    let mappings = lock(&MAPPINGS);
    let found = mappings.range(..=at).next_back().filter(|(start, m)| at < *start + m.size);
    let (_, mapping) = found.ok_or(Error::INVALID_VALUE)?;
    if mapping.physical.handles.fetch_add(1, Ordering::Relaxed) == 0 {
        return Ok(HANDLES.insert(Arc::clone(&mapping.physical)));
    }
    Ok(mapping.handle)
}

export! {
    /// Reserves addresses. Wishes for where are not looked at.
    fn cuMemAddressReserve(address: Out<'_, u64>, bytes: usize, _alignment: usize, _hint: u64, _flags: u64) {
        static NEXT: AtomicU64 = AtomicU64::new(BASE);
        let size = sized(bytes)?;
        let at = NEXT.fetch_add(size, Ordering::Relaxed);
        lock(&RANGES).insert(at, size);
        give(address, at)
    }

    /// Gives them back.
    fn cuMemAddressFree(address: u64, bytes: usize) {
        let mut ranges = lock(&RANGES);
        if ranges.get(&address) != Some(&(bytes as u64)) {
            return Err(Error::INVALID_VALUE);
        }
        ranges.remove(&address);
        Ok(())
    }

    /// Physical memory without an address.
    fn cuMemCreate(handle: Out<'_, u64>, bytes: usize, properties: Out<'_, CUmemAllocationProp>, _flags: u64) {
        let properties = *properties.filter(|p| p.location_type == DEVICE).ok_or(Error::INVALID_VALUE)?;
        give(handle, create(sized(bytes)?, properties.location_id)?)
    }

    /// Gives up a handle.
    fn cuMemRelease(handle: u64) {
        let physical = HANDLES.get(handle).map_err(|_| Error::INVALID_VALUE)?;
        if physical.handles.fetch_sub(1, Ordering::Relaxed) == 1 {
            HANDLES.remove(handle).map(drop)?;
        }
        accounts::let_go(Kind::Vmm);
        Ok(())
    }

    /// Maps all of a piece of physical memory to reserved addresses.
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, _flags: u64) {
        let size = sized(bytes)?;
        if offset != 0 { Err(Error::INVALID_VALUE) } else { map(address, size, handle) }
    }

    /// Unmaps all that begins within the range.
    fn cuMemUnmap(address: u64, bytes: usize) {
        unmap(address, bytes as u64)
    }

    /// One more handle for what is mapped there.
    fn cuMemRetainAllocationHandle(handle: Out<'_, u64>, address: u64) {
        give(handle, retain(address)?)
    }

    /// Who may reach it: everybody here.
    fn cuMemSetAccess(address: u64, bytes: usize, _who: usize, _count: usize) {
        if is_mapped(address, bytes as u64) { Ok(()) } else { Err(Error::INVALID_VALUE) }
    }
}
