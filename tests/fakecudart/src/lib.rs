//! A thin `libcudart.so.12`: it loads the driver when it is first called (the file in `FAKECUDART_DRIVER`, else
//! `libcuda.so.1`), finds its functions by `cuGetProcAddress_v2` as the real one does, and calls them. The few functions
//! that tests call.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::LazyLock;

type Raw = *mut c_void;

/// `cudaErrorInitializationError`.
const NOT_INITIALIZED: c_uint = 3;

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Dim3 {
    /// In x.
    pub x: c_uint,
    /// In y.
    pub y: c_uint,
    /// In z.
    pub z: c_uint,
}

type Launch = unsafe extern "C" fn(
    u64,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    u64,
    *mut Raw,
    *mut Raw,
) -> c_uint;
type CopyAsync = unsafe extern "C" fn(u64, u64, usize, u64) -> c_uint;

/// The driver's functions, and a kernel.
struct Driver {
    launch: Launch,
    wait: unsafe extern "C" fn(u64) -> c_uint,
    wait_all: unsafe extern "C" fn() -> c_uint,
    copy: CopyAsync,
    record: unsafe extern "C" fn(u64, u64) -> c_uint,
    wait_event: unsafe extern "C" fn(u64) -> c_uint,
    alloc: unsafe extern "C" fn(*mut u64, usize) -> c_uint,
    free: unsafe extern "C" fn(u64) -> c_uint,
    kernel: u64,
}

static DRIVER: LazyLock<Option<Driver>> = LazyLock::new(Driver::load);

/// Finds functions by name.
struct Finder(unsafe extern "C" fn(*const c_char, *mut Raw, c_int, u64, *mut c_uint) -> c_uint);

impl Finder {
    /// # Safety
    /// `F` is the type of a pointer to the driver's function of that name.
    unsafe fn get<F: Copy>(&self, name: &CStr) -> Option<F> {
        let (mut at, mut status) = (null_mut(), 0);
        // SAFETY: a C string and places that are writable.
        let code = unsafe { (self.0)(name.as_ptr(), &raw mut at, 12_000, 0, &raw mut status) };
        // SAFETY: by contract; a pointer has the size of a pointer.
        (code == 0 && !at.is_null()).then(|| unsafe { std::mem::transmute_copy(&at) })
    }
}

impl Driver {
    fn load() -> Option<Self> {
        let path = std::env::var("FAKECUDART_DRIVER").unwrap_or_else(|_| "libcuda.so.1".to_owned());
        let path = CString::new(path).ok()?;
        // SAFETY: C strings; the signatures here and below are those of cuda.h.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
            if library.is_null() {
                return None;
            }
            let finder = libc::dlsym(library, c"cuGetProcAddress_v2".as_ptr());
            if finder.is_null() {
                return None;
            }
            Self::find(&Finder(std::mem::transmute::<
                Raw,
                unsafe extern "C" fn(*const c_char, *mut Raw, c_int, u64, *mut c_uint) -> c_uint,
            >(finder)))
        }
    }

    /// # Safety
    /// The finder is a driver's.
    unsafe fn find(finder: &Finder) -> Option<Self> {
        // SAFETY: the signatures are those of cuda.h.
        unsafe {
            let init: unsafe extern "C" fn(c_uint) -> c_uint = finder.get(c"cuInit")?;
            let retain: unsafe extern "C" fn(*mut Raw, c_int) -> c_uint =
                finder.get(c"cuDevicePrimaryCtxRetain")?;
            let set: unsafe extern "C" fn(Raw) -> c_uint = finder.get(c"cuCtxSetCurrent")?;
            let load: unsafe extern "C" fn(*mut u64, *const c_void) -> c_uint =
                finder.get(c"cuModuleLoadData")?;
            let function: unsafe extern "C" fn(*mut u64, u64, *const c_char) -> c_uint =
                finder.get(c"cuModuleGetFunction")?;
            let (mut context, mut module, mut kernel) = (null_mut(), 0, 0);
            let ready = init(0) == 0
                && retain(&raw mut context, 0) == 0
                && set(context) == 0
                && load(&raw mut module, c"image".as_ptr().cast()) == 0
                && function(&raw mut kernel, module, c"kernel".as_ptr()) == 0;
            if !ready {
                return None;
            }
            Some(Self {
                launch: finder.get(c"cuLaunchKernel")?,
                wait: finder.get(c"cuStreamSynchronize")?,
                wait_all: finder.get(c"cuCtxSynchronize")?,
                copy: finder.get(c"cuMemcpyAsync")?,
                record: finder.get(c"cuEventRecord")?,
                wait_event: finder.get(c"cuEventSynchronize")?,
                alloc: finder.get(c"cuMemAlloc")?,
                free: finder.get(c"cuMemFree")?,
                kernel,
            })
        }
    }
}

/// Calls the driver, if there is one.
fn with(call: impl FnOnce(&Driver) -> c_uint) -> c_uint {
    DRIVER.as_ref().map_or(NOT_INITIALIZED, call)
}

/// Launches a kernel: the same one whatever the function.
#[unsafe(no_mangle)]
pub extern "C" fn cudaLaunchKernel(
    _function: *const c_void,
    grid: Dim3,
    block: Dim3,
    _arguments: *mut Raw,
    shared_bytes: usize,
    stream: u64,
) -> c_uint {
    let shared = c_uint::try_from(shared_bytes).unwrap_or(c_uint::MAX);
    let (g, b, none) = (grid, block, null_mut());
    // SAFETY: a kernel of this driver; the stream is checked by it.
    with(|d| unsafe { (d.launch)(d.kernel, g.x, g.y, g.z, b.x, b.y, b.z, shared, stream, none, none) })
}

/// Copies, in whatever direction.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMemcpyAsync(to: u64, from: u64, bytes: usize, _kind: c_uint, stream: u64) -> c_uint {
    // SAFETY: the driver checks the range, and no byte moves.
    with(|d| unsafe { (d.copy)(to, from, bytes, stream) })
}

/// Waits for a stream.
#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamSynchronize(stream: u64) -> c_uint {
    // SAFETY: the driver checks the stream.
    with(|d| unsafe { (d.wait)(stream) })
}

/// Waits for everything.
#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceSynchronize() -> c_uint {
    // SAFETY: takes nothing.
    with(|d| unsafe { (d.wait_all)() })
}

/// Records an event.
#[unsafe(no_mangle)]
pub extern "C" fn cudaEventRecord(event: u64, stream: u64) -> c_uint {
    // SAFETY: the driver checks both.
    with(|d| unsafe { (d.record)(event, stream) })
}

/// Waits for an event.
#[unsafe(no_mangle)]
pub extern "C" fn cudaEventSynchronize(event: u64) -> c_uint {
    // SAFETY: the driver checks it.
    with(|d| unsafe { (d.wait_event)(event) })
}

/// Allocates device memory.
///
/// # Safety
/// `address` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMalloc(address: *mut u64, bytes: usize) -> c_uint {
    // SAFETY: the caller's promise.
    with(|d| unsafe { (d.alloc)(address, bytes) })
}

/// Frees it. Nothing is freed by 0, for which programs call it that only want the driver loaded.
#[unsafe(no_mangle)]
pub extern "C" fn cudaFree(address: u64) -> c_uint {
    // SAFETY: the driver checks the address.
    with(|d| if address == 0 { 0 } else { unsafe { (d.free)(address) } })
}
