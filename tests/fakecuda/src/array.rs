//! Arrays: they take what their elements take.

use crate::abi::{Out, give};
use crate::accounts::{self, Kind};
use crate::error::Error;
use crate::functions::Func;
use crate::memory;

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_ARRAY_DESCRIPTOR {
    /// Elements in x.
    pub width: usize,
    /// Rows; 0 where there is one dimension.
    pub height: usize,
    /// `CU_AD_FORMAT_*`.
    pub format: u32,
    /// Numbers in an element.
    pub channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUDA_ARRAY3D_DESCRIPTOR {
    /// Elements in x.
    pub width: usize,
    /// Rows; 0 where there is one dimension.
    pub height: usize,
    /// Layers; 0 where there are two.
    pub depth: usize,
    /// `CU_AD_FORMAT_*`.
    pub format: u32,
    /// Numbers in an element.
    pub channels: u32,
    /// Not looked at.
    pub flags: u32,
}

/// Bytes of a number.
fn number(format: u32) -> Result<usize, Error> {
    match format {
        0x01 | 0x08 => Ok(1),
        0x02 | 0x09 | 0x10 => Ok(2),
        0x03 | 0x0a | 0x20 => Ok(4),
        _ => Err(Error::INVALID_VALUE),
    }
}

fn create(func: Func, [width, height, depth]: [usize; 3], format: u32, channels: u32) -> Result<u64, Error> {
    if width == 0 || !matches!(channels, 1 | 2 | 4) {
        return Err(Error::INVALID_VALUE);
    }
    let elements = width * height.max(1) * depth.max(1);
    memory::allocate(func, Kind::Array, (elements * number(format)? * channels as usize) as u64)
}

fn create_3d(func: Func, d: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<u64, Error> {
    create(func, [d.width, d.height, d.depth], d.format, d.channels)
}

fn destroy(array: u64) -> Result<(), Error> {
    let own = memory::remove(array, |own| own.kind == Kind::Array)?;
    memory::put_back(array);
    accounts::freed(Kind::Array, own.size);
    Ok(())
}

export! {
    /// An array of up to two dimensions.
    fn cuArrayCreate_v2(array: Out<'_, u64>, description: Out<'_, CUDA_ARRAY_DESCRIPTOR>) {
        let d = *description.ok_or(Error::INVALID_VALUE)?;
        give(array, create(Func::cuArrayCreate_v2, [d.width, d.height, 1], d.format, d.channels)?)
    }

    /// An array of up to three dimensions.
    fn cuArray3DCreate_v2(array: Out<'_, u64>, description: Out<'_, CUDA_ARRAY3D_DESCRIPTOR>) {
        give(array, create_3d(Func::cuArray3DCreate_v2, description.ok_or(Error::INVALID_VALUE)?)?)
    }

    /// Destroys an array.
    fn cuArrayDestroy(array: u64) {
        destroy(array)
    }

    /// An array and smaller ones of its kind; of which only the first takes memory here.
    fn cuMipmappedArrayCreate(array: Out<'_, u64>, description: Out<'_, CUDA_ARRAY3D_DESCRIPTOR>, _levels: u32) {
        give(array, create_3d(Func::cuMipmappedArrayCreate, description.ok_or(Error::INVALID_VALUE)?)?)
    }

    /// Destroys them.
    fn cuMipmappedArrayDestroy(array: u64) {
        destroy(array)
    }
}
