//! Types of the C interface and the frame around every exported function.

use std::ffi::c_void;

use crate::error::Error;
use crate::functions::Func;
use crate::{init, script, truth};

/// The driver's result code; 0 is success.
pub type CUresult = u32;

/// Where a result goes: a C pointer that may be null.
pub type Out<'a, T> = Option<&'a mut T>;

/// Argument of `cuLaunchKernelEx`, laid out as in `cuda.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUlaunchConfig {
    /// Blocks in x.
    pub grid_x: u32,
    /// Blocks in y.
    pub grid_y: u32,
    /// Blocks in z.
    pub grid_z: u32,
    /// Threads per block in x.
    pub block_x: u32,
    /// Threads per block in y.
    pub block_y: u32,
    /// Threads per block in z.
    pub block_z: u32,
    /// Dynamic shared memory per block, bytes.
    pub shared_bytes: u32,
    /// Stream handle.
    pub stream: u64,
    /// Attributes; not looked at.
    pub attributes: *const c_void,
    /// How many attributes.
    pub attribute_count: u32,
}

const _: () =
    assert!(std::mem::offset_of!(CUlaunchConfig, stream) == 32 && size_of::<CUlaunchConfig>() == 56);

/// One end of a copy that a structure describes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemcpyEnd {
    /// `CUmemorytype`: 1 host, 2 device, 3 array, 4 unified.
    pub kind: u32,
    /// Address on the host.
    pub host: *const c_void,
    /// Address on the device, or unified.
    pub device: u64,
    /// Array.
    pub array: u64,
}

/// One end in two dimensions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemcpyEnd2D {
    /// Not looked at.
    pub offset: [usize; 2],
    /// Where.
    pub end: MemcpyEnd,
    /// Not looked at.
    pub pitch: usize,
}

/// One end in three dimensions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemcpyEnd3D {
    /// Not looked at.
    pub offset: [usize; 4],
    /// Where.
    pub end: MemcpyEnd,
    /// Context of the end, or nothing.
    pub context: u64,
    /// Not looked at.
    pub pitch: [usize; 2],
}

/// Argument of `cuMemcpy2D` and its like, laid out as in `cuda.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_MEMCPY2D {
    /// Source.
    pub from: MemcpyEnd2D,
    /// Target.
    pub to: MemcpyEnd2D,
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// Argument of `cuMemcpy3D`, `cuMemcpy3DPeer` and their like, laid out as in `cuda.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_MEMCPY3D {
    /// Source.
    pub from: MemcpyEnd3D,
    /// Target.
    pub to: MemcpyEnd3D,
    /// Bytes of a row.
    pub width: usize,
    /// Rows of a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

const _: () = assert!(
    size_of::<CUDA_MEMCPY2D>() == 128
        && std::mem::offset_of!(CUDA_MEMCPY2D, to) == 56
        && std::mem::offset_of!(CUDA_MEMCPY2D, width) == 112
);
const _: () = assert!(
    size_of::<CUDA_MEMCPY3D>() == 200
        && std::mem::offset_of!(CUDA_MEMCPY3D, to) == 88
        && std::mem::offset_of!(CUDA_MEMCPY3D, width) == 176
);

/// An entry of the list of `cuLaunchCooperativeKernelMultiDevice`, laid out as in `cuda.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_LAUNCH_PARAMS {
    /// The kernel.
    pub function: u64,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, bytes.
    pub shared_bytes: u32,
    /// Stream handle.
    pub stream: u64,
    /// Arguments; not looked at.
    pub params: *const c_void,
}

const _: () =
    assert!(std::mem::offset_of!(CUDA_LAUNCH_PARAMS, stream) == 40 && size_of::<CUDA_LAUNCH_PARAMS>() == 56);

/// Writes a result through a C pointer.
pub(crate) fn give<T>(out: Out<'_, T>, value: T) -> Result<(), Error> {
    *out.ok_or(Error::INVALID_VALUE)? = value;
    Ok(())
}

/// Counts the call, applies the scripted delay or failure, and turns the outcome into a result code.
#[inline]
pub(crate) fn enter(func: Func, body: impl FnOnce() -> Result<(), Error>) -> CUresult {
    truth::called(func);
    let outcome = init::check(func).and_then(|()| script::apply(func)).and_then(|()| body());
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            truth::failed(func, error);
            error.code()
        }
    }
}

/// Declares exported functions: the C signature, and a body that is run inside [`enter`].
macro_rules! export {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $ty),*) -> $crate::abi::CUresult {
            $crate::abi::enter($crate::functions::Func::$name, move || $body)
        }
    )+};
}
