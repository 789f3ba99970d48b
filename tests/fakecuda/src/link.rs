//! Linking of kernels: any input is accepted, and what comes out is an image of one byte.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crate::abi::{Out, give};
use crate::context::current;
use crate::error::Error;
use crate::handles::Handles;

static LINKS: Handles<()> = Handles::new(0x7e00_0000_0000);
static IMAGE: u8 = 0;

export! {
    /// Begins to link; options are not looked at.
    fn cuLinkCreate_v2(_count: u32, _options: *mut u32, _values: *mut *mut c_void, state: Out<'_, u64>) {
        current()?;
        let state = state.ok_or(Error::INVALID_VALUE)?;
        give(Some(state), LINKS.insert(Arc::new(())))
    }

    /// Adds an input.
    fn cuLinkAddData_v2(
        state: u64, _kind: u32, data: *mut c_void, size: usize, _name: *const c_char, _count: u32,
        _options: *mut u32, _values: *mut *mut c_void,
    ) {
        LINKS.check(state)?;
        if data.is_null() || size == 0 { Err(Error::INVALID_VALUE) } else { Ok(()) }
    }

    /// Links; the image is the library's own and stays.
    fn cuLinkComplete(state: u64, image: Out<'_, *const c_void>, size: Out<'_, usize>) {
        LINKS.check(state)?;
        give(image, (&raw const IMAGE).cast())?;
        give(size, 1)
    }

    /// Ends it.
    fn cuLinkDestroy(state: u64) {
        LINKS.remove(state).map(drop)
    }
}
