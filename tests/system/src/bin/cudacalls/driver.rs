//! The driver library, loaded as programs load it, and called by name.

use std::ffi::{CString, c_void};

use anyhow::{Result, ensure};

/// Arguments of a call: numbers and addresses only. More than a function has do it no harm.
pub(crate) type Arguments = [u64; 11];

/// A function of the driver.
#[derive(Clone, Copy)]
pub(crate) struct Function(Any);

/// What every function of the driver can be called as.
type Any = extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u32;

impl Function {
    /// Its result code.
    #[expect(clippy::many_single_char_names, reason = "arguments without a meaning here")]
    pub(crate) fn result(self, arguments: &[u64]) -> u32 {
        let mut all: Arguments = [0; 11];
        all[..arguments.len()].copy_from_slice(arguments);
        let [a, b, c, d, e, f, g, h, i, j, k] = all;
        (self.0)(a, b, c, d, e, f, g, h, i, j, k)
    }

    /// It must work.
    #[track_caller]
    pub(crate) fn call(self, arguments: &[u64]) {
        assert_eq!(self.result(arguments), 0);
    }
}

/// The library, with a context and a kernel.
pub(crate) struct Driver {
    library: *mut c_void,
    context: u64,
    /// A kernel.
    pub(crate) kernel: u64,
}

// SAFETY: the handle is only ever given to `dlsym`, which any thread may call.
unsafe impl Sync for Driver {}

impl Driver {
    /// Loads it and makes a context current.
    pub(crate) fn load(path: &str) -> Result<Self> {
        let path = CString::new(path)?;
        // SAFETY: a C string; the library's initialisers do nothing.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        ensure!(!library.is_null(), "{path:?} cannot be loaded");
        let mut driver = Self { library, context: 0, kernel: 0 };
        driver.function("cuInit").call(&[0]);
        driver.context = driver.made("cuDevicePrimaryCtxRetain", &[0]);
        driver.enter();
        let module = driver.made("cuModuleLoadData", &[c"image".as_ptr().addr() as u64]);
        driver.kernel = driver.made("cuModuleGetFunction", &[module, c"kernel".as_ptr().addr() as u64]);
        Ok(driver)
    }

    /// Makes the context current in this thread.
    pub(crate) fn enter(&self) {
        self.function("cuCtxSetCurrent").call(&[self.context]);
    }

    /// The function of that name.
    #[track_caller]
    pub(crate) fn function(&self, name: &str) -> Function {
        let symbol = CString::new(name).expect("names have no zero byte");
        // SAFETY: an open library and a C string.
        let at = unsafe { libc::dlsym(self.library, symbol.as_ptr()) };
        assert!(!at.is_null(), "there is no {name}");
        // SAFETY: every function that is asked for takes whole numbers and addresses, at most eleven, and returns a
        // result code; in the calling convention of C a caller may pass more than the callee takes.
        Function(unsafe { std::mem::transmute::<*mut c_void, Any>(at) })
    }

    /// Calls a function by name.
    #[track_caller]
    pub(crate) fn call(&self, name: &str, arguments: &[u64]) {
        self.function(name).call(arguments);
    }

    /// What a function returns through the address that is its first argument.
    #[track_caller]
    pub(crate) fn made(&self, name: &str, rest: &[u64]) -> u64 {
        // A UUID takes two words.
        let mut made = [0_u64; 2];
        let arguments: Vec<u64> = [address(made.as_mut_ptr())].iter().chain(rest).copied().collect();
        self.function(name).call(&arguments);
        made[0]
    }

    /// A stream: 0 in order with the legacy stream, 1 independent.
    pub(crate) fn stream(&self, flags: u64) -> u64 {
        self.made("cuStreamCreate", &[flags])
    }

    /// An event.
    pub(crate) fn event(&self) -> u64 {
        self.made("cuEventCreate", &[0])
    }

    /// Launches the kernel for that many units of time.
    pub(crate) fn launch(&self, units: u64, stream: u64) {
        self.call("cuLaunchKernel", &[self.kernel, units, 1, 1, 1, 1, 1, 0, stream, 0, 0]);
    }
}

/// An address as an argument.
pub(crate) fn address<T>(at: *const T) -> u64 {
    at.expose_provenance() as u64
}
