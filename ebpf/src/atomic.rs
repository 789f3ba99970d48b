//! Words that several CPUs change at once.
//!
//! `core`'s atomics stop at load and store for this target, although the machine has more (instruction set v3).

use core::arch::asm;
use core::cell::UnsafeCell;
use core::ptr;

/// A `u64` in map memory.
#[repr(transparent)]
pub(crate) struct Word(UnsafeCell<u64>);

// SAFETY: every access is one aligned instruction of the machine.
unsafe impl Sync for Word {}

impl Word {
    pub(crate) const fn new(value: u64) -> Self {
        Self(UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        // SAFETY: an aligned word that lives as long as `self`.
        unsafe { ptr::read_volatile(self.0.get()) }
    }

    #[inline(always)]
    pub(crate) fn set(&self, value: u64) {
        // SAFETY: as above.
        unsafe { ptr::write_volatile(self.0.get(), value) }
    }

    #[inline(always)]
    pub(crate) fn add(&self, value: u64) {
        // SAFETY: as above.
        unsafe {
            asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) self.0.get(), in(reg) value, options(nostack));
        }
    }

    /// Adds, and returns what was there before.
    #[inline(always)]
    pub(crate) fn fetch_add(&self, value: u64) -> u64 {
        let mut value = value;
        // SAFETY: as above.
        unsafe {
            asm!("{1} = atomic_fetch_add((u64 *)({0} + 0), {1})", in(reg) self.0.get(), inout(reg) value, options(nostack));
        }
        value
    }

    /// Sets bits.
    #[inline(always)]
    pub(crate) fn or(&self, bits: u64) {
        // SAFETY: as above.
        unsafe {
            asm!("lock *(u64 *)({0} + 0) |= {1}", in(reg) self.0.get(), in(reg) bits, options(nostack));
        }
    }

    /// Stores, and orders what is before against what is after.
    #[inline(always)]
    pub(crate) fn publish(&self, value: u64) {
        // SAFETY: as above.
        unsafe {
            asm!("{1} = xchg_64({0} + 0, {1})", in(reg) self.0.get(), inout(reg) value => _, options(nostack));
        }
    }

    /// Replaces `current` by `new`; false if something else was there.
    #[inline(always)]
    pub(crate) fn replace(&self, current: u64, new: u64) -> bool {
        let mut found = current;
        // SAFETY: as above.
        unsafe {
            asm!("r0 = cmpxchg_64({0} + 0, r0, {1})", in(reg) self.0.get(), in(reg) new, inout("r0") found, options(nostack));
        }
        found == current
    }
}
