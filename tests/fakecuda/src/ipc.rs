//! Memory of other processes. Its contents are not simulated, so an address is all that there is to it. A handle says
//! which process made it, so that no two are the same.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{Out, give};
use crate::context::current;
use crate::error::Error;
use crate::handles::lock;
use crate::memory;

/// Addresses of other processes' memory begin here.
const BASE: u64 = 1 << 46;

/// `CUipcMemHandle`: the address in its process, and which that is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUipcMemHandle {
    /// The address.
    pub address: u64,
    /// The process, and nothing.
    pub rest: [u64; 7],
}

static OPEN: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

export! {
    /// A handle for a block of this process.
    fn cuIpcGetMemHandle(handle: Out<'_, CUipcMemHandle>, address: u64) {
        if !memory::owns(address, 1) {
            return Err(Error::INVALID_VALUE);
        }
        let mut rest = [0; 7];
        rest[0] = u64::from(std::process::id());
        give(handle, CUipcMemHandle { address, rest })
    }

    /// An address for a block of another process.
    fn cuIpcOpenMemHandle_v2(address: Out<'_, u64>, handle: CUipcMemHandle, _flags: u32) {
        static NEXT: AtomicU64 = AtomicU64::new(BASE);
        current()?;
        let at = NEXT.fetch_add(1 << 32, Ordering::Relaxed);
        lock(&OPEN).insert(at, handle.address);
        give(address, at)
    }

    /// Gives it up.
    fn cuIpcCloseMemHandle(address: u64) {
        lock(&OPEN).remove(&address).map(drop).ok_or(Error::INVALID_VALUE)
    }
}
