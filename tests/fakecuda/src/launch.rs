//! Kernel launches.

use std::ffi::c_void;

use crate::abi::{CUDA_LAUNCH_PARAMS, CUlaunchConfig, Out};
use crate::error::Error;
use crate::module;
use crate::stream::{self, Default};
use crate::timeline::Op;

/// Most threads in a block.
const MAX_BLOCK: u64 = 1024;

fn launch(
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    stream: u64,
    default: Default,
) -> Result<(), Error> {
    let threads = block.iter().map(|&n| u64::from(n)).fold(1, u64::saturating_mul);
    if grid.contains(&0) || threads == 0 || threads > MAX_BLOCK {
        return Err(Error::INVALID_VALUE);
    }
    let stream = stream::resolve(stream, default)?;
    module::check_function(function)?;
    stream.submit(Op::Kernel { units: grid[0] }).map(drop)
}

fn launch_ex(config: Out<'_, CUlaunchConfig>, function: u64, default: Default) -> Result<(), Error> {
    let c = config.ok_or(Error::INVALID_VALUE)?;
    launch(function, [c.grid_x, c.grid_y, c.grid_z], [c.block_x, c.block_y, c.block_z], c.stream, default)
}

pub(crate) fn legacy(function: u64, grid: [u32; 3], block: [u32; 3], stream: u64) -> Result<(), Error> {
    launch(function, grid, block, stream, Default::Legacy)
}

/// Launches a kernel.
#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernel(
    function: u64,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: u64,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> crate::CUresult {
    crate::inner::launch(
        function,
        grid_x,
        grid_y,
        grid_z,
        block_x,
        block_y,
        block_z,
        shared_bytes,
        stream,
        params,
        extra,
    )
}

export! {
    /// Launches a kernel.
    fn cuLaunchKernel_ptsz(
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: u64, _params: *mut *mut c_void, _extra: *mut *mut c_void,
    ) {
        launch(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream, Default::PerThread)
    }

    /// Launches a kernel; the configuration is read only.
    fn cuLaunchKernelEx(
        config: Out<'_, CUlaunchConfig>, function: u64, _params: *mut *mut c_void, _extra: *mut *mut c_void,
    ) {
        launch_ex(config, function, Default::Legacy)
    }

    /// Launches a kernel; the configuration is read only.
    fn cuLaunchKernelEx_ptsz(
        config: Out<'_, CUlaunchConfig>, function: u64, _params: *mut *mut c_void, _extra: *mut *mut c_void,
    ) {
        launch_ex(config, function, Default::PerThread)
    }

    /// Launches a kernel whose blocks run together.
    fn cuLaunchCooperativeKernel(
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: u64, _params: *mut *mut c_void,
    ) {
        launch(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream, Default::Legacy)
    }

    /// Launches a kernel whose blocks run together.
    fn cuLaunchCooperativeKernel_ptsz(
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: u64, _params: *mut *mut c_void,
    ) {
        launch(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream, Default::PerThread)
    }

    /// Launches a kernel on several devices at once.
    fn cuLaunchCooperativeKernelMultiDevice(list: Option<&CUDA_LAUNCH_PARAMS>, count: u32, _flags: u32) {
        let count = usize::try_from(count).map_err(|_| Error::INVALID_VALUE)?;
        let first = list.filter(|_| count > 0).ok_or(Error::INVALID_VALUE)?;
        // SAFETY: the caller promises so many entries.
        let list = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(first), count) };
        list.iter().try_for_each(|one| launch(one.function, one.grid, one.block, one.stream, Default::Legacy))
    }

    /// Launches one block of a kernel, as before CUDA 4.
    fn cuLaunch(function: u64) {
        launch(function, [1; 3], [1; 3], 0, Default::Legacy)
    }

    /// Launches a kernel, as before CUDA 4.
    fn cuLaunchGrid(function: u64, width: u32, height: u32) {
        launch(function, [width, height, 1], [1; 3], 0, Default::Legacy)
    }

    /// Launches a kernel, as before CUDA 4.
    fn cuLaunchGridAsync(function: u64, width: u32, height: u32, stream: u64) {
        launch(function, [width, height, 1], [1; 3], stream, Default::Legacy)
    }
}
