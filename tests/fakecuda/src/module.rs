//! Modules and the kernels in them.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex};

use crate::abi::{Out, give};
use crate::context::current;
use crate::error::Error;
use crate::functions::Func;
use crate::handles::{Handles, lock};

/// A module: any image is accepted, and it has a kernel of every name.
struct Module {
    functions: Mutex<HashMap<Vec<u8>, u64>>,
}

static MODULES: Handles<Module> = Handles::new(0x7d00_0000_0000);
static FUNCTIONS: Handles<()> = Handles::new(0x7f00_0000);

/// Is this a kernel?
pub(crate) fn check_function(function: u64) -> Result<(), Error> {
    FUNCTIONS.check(function)
}

fn load(module: Out<'_, u64>, image: *const c_void) -> Result<(), Error> {
    current()?;
    let module = module.filter(|_| !image.is_null()).ok_or(Error::INVALID_VALUE)?;
    give(Some(module), MODULES.insert(Arc::new(Module { functions: Mutex::default() })))
}

export! {
    /// Loads a module; the file is not looked at.
    fn cuModuleLoad(module: Out<'_, u64>, path: *const c_char) {
        load(module, path.cast())
    }

    /// Loads a module; the image is not looked at.
    fn cuModuleLoadData(module: Out<'_, u64>, image: *const c_void) {
        load(module, image)
    }

    /// Loads a module; neither image nor options are looked at.
    fn cuModuleLoadDataEx(
        module: Out<'_, u64>, image: *const c_void, _count: u32, _options: *mut u32, _values: *mut *mut c_void,
    ) {
        load(module, image)
    }

    /// Loads a module; the image is not looked at.
    fn cuModuleLoadFatBinary(module: Out<'_, u64>, image: *const c_void) {
        load(module, image)
    }

    /// Loads a library of kernels, which is a module here.
    fn cuLibraryLoadData(
        library: Out<'_, u64>, code: *const c_void, _jit: *mut u32, _jit_values: *mut *mut c_void, _jit_count: u32,
        _options: *mut u32, _values: *mut *mut c_void, _count: u32,
    ) {
        load(library, code)
    }

    /// Unloads it.
    fn cuLibraryUnload(library: u64) {
        MODULES.remove(library).map(drop)
    }

    /// Unloads it with its kernels.
    fn cuModuleUnload(module: u64) {
        let module = MODULES.remove(module)?;
        for &function in lock(&module.functions).values() {
            FUNCTIONS.remove(function)?;
        }
        Ok(())
    }
}

/// The kernel of that name.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: Out<'_, u64>,
    module: u64,
    name: *const c_char,
) -> crate::CUresult {
    crate::abi::enter(Func::cuModuleGetFunction, || {
        let module = MODULES.get(module)?;
        let function = function.filter(|_| !name.is_null()).ok_or(Error::INVALID_VALUE)?;
        // SAFETY: not null, so the caller promises a C string.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes().to_vec();
        let mut functions = lock(&module.functions);
        give(Some(function), *functions.entry(name).or_insert_with(|| FUNCTIONS.insert(Arc::new(()))))
    })
}
