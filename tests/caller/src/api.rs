//! The driver and the runtime by `dlopen`: the few calls that are made, with checked results.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::{null, null_mut};

use anyhow::{Result, bail, ensure};

type Raw = *mut c_void;
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
type Wait = unsafe extern "C" fn(u64) -> c_uint;
type Alloc = unsafe extern "C" fn(*mut u64, usize) -> c_uint;
type Resolve = unsafe extern "C" fn(*const c_char, *mut Raw, c_int, u64, *mut c_uint) -> c_uint;

/// How a function is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// By its exported name.
    Export,
    /// By the address that the driver gives out.
    Resolve,
    /// In turn.
    Both,
    /// By the runtime.
    Runtime,
}

struct Library(Raw);

impl Library {
    fn open(path: &Path) -> Result<Self> {
        let text = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: a C string; the library's constructors are those that the user asked for.
        let library = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        ensure!(!library.is_null(), "cannot load {}", path.display());
        Ok(Self(library))
    }

    /// # Safety
    /// `F` is the type of a pointer to the C function of that name.
    unsafe fn get<F: Copy>(&self, name: &CStr) -> Result<F> {
        // SAFETY: an open library, never closed, and a C string.
        let at = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        ensure!(!at.is_null(), "there is no {name:?}");
        // SAFETY: by contract.
        Ok(unsafe { cast(at) })
    }
}

/// # Safety
/// `at` is the address of a C function of which `F` is the type.
unsafe fn cast<F: Copy>(at: Raw) -> F {
    assert_eq!(size_of::<F>(), size_of::<Raw>(), "F is a pointer to a function");
    // SAFETY: of the same size, and by contract.
    unsafe { std::mem::transmute_copy(&at) }
}

fn check(name: &str, code: c_uint) -> Result<()> {
    if code != 0 {
        bail!("{name} returned {code}");
    }
    Ok(())
}

/// The driver, ready to be used by this thread.
pub(crate) struct Driver {
    library: Library,
    launch: [Launch; 2],
    wait: [Wait; 2],
    alloc: [Alloc; 2],
    free: unsafe extern "C" fn(u64) -> c_uint,
    function: u64,
    stream: u64,
}

impl Driver {
    pub(crate) fn open(path: &Path, way: Way) -> Result<Self> {
        let library = Library::open(path)?;
        // SAFETY: the signatures are those of cuda.h, here and below.
        unsafe {
            check("cuInit", library.get::<unsafe extern "C" fn(c_uint) -> c_uint>(c"cuInit")?(0))?;
            let mut context = null_mut();
            let retain: unsafe extern "C" fn(*mut Raw, c_int) -> c_uint =
                library.get(c"cuDevicePrimaryCtxRetain")?;
            check("cuDevicePrimaryCtxRetain", retain(&raw mut context, 0))?;
            let set: unsafe extern "C" fn(Raw) -> c_uint = library.get(c"cuCtxSetCurrent")?;
            check("cuCtxSetCurrent", set(context))?;
            let function = kernel(&library)?;
            let create: unsafe extern "C" fn(*mut u64, c_uint) -> c_uint = library.get(c"cuStreamCreate")?;
            let mut stream = 0;
            check("cuStreamCreate", create(&raw mut stream, 1))?;
            Ok(Self {
                launch: both(&library, way, c"cuLaunchKernel", c"cuLaunchKernel")?,
                wait: both(&library, way, c"cuStreamSynchronize", c"cuStreamSynchronize")?,
                alloc: both(&library, way, c"cuMemAlloc_v2", c"cuMemAlloc")?,
                free: library.get(c"cuMemFree_v2")?,
                library,
                function,
                stream,
            })
        }
    }

    /// The two places of a call are not one and the same instruction, as they would not be in a program.
    pub(crate) fn launch(&self, n: u32) -> Result<()> {
        check(
            "cuLaunchKernel",
            if n.is_multiple_of(2) { self.launch_by_first() } else { self.launch_by_second() },
        )
    }

    #[inline(never)]
    fn launch_by_first(&self) -> c_uint {
        let (f, s, none) = (self.function, self.stream, null_mut::<Raw>());
        // SAFETY: handles of this driver.
        unsafe { self.launch[0](f, 1, 1, 1, 32, 1, 1, 0, s, none, none) }
    }

    #[inline(never)]
    fn launch_by_second(&self) -> c_uint {
        let (f, s, none) = (self.function, self.stream, null_mut::<Raw>());
        // SAFETY: as above.
        unsafe { self.launch[1](f, 1, 1, 1, 32, 1, 1, 0, s, none, none) }
    }

    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: as above.
        check("cuStreamSynchronize", unsafe { self.wait[1](self.stream) })
    }

    pub(crate) fn alloc(&self) -> Result<()> {
        let mut address = 0;
        // SAFETY: as above; the address is writable.
        unsafe {
            check("cuMemAlloc", self.alloc[1](&raw mut address, 4096))?;
            check("cuMemFree", (self.free)(address))
        }
    }

    /// A module, kernels that are linked, and a graph.
    pub(crate) fn modules(&self) -> Result<()> {
        kernel_of(&self.library)?;
        // SAFETY: the signatures are those of cuda.h; all places are writable.
        unsafe {
            let create: unsafe extern "C" fn(c_uint, Raw, Raw, *mut u64) -> c_uint =
                self.library.get(c"cuLinkCreate_v2")?;
            let complete: unsafe extern "C" fn(u64, *mut Raw, *mut usize) -> c_uint =
                self.library.get(c"cuLinkComplete")?;
            let (mut link, mut image, mut size) = (0, null_mut(), 0);
            check("cuLinkCreate", create(0, null_mut(), null_mut(), &raw mut link))?;
            check("cuLinkComplete", complete(link, &raw mut image, &raw mut size))?;
        }
        self.graph()
    }

    fn graph(&self) -> Result<()> {
        // SAFETY: as above.
        unsafe {
            let begin: unsafe extern "C" fn(u64, c_uint) -> c_uint =
                self.library.get(c"cuStreamBeginCapture_v2")?;
            let end: unsafe extern "C" fn(u64, *mut u64) -> c_uint =
                self.library.get(c"cuStreamEndCapture")?;
            let make: unsafe extern "C" fn(*mut u64, u64, u64) -> c_uint =
                self.library.get(c"cuGraphInstantiateWithFlags")?;
            let (mut graph, mut executable) = (0, 0);
            check("cuStreamBeginCapture", begin(self.stream, 2))?;
            check("cuStreamEndCapture", end(self.stream, &raw mut graph))?;
            check("cuGraphInstantiateWithFlags", make(&raw mut executable, graph, 0))
        }
    }
}

/// A module of its own.
fn kernel_of(library: &Library) -> Result<u64> {
    // SAFETY: the signature is that of cuda.h; the module is writable, and the image is not looked at.
    unsafe {
        let load: unsafe extern "C" fn(*mut u64, *const c_void) -> c_uint =
            library.get(c"cuModuleLoadData")?;
        let mut module = 0;
        check("cuModuleLoadData", load(&raw mut module, c"image".as_ptr().cast()))?;
        Ok(module)
    }
}

fn kernel(library: &Library) -> Result<u64> {
    let module = kernel_of(library)?;
    // SAFETY: the signature is that of cuda.h; the function is writable.
    unsafe {
        let get: unsafe extern "C" fn(*mut u64, u64, *const c_char) -> c_uint =
            library.get(c"cuModuleGetFunction")?;
        let mut function = 0;
        check("cuModuleGetFunction", get(&raw mut function, module, c"kernel".as_ptr()))?;
        Ok(function)
    }
}

/// A function by the two ways that are asked for.
///
/// # Safety
/// `F` is the type of a pointer to the C function of these names.
unsafe fn both<F: Copy>(library: &Library, way: Way, exported: &CStr, base: &CStr) -> Result<[F; 2]> {
    // SAFETY: by contract, and as cuda.h has it.
    unsafe {
        let by_name = library.get(exported)?;
        if way == Way::Export {
            return Ok([by_name, by_name]);
        }
        let resolve: Resolve = library.get(c"cuGetProcAddress_v2")?;
        let (mut at, mut status) = (null_mut(), 0);
        check("cuGetProcAddress", resolve(base.as_ptr(), &raw mut at, 12_000, 0, &raw mut status))?;
        ensure!(!at.is_null(), "the driver gives no address of {base:?}");
        let by_address = cast(at);
        Ok(if way == Way::Resolve { [by_address, by_address] } else { [by_name, by_address] })
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Dim3([c_uint; 3]);

/// The runtime, ready to be used.
pub(crate) struct Runtime {
    launch: unsafe extern "C" fn(*const c_void, Dim3, Dim3, *mut Raw, usize, u64) -> c_uint,
    wait: unsafe extern "C" fn(u64) -> c_uint,
    malloc: Alloc,
    free: unsafe extern "C" fn(u64) -> c_uint,
}

impl Runtime {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let library = Library::open(path)?;
        // SAFETY: the signatures are those of cuda_runtime_api.h.
        let runtime = unsafe {
            Self {
                launch: library.get(c"cudaLaunchKernel")?,
                wait: library.get(c"cudaStreamSynchronize")?,
                malloc: library.get(c"cudaMalloc")?,
                free: library.get(c"cudaFree")?,
            }
        };
        // As programs do to get the driver loaded.
        // SAFETY: freeing nothing is allowed.
        check("cudaFree", unsafe { (runtime.free)(0) })?;
        Ok(runtime)
    }

    pub(crate) fn launch(&self) -> Result<()> {
        let (grid, block) = (Dim3([1, 1, 1]), Dim3([32, 1, 1]));
        // SAFETY: any function will do, and the default stream.
        check("cudaLaunchKernel", unsafe { (self.launch)(null(), grid, block, null_mut(), 0, 0) })
    }

    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the default stream.
        check("cudaStreamSynchronize", unsafe { (self.wait)(0) })
    }

    pub(crate) fn alloc(&self) -> Result<()> {
        let mut address = 0;
        // SAFETY: the address is writable.
        unsafe {
            check("cudaMalloc", (self.malloc)(&raw mut address, 4096))?;
            check("cudaFree", (self.free)(address))
        }
    }
}
