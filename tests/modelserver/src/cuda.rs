//! The CUDA driver by `dlopen` and `dlsym`: the few calls that an engine makes, with checked results.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};

use thiserror::Error;

/// Why the driver cannot be used.
#[derive(Debug, Error)]
pub(crate) enum CudaError {
    /// `dlopen` failed.
    #[error("cannot load the driver library: {0}")]
    Open(String),
    /// `dlsym` found nothing.
    #[error("the driver library does not export {0}")]
    Missing(&'static str),
    /// A call returned an error.
    #[error("{function} failed with CUresult {code}")]
    Call {
        /// Exported name.
        function: &'static str,
        /// What it returned.
        code: c_uint,
    },
}

type Raw = *mut c_void;

/// `CUlaunchConfig` of cuda.h.
#[repr(C)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: Raw,
    attributes: *const c_void,
    attribute_count: c_uint,
}

macro_rules! driver {
    ($($field:ident: $symbol:ident($($arg:ty),*);)*) => {
        /// Addresses of the driver's functions.
        struct Api { $($field: unsafe extern "C" fn($($arg),*) -> c_uint,)* }

        impl Api {
            /// # Safety
            /// `library` is a handle from `dlopen`, never closed, of a library with the driver's ABI.
            unsafe fn load(library: Raw) -> Result<Self, CudaError> {
                Ok(Self {$(
                    // SAFETY: the symbol, when there, is the function of that name, whose C signature this is.
                    $field: unsafe {
                        std::mem::transmute::<Raw, unsafe extern "C" fn($($arg),*) -> c_uint>(
                            symbol(library, concat!(stringify!($symbol), "\0"))?,
                        )
                    },
                )*})
            }
        }

        /// Exported names, by the fields of [`Api`].
        #[expect(non_upper_case_globals, reason = "named as the fields")]
        mod name {
            $(pub(super) const $field: &str = stringify!($symbol);)*
        }
    };
}

driver! {
    init: cuInit(c_uint);
    device_get: cuDeviceGet(*mut c_int, c_int);
    primary_retain: cuDevicePrimaryCtxRetain(*mut Raw, c_int);
    set_current: cuCtxSetCurrent(Raw);
    stream_create: cuStreamCreate(*mut Raw, c_uint);
    stream_synchronize: cuStreamSynchronize(Raw);
    stream_wait_event: cuStreamWaitEvent(Raw, Raw, c_uint);
    event_create: cuEventCreate(*mut Raw, c_uint);
    event_record: cuEventRecord(Raw, Raw);
    event_synchronize: cuEventSynchronize(Raw);
    module_load: cuModuleLoadData(*mut Raw, *const c_void);
    module_unload: cuModuleUnload(Raw);
    module_function: cuModuleGetFunction(*mut Raw, Raw, *const c_char);
    launch: cuLaunchKernel(Raw, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Raw, *mut Raw, *mut Raw);
    launch_ex: cuLaunchKernelEx(*const LaunchConfig, Raw, *mut Raw, *mut Raw);
    begin_capture: cuStreamBeginCapture_v2(Raw, c_uint);
    end_capture: cuStreamEndCapture(Raw, *mut Raw);
    graph_instantiate: cuGraphInstantiateWithFlags(*mut Raw, Raw, u64);
    graph_destroy: cuGraphDestroy(Raw);
    graph_launch: cuGraphLaunch(Raw, Raw);
    mem_alloc: cuMemAlloc_v2(*mut u64, usize);
    mem_free: cuMemFree_v2(u64);
    host_alloc: cuMemHostAlloc(*mut Raw, usize, c_uint);
    copy_to_device: cuMemcpyHtoDAsync_v2(u64, *const c_void, usize, Raw);
    copy_to_host: cuMemcpyDtoHAsync_v2(Raw, u64, usize, Raw);
}

/// # Safety
/// `library` is a handle from `dlopen`.
unsafe fn symbol(library: Raw, name: &'static str) -> Result<Raw, CudaError> {
    let missing = CudaError::Missing(name.trim_end_matches('\0'));
    let Ok(text) = CStr::from_bytes_with_nul(name.as_bytes()) else { return Err(missing) };
    // SAFETY: the handle is valid by contract and the name ends with a zero byte.
    let address = unsafe { libc::dlsym(library, text.as_ptr()) };
    if address.is_null() { Err(missing) } else { Ok(address) }
}

fn open(path: &Path) -> Result<Raw, CudaError> {
    let text =
        CString::new(path.as_os_str().as_bytes()).map_err(|error| CudaError::Open(error.to_string()))?;
    // SAFETY: the path ends with a zero byte; the library's constructors are those that the user asked for.
    let library = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: after a failed `dlopen` on this thread `dlerror` gives a text, valid until the next dl call.
    let reason = unsafe { CStr::from_ptr(libc::dlerror()) };
    Err(CudaError::Open(reason.to_string_lossy().into_owned()))
}

fn check(function: &'static str, code: c_uint) -> Result<(), CudaError> {
    if code == 0 { Ok(()) } else { Err(CudaError::Call { function, code }) }
}

/// Makes a driver call and checks its result.
macro_rules! call {
    ($cuda:expr, $field:ident, $($arg:expr),*) => {{
        // SAFETY: pointers given to the driver are to live values of the declared types, and handles come from it.
        let code = unsafe { ($cuda.api.$field)($($arg),*) };
        check(name::$field, code)
    }};
}

/// A stream of the current context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream(Raw);

impl Stream {
    /// The calling thread's default stream (`CU_STREAM_PER_THREAD`).
    pub(crate) const PER_THREAD: Self = Self(2 as Raw);
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event(Raw);

/// A graph that can be launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Graph(Raw);

/// Device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceMem(u64);

/// Page-locked host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostMem(Raw);

/// The driver with one device's primary context current and one kernel loaded. Belongs to one thread.
pub(crate) struct Cuda {
    api: Api,
    kernel: Raw,
}

/// An empty kernel without parameters.
const MODULE: &CStr = c".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry step() { ret; }\n";

impl Cuda {
    /// Loads the library, takes the device's primary context and loads the kernel.
    pub(crate) fn open(path: &Path, device: i32) -> Result<Self, CudaError> {
        // SAFETY: the handle is from `dlopen` and is never closed.
        let api = unsafe { Api::load(open(path)?)? };
        let mut cuda = Self { api, kernel: null_mut() };
        let (mut ordinal, mut context, mut module) = (0, null_mut(), null_mut());
        call!(cuda, init, 0)?;
        call!(cuda, device_get, &raw mut ordinal, device)?;
        call!(cuda, primary_retain, &raw mut context, ordinal)?;
        call!(cuda, set_current, context)?;
        call!(cuda, module_load, &raw mut module, MODULE.as_ptr().cast())?;
        let mut kernel = null_mut();
        call!(cuda, module_function, &raw mut kernel, module, c"step".as_ptr())?;
        cuda.kernel = kernel;
        Ok(cuda)
    }

    /// Loads one more module, as for a shape that was not seen before, and unloads it.
    pub(crate) fn module(&self) -> Result<(), CudaError> {
        let mut module = null_mut();
        call!(self, module_load, &raw mut module, MODULE.as_ptr().cast())?;
        call!(self, module_unload, module)
    }

    /// A stream that does not wait for the default stream.
    pub(crate) fn stream(&self) -> Result<Stream, CudaError> {
        let mut stream = null_mut();
        call!(self, stream_create, &raw mut stream, 1)?;
        Ok(Stream(stream))
    }

    /// Waits until the stream is empty.
    pub(crate) fn synchronize(&self, stream: Stream) -> Result<(), CudaError> {
        call!(self, stream_synchronize, stream.0)
    }

    /// An event whose waiters sleep, without timing.
    pub(crate) fn event(&self) -> Result<Event, CudaError> {
        let mut event = null_mut();
        call!(self, event_create, &raw mut event, 1 | 2)?;
        Ok(Event(event))
    }

    /// Records the event behind the stream's work.
    pub(crate) fn record(&self, event: Event, stream: Stream) -> Result<(), CudaError> {
        call!(self, event_record, event.0, stream.0)
    }

    /// Waits on the host for the event.
    pub(crate) fn wait(&self, event: Event) -> Result<(), CudaError> {
        call!(self, event_synchronize, event.0)
    }

    /// A thread of its own that waits for events.
    pub(crate) fn waiter(&self) -> Waiter {
        Waiter::start(self.api.event_synchronize)
    }

    /// Makes the stream wait for the event.
    pub(crate) fn stream_wait(&self, stream: Stream, event: Event) -> Result<(), CudaError> {
        call!(self, stream_wait_event, stream.0, event.0, 0)
    }

    /// Launches the kernel with `blocks` blocks by `cuLaunchKernel`.
    pub(crate) fn launch(&self, stream: Stream, blocks: u32) -> Result<(), CudaError> {
        call!(self, launch, self.kernel, blocks, 1, 1, 32, 1, 1, 0, stream.0, null_mut(), null_mut())
    }

    /// Launches the kernel with `blocks` blocks by `cuLaunchKernelEx`.
    pub(crate) fn launch_ex(&self, stream: Stream, blocks: u32) -> Result<(), CudaError> {
        let config = LaunchConfig {
            grid: [blocks, 1, 1],
            block: [32, 1, 1],
            shared_bytes: 0,
            stream: stream.0,
            attributes: null(),
            attribute_count: 0,
        };
        call!(self, launch_ex, &raw const config, self.kernel, null_mut(), null_mut())
    }

    /// Captures what `work` launches on the stream into a graph.
    pub(crate) fn capture(
        &self,
        stream: Stream,
        work: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<Graph, CudaError> {
        let (mut graph, mut exec) = (null_mut(), null_mut());
        // Thread-local mode, as PyTorch uses beside other threads.
        call!(self, begin_capture, stream.0, 1)?;
        work()?;
        call!(self, end_capture, stream.0, &raw mut graph)?;
        call!(self, graph_instantiate, &raw mut exec, graph, 0)?;
        call!(self, graph_destroy, graph)?;
        Ok(Graph(exec))
    }

    /// Launches the graph.
    pub(crate) fn launch_graph(&self, graph: Graph, stream: Stream) -> Result<(), CudaError> {
        call!(self, graph_launch, graph.0, stream.0)
    }

    /// Allocates device memory.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<DeviceMem, CudaError> {
        let mut pointer = 0;
        call!(self, mem_alloc, &raw mut pointer, bytes)?;
        Ok(DeviceMem(pointer))
    }

    /// Frees device memory.
    pub(crate) fn free(&self, memory: DeviceMem) -> Result<(), CudaError> {
        call!(self, mem_free, memory.0)
    }

    /// Allocates page-locked host memory for the life of the process.
    pub(crate) fn host(&self, bytes: usize) -> Result<HostMem, CudaError> {
        let mut pointer = null_mut();
        call!(self, host_alloc, &raw mut pointer, bytes, 0)?;
        Ok(HostMem(pointer))
    }

    /// Copies the first `bytes` bytes to the device. Both buffers must be that long.
    pub(crate) fn to_device(
        &self,
        to: DeviceMem,
        from: HostMem,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), CudaError> {
        call!(self, copy_to_device, to.0, from.0, bytes, stream.0)
    }

    /// Copies the first `bytes` bytes to the host. Both buffers must be that long.
    pub(crate) fn to_host(
        &self,
        to: HostMem,
        from: DeviceMem,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), CudaError> {
        call!(self, copy_to_host, to.0, from.0, bytes, stream.0)
    }
}

mod waiter;

pub(crate) use waiter::Waiter;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_config_has_the_drivers_layout() {
        assert_eq!((size_of::<LaunchConfig>(), std::mem::offset_of!(LaunchConfig, stream)), (56, 32));
    }

    #[test]
    fn a_library_that_is_no_driver_is_named() {
        let error = Cuda::open(Path::new("/nonexistent/libcuda.so.1"), 0).err().unwrap().to_string();
        assert!(error.contains("/nonexistent/libcuda.so.1"), "{error}");
        let error = Cuda::open(Path::new("libc.so.6"), 0).err().unwrap().to_string();
        assert_eq!(error, "the driver library does not export cuInit");
    }
}
