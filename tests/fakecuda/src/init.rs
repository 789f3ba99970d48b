//! Initialisation, and what happens when the process forks or exits.

use std::io::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::abi::{Out, give};
use crate::config::CONFIG;
use crate::error::Error;
use crate::functions::Func;
use crate::handles::lock;
use crate::script::SCRIPT;
use crate::{history, memory, shared, truth};

/// Version the library says it is: CUDA 13.0.
pub(crate) const DRIVER_VERSION: i32 = 13_000;

const NOT_YET: u8 = 0;
const READY: u8 = 1;
/// A child of fork: the real driver is unusable there too.
const FORKED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NOT_YET);

export! {
    /// Opens the simulated devices.
    fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        init().map_err(|sentence| {
            // The caller only gets a number; a person needs to know which variable is wrong.
            let _ = writeln!(std::io::stderr(), "fakecuda: {sentence}");
            Error::UNKNOWN
        })
    }

    /// The driver's version.
    fn cuDriverGetVersion(version: Out<'_, i32>) {
        give(version, DRIVER_VERSION)
    }
}

/// May this function be called now?
#[inline]
pub(crate) fn check(func: Func) -> Result<(), Error> {
    match STATE.load(Ordering::Acquire) {
        READY => Ok(()),
        NOT_YET if works_before_init(func) => Ok(()),
        _ => Err(Error::NOT_INITIALIZED),
    }
}

/// True in the process that called `cuInit`, false in its forked children.
pub(crate) fn is_ready() -> bool {
    STATE.load(Ordering::Acquire) == READY
}

fn works_before_init(func: Func) -> bool {
    matches!(
        func,
        Func::cuInit
            | Func::cuDriverGetVersion
            | Func::cuGetErrorName
            | Func::cuGetErrorString
            | Func::cuGetProcAddress
            | Func::cuGetProcAddress_v2
    )
}

fn init() -> Result<(), String> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one: MutexGuard<'_, ()> = lock(&ONE);
    if is_ready() {
        return Ok(());
    }
    let config = CONFIG.as_ref().map_err(Clone::clone)?;
    SCRIPT.as_ref().map_err(Clone::clone).map(drop)?;
    shared::open(config)?;
    memory::purge_dead();
    // SAFETY: both functions are `extern "C"` and stay mapped: libc runs exit handlers of a library before it is
    // unmapped, and the child handler does nothing but store a byte and close a descriptor.
    let refused =
        unsafe { libc::atexit(at_exit) != 0 || libc::pthread_atfork(None, None, Some(in_child)) != 0 };
    if refused {
        return Err("no room for an exit handler".to_owned());
    }
    STATE.store(READY, Ordering::Release);
    Ok(())
}

extern "C" fn at_exit() {
    if is_ready() {
        memory::release_all();
        truth::write_at_exit();
        history::write_at_exit();
    }
}

unsafe extern "C" fn in_child() {
    STATE.store(FORKED, Ordering::Release);
    shared::close_in_child();
}
