//! The shared-memory file, mapped.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use rustix::fs::{FlockOperation, flock};
use rustix::mm::{MapFlags, ProtFlags};

use crate::config::Config;
use crate::handles::lock;
use crate::layout::MAGIC;
pub(crate) use crate::layout::{Block, Device, Engine, Heap, Layout, MAX_BLOCKS};

/// The mapped file.
pub(crate) struct Shared {
    /// Its contents.
    pub layout: &'static Layout,
    file: File,
    threads: Mutex<()>,
}

static SHARED: OnceLock<Shared> = OnceLock::new();
/// Descriptor of the file, for the child side of a fork; -1 when closed.
static FD: AtomicI32 = AtomicI32::new(-1);

/// The mapped file; only after [`open`].
pub(crate) fn shared() -> &'static Shared {
    SHARED.get().expect("cuInit has opened the file")
}

/// Opens and maps the file.
pub(crate) fn open(config: &Config) -> Result<(), String> {
    let shared = Shared::map(config).map_err(|e| format!("{}: {e}", config.shm.display()))?;
    FD.store(shared.file.as_raw_fd(), Ordering::Release);
    // A second cuInit finds it open already.
    let _ = SHARED.set(shared);
    Ok(())
}

/// A child of fork must not share the descriptor: the file lock belongs to it.
pub(crate) fn close_in_child() {
    let fd = FD.swap(-1, Ordering::AcqRel);
    if fd >= 0 {
        // SAFETY: the descriptor is ours; the child never uses the library's state again (see init.rs).
        unsafe { libc::close(fd) };
    }
}

impl Shared {
    fn map(config: &Config) -> Result<Self, String> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&config.shm)
            .map_err(|e| format!("cannot open: {e}"))?;
        let want = size_of::<Layout>() as u64;
        let have = file.metadata().map_err(|e| e.to_string())?.len();
        if have != 0 && have != want {
            return Err(format!("{have} bytes long, want {want}: another version's file; remove it"));
        }
        file.set_len(want).map_err(|e| format!("cannot set its size: {e}"))?;
        let layout = map_layout(&file).map_err(|e| format!("cannot map: {e}"))?;
        layout.claim(config)?;
        Ok(Self { layout, file, threads: Mutex::new(()) })
    }

    /// Keeps other threads and processes away from the heaps. The kernel releases it when the process dies.
    pub(crate) fn lock_heaps(&'static self) -> HeapLock {
        let threads = lock(&self.threads);
        while flock(self.file.as_fd(), FlockOperation::LockExclusive) == Err(rustix::io::Errno::INTR) {}
        HeapLock { shared: self, _threads: threads }
    }
}

fn map_layout(file: &File) -> rustix::io::Result<&'static Layout> {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), size_of::<Layout>(), prot, flags, file, 0)? };
    // SAFETY: the mapping is page aligned, as long as the type, never unmapped, and the type is made of atomics, for
    // which every bit pattern is valid and which other processes may change.
    Ok(unsafe { &*at.cast::<Layout>() })
}

impl Layout {
    /// Marks an empty file as ours; checks one that is not empty. The first process decides the memory size.
    fn claim(&self, config: &Config) -> Result<(), String> {
        let magic = self.magic.compare_exchange(0, MAGIC, Ordering::AcqRel, Ordering::Acquire);
        if magic.is_err_and(|found| found != MAGIC) {
            return Err("not a file of this version; remove it".to_owned());
        }
        let _ = self.mem_bytes.compare_exchange(0, config.mem_bytes, Ordering::AcqRel, Ordering::Acquire);
        Ok(())
    }
}

/// Held while heaps are read or changed.
pub(crate) struct HeapLock {
    shared: &'static Shared,
    _threads: MutexGuard<'static, ()>,
}

impl Drop for HeapLock {
    fn drop(&mut self) {
        let _ = flock(self.shared.file.as_fd(), FlockOperation::Unlock);
    }
}
