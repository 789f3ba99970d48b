//! Host memory that devices reach.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;

use crate::abi::{Out, give};
use crate::accounts::{self, Kind};
use crate::context::current;
use crate::error::Error;
use crate::handles::lock;

/// Alignment of host memory.
const PAGE: usize = 4096;

/// Sizes of host allocations by address.
static HOST: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
/// The same of memory that was there before.
static REGISTERED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn allocate(bytes: usize) -> Result<*mut c_void, Error> {
    current()?;
    let mut at = std::ptr::null_mut();
    // SAFETY: `at` is writable and the alignment is a power of two and a multiple of a pointer's size.
    let refused = unsafe { libc::posix_memalign(&raw mut at, PAGE, bytes) };
    if refused != 0 {
        return Err(Error::OUT_OF_MEMORY);
    }
    lock(&HOST).insert(at.expose_provenance(), bytes);
    accounts::allocated(Kind::Host, bytes as u64);
    Ok(at)
}

fn register(address: usize, bytes: usize) -> Result<(), Error> {
    current()?;
    let mut registered = lock(&REGISTERED);
    if address == 0 || bytes == 0 || registered.contains_key(&address) {
        return Err(Error::INVALID_VALUE);
    }
    registered.insert(address, bytes);
    accounts::allocated(Kind::Host, bytes as u64);
    Ok(())
}

export! {
    /// Allocates host memory. Flags are not looked at.
    fn cuMemHostAlloc(address: Out<'_, *mut c_void>, bytes: usize, _flags: u32) {
        let address = address.filter(|_| bytes > 0).ok_or(Error::INVALID_VALUE)?;
        give(Some(address), allocate(bytes)?)
    }

    /// The same, in its older form.
    fn cuMemAllocHost_v2(address: Out<'_, *mut c_void>, bytes: usize) {
        let address = address.filter(|_| bytes > 0).ok_or(Error::INVALID_VALUE)?;
        give(Some(address), allocate(bytes)?)
    }

    /// Frees it.
    fn cuMemFreeHost(address: usize) {
        let bytes = lock(&HOST).remove(&address).ok_or(Error::INVALID_VALUE)?;
        // SAFETY: posix_memalign returned it, and it was in the table, so it is freed once.
        unsafe { libc::free(std::ptr::with_exposed_provenance_mut(address)) };
        accounts::freed(Kind::Host, bytes as u64);
        Ok(())
    }

    /// Lets devices reach memory that is there. Flags are not looked at.
    fn cuMemHostRegister_v2(address: usize, bytes: usize, _flags: u32) {
        register(address, bytes)
    }

    /// Ends that.
    fn cuMemHostUnregister(address: usize) {
        let bytes = lock(&REGISTERED).remove(&address).ok_or(Error::INVALID_VALUE)?;
        accounts::freed(Kind::Host, bytes as u64);
        Ok(())
    }
}
