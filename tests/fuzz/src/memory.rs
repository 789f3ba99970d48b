//! Counts the memory of this thread.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// Passes everything on to the system's allocator.
#[derive(Debug)]
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Bytes this thread holds; may be less than none where it frees what another took.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    // Not counted where the thread is already ending.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        PEAK.with(|peak| peak.set(peak.get().max(held.get())));
    });
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

// SAFETY: every call goes to the system's allocator as it came; counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(signed(layout.size()));
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add(-signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Bytes held now, from where the peak counts again.
pub fn begin() -> usize {
    let held = HELD.get();
    PEAK.set(held);
    usize::try_from(held).unwrap_or(0)
}

/// Most bytes held since [`begin`].
pub fn peak() -> usize {
    usize::try_from(PEAK.get()).unwrap_or(0)
}
