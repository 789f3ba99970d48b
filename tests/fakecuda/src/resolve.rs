//! `cuGetProcAddress`: how runtimes find the driver's functions.

use std::ffi::{CStr, c_char, c_void};

use crate::abi::Out;
use crate::config::CONFIG;
use crate::error::Error;
use crate::functions::Func;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD_DEFAULT_STREAM: u64 = 2;
/// `CU_GET_PROC_ADDRESS_SUCCESS`.
const FOUND: u32 = 0;
/// `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`.
const NOT_FOUND: u32 = 1;

/// Callers ask by base name; the newest version here is the one that fits, whatever version they state.
fn resolve(name: &str, per_thread: bool) -> Option<Func> {
    const PER_THREAD: [&str; 4] = ["_v2_ptsz", "_v2_ptds", "_ptsz", "_ptds"];
    const PLAIN: [&str; 2] = ["_v2", ""];
    let suffixes = if per_thread { &PER_THREAD[..] } else { &[] };
    suffixes.iter().chain(&PLAIN).find_map(|suffix| Func::from_name(&format!("{name}{suffix}")))
}

/// Address of a function, as it is given out.
fn address_of(func: Func) -> *const c_void {
    let gives_inner = CONFIG.as_ref().is_ok_and(|config| config.inner == 1);
    crate::inner::address(func).filter(|_| gives_inner).unwrap_or_else(|| func.address())
}

/// # Safety
/// `symbol` is null or a C string.
unsafe fn find(
    symbol: *const c_char,
    address: Out<'_, *const c_void>,
    flags: u64,
    status: Out<'_, u32>,
) -> Result<(), Error> {
    let address = address.filter(|_| !symbol.is_null()).ok_or(Error::INVALID_VALUE)?;
    // SAFETY: not null, so the caller promises a C string.
    let name = unsafe { CStr::from_ptr(symbol) }.to_str().map_err(|_| Error::INVALID_VALUE)?;
    let found = resolve(name, flags & PER_THREAD_DEFAULT_STREAM != 0);
    *address = found.map_or(std::ptr::null(), address_of);
    match (status, found) {
        (Some(status), _) => *status = if found.is_some() { FOUND } else { NOT_FOUND },
        (None, Some(_)) => {}
        (None, None) => return Err(Error::NOT_FOUND),
    }
    Ok(())
}

/// Address of the function of that name, as it was asked for before CUDA 12.
///
/// # Safety
/// `symbol` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    address: Out<'_, *const c_void>,
    _version: i32,
    flags: u64,
) -> crate::CUresult {
    // SAFETY: the caller's promise.
    crate::abi::enter(Func::cuGetProcAddress, || unsafe { find(symbol, address, flags, None) })
}

/// Address of the function of that name.
///
/// # Safety
/// `symbol` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    address: Out<'_, *const c_void>,
    _version: i32,
    flags: u64,
    status: Out<'_, u32>,
) -> crate::CUresult {
    // SAFETY: the caller's promise.
    crate::abi::enter(Func::cuGetProcAddress_v2, || unsafe { find(symbol, address, flags, status) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_names_lead_to_the_variant_that_fits() {
        for (name, per_thread, want) in [
            ("cuMemAlloc", false, Some(Func::cuMemAlloc_v2)),
            ("cuMemAlloc", true, Some(Func::cuMemAlloc_v2)),
            ("cuLaunchKernel", false, Some(Func::cuLaunchKernel)),
            ("cuLaunchKernel", true, Some(Func::cuLaunchKernel_ptsz)),
            ("cuMemcpyHtoD", true, Some(Func::cuMemcpyHtoD_v2_ptds)),
            ("cuMemcpyHtoDAsync", true, Some(Func::cuMemcpyHtoDAsync_v2_ptsz)),
            ("cuMemcpy", true, Some(Func::cuMemcpy_ptds)),
            ("cuGetProcAddress", false, Some(Func::cuGetProcAddress_v2)),
            ("cuNothing", true, None),
        ] {
            assert_eq!(resolve(name, per_thread), want, "{name} {per_thread}");
        }
    }
}
