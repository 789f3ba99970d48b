//! Entry points without a name: some drivers give out others than those they export. Each does what the exported one
//! does, and they meet in every way there is: the exported launch jumps to the inner one, the inner wait and allocation
//! call the exported ones.

use std::ffi::c_void;

use crate::CUresult;
use crate::abi::Out;
use crate::functions::Func;

/// The entry point without a name of a function, if it has one.
pub(crate) fn address(func: Func) -> Option<*const c_void> {
    Some(match func {
        Func::cuLaunchKernel => launch as *const c_void,
        Func::cuStreamSynchronize => synchronize as *const c_void,
        Func::cuMemAlloc_v2 => alloc as *const c_void,
        _ => return None,
    })
}

/// What `cuLaunchKernel` is.
#[inline(never)]
pub(crate) extern "C" fn launch(
    function: u64,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    _shared_bytes: u32,
    stream: u64,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> CUresult {
    crate::abi::enter(Func::cuLaunchKernel, || {
        crate::launch::legacy(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream)
    })
}

#[inline(never)]
extern "C" fn synchronize(stream: u64) -> CUresult {
    // Not a jump: something is left to do.
    std::hint::black_box(crate::cuStreamSynchronize(stream))
}

#[inline(never)]
extern "C" fn alloc(address: Out<'_, u64>, bytes: usize) -> CUresult {
    std::hint::black_box(crate::cuMemAlloc_v2(address, bytes))
}
