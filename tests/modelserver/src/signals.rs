//! SIGTERM and SIGINT as a descriptor, so that the poll loop sees them like everything else.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

/// Blocks SIGTERM and SIGINT in this thread and those that it starts.
fn block() -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set before anything reads it; both pointers are to that live set.
    let (result, set) = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        (libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()), set.assume_init())
    };
    if result == 0 { Ok(set) } else { Err(io::Error::last_os_error()) }
}

/// Leaves the signals to the front: the engine ends when the front does.
pub(crate) fn ignore() -> io::Result<()> {
    block().map(drop)
}

/// A non-blocking descriptor that is readable when one of the signals has come.
pub(crate) fn descriptor() -> io::Result<OwnedFd> {
    let set = block()?;
    // SAFETY: the set is initialised and live; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, open and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
