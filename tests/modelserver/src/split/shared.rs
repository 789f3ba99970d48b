//! Two rings of bytes in memory that front and engine share: no system call while the other side is awake.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::thread::futex;

/// Bytes of one ring; a power of two, as positions count on beyond it.
const CAPACITY: usize = 1 << 20;
/// How long a wait may last before the waiter looks whether the other side still lives.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

#[repr(C)]
struct Ring {
    /// Bytes ever written; the reader waits on it.
    written: AtomicU32,
    /// Bytes ever read.
    read: AtomicU32,
    /// The reader waits, or is about to.
    waits: AtomicU32,
    /// No more will be written.
    closed: AtomicU32,
    bytes: [u8; CAPACITY],
}

/// The two rings, mapped for the life of the process.
#[derive(Clone, Copy)]
struct Rings(NonNull<[Ring; 2]>);

// SAFETY: the mapping lives as long as the process, positions are atomic, and each ring has one reader and one writer.
unsafe impl Send for Rings {}

impl Rings {
    fn map(memory: &OwnedFd) -> io::Result<Self> {
        let (length, both) = (size_of::<[Ring; 2]>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { mmap(std::ptr::null_mut(), length, both, MapFlags::SHARED, memory, 0)? };
        let rings = NonNull::new(base.cast());
        rings.map(Self).ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
    }

    fn ring(&self, index: usize) -> *const Ring {
        // SAFETY: inside the mapping; a pointer to a field of it, made without a reference to the bytes.
        unsafe { (&raw const (*self.0.as_ptr())[index % 2]).cast() }
    }

    /// The positions of a ring.
    fn positions(&self, index: usize) -> [&AtomicU32; 4] {
        let ring = self.ring(index);
        // SAFETY: the fields are atomic, and the mapping lives as long as the process.
        unsafe { [&(*ring).written, &(*ring).read, &(*ring).waits, &(*ring).closed] }
    }
}

/// One side of the shared memory.
pub(super) struct Shared {
    rings: Rings,
    /// The ring that this side writes; the other one it reads.
    own: usize,
    /// Readable when something came: for a poll loop.
    bell: Option<Arc<OwnedFd>>,
}

/// Memory for both sides, zeroed: two empty rings.
pub(super) fn memory() -> io::Result<OwnedFd> {
    let memory = memfd_create("modelserver", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, size_of::<[Ring; 2]>() as u64)?;
    Ok(memory)
}

impl Shared {
    /// The front's side; a thread of its own waits for it, as it cannot poll memory.
    pub(super) fn front(memory: &OwnedFd) -> io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let shared = Self { rings: Rings::map(memory)?, own: 0, bell: Some(Arc::clone(&bell)) };
        let rings = shared.rings;
        thread::spawn(move || ring_bell(rings, &bell));
        Ok(shared)
    }

    /// The engine's side; ends when the standard input does.
    pub(super) fn engine(memory: &OwnedFd) -> io::Result<Self> {
        let rings = Rings::map(memory)?;
        thread::spawn(move || close_with_input(rings));
        Ok(Self { rings, own: 1, bell: None })
    }

    /// What a poll loop waits on.
    pub(super) fn bell(&self) -> Option<&OwnedFd> {
        self.bell.as_deref()
    }

    /// Writes what there is room for; says how much.
    pub(super) fn write(&self, bytes: &[u8]) -> usize {
        let [written, read, waits, _] = self.rings.positions(self.own);
        let at = written.load(Ordering::Relaxed);
        let room = CAPACITY - at.wrapping_sub(read.load(Ordering::Acquire)) as usize;
        let count = room.min(bytes.len());
        let target = self.rings.ring(self.own);
        for (index, byte) in (at..).zip(&bytes[..count]) {
            // SAFETY: inside the ring, where the reader does not look before `written` says so.
            unsafe {
                (&raw const (*target).bytes)
                    .cast_mut()
                    .cast::<u8>()
                    .add(index as usize % CAPACITY)
                    .write(*byte);
            };
        }
        written.store(at.wrapping_add(u32::try_from(count).unwrap_or(0)), Ordering::SeqCst);
        if count > 0 && waits.swap(0, Ordering::SeqCst) != 0 {
            // Nobody to wake is no error.
            let _ = futex::wake(written, futex::Flags::empty(), 1);
        }
        count
    }

    /// Appends all that is there; false when no more will come.
    pub(super) fn read(&self, into: &mut Vec<u8>) -> bool {
        if let Some(bell) = &self.bell {
            // Empty when it was not rung.
            let _ = rustix::io::read(&**bell, &mut [0; 8]);
        }
        let [written, read, _, closed] = self.rings.positions(1 - self.own);
        let open = closed.load(Ordering::SeqCst) == 0;
        let (from, to) = (read.load(Ordering::Relaxed), written.load(Ordering::Acquire));
        let source = self.rings.ring(1 - self.own);
        for index in 0..to.wrapping_sub(from) {
            let at = from.wrapping_add(index) as usize % CAPACITY;
            // SAFETY: inside the ring, where the writer has been and will not be before `read` says so.
            into.push(unsafe { (&raw const (*source).bytes).cast::<u8>().add(at).read() });
        }
        read.store(to, Ordering::Release);
        open || to != from
    }

    /// Sleeps until something is there, or for a while.
    pub(super) fn wait(&self) {
        let [_, read, ..] = self.rings.positions(1 - self.own);
        wait_beyond(self.rings, 1 - self.own, read.load(Ordering::Relaxed));
    }
}

/// Sleeps until more than `seen` was written or the ring is closed, or for a while.
fn wait_beyond(rings: Rings, index: usize, seen: u32) {
    let [written, _, waits, closed] = rings.positions(index);
    waits.store(1, Ordering::SeqCst);
    if written.load(Ordering::SeqCst) == seen && closed.load(Ordering::SeqCst) == 0 {
        // Woken, or changed meanwhile, or long enough: the caller looks.
        let _ = futex::wait(written, futex::Flags::empty(), seen, Some(&PATIENCE));
    }
}

fn ring_bell(rings: Rings, bell: &OwnedFd) {
    let mut seen = 0;
    loop {
        wait_beyond(rings, 1, seen);
        seen = rings.positions(1)[0].load(Ordering::SeqCst);
        // Full means that it rings already.
        let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
    }
}

fn close_with_input(rings: Rings) {
    drop(io::stdin().read_to_end(&mut Vec::new()));
    let [written, _, _, closed] = rings.positions(0);
    closed.store(1, Ordering::SeqCst);
    let _ = futex::wake(written, futex::Flags::empty(), 1);
}
