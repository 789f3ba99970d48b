//! Arguments of the probed function, found as the attach cookie says.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::{bpf_get_attach_cookie, bpf_probe_read_user};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use wire::cookie::{Argument, Class, Loc, Packed};
use wire::counter::Counter;

use crate::emit::Stop;

/// The entry of a probed function: its registers and the cookie that says what they mean.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    regs: *mut pt_regs,
    pub(crate) cookie: Packed,
}

impl Entry {
    #[inline(always)]
    pub(crate) fn new(context: &ProbeContext) -> Self {
        Self { regs: context.regs, cookie: cookie(context) }
    }

    #[inline(always)]
    pub(crate) fn class(self) -> Result<Class, Stop> {
        self.cookie.class().ok_or(Stop::Count(Counter::BadCookie))
    }

    /// Where the return address is.
    #[inline(always)]
    pub(crate) fn stack(self) -> u64 {
        stack_pointer(&ProbeContext::new(self.regs.cast()))
    }

    /// Where the probe is.
    #[inline(always)]
    pub(crate) fn place(self) -> u64 {
        instruction_pointer(&ProbeContext::new(self.regs.cast()))
    }

    /// An argument in its register.
    #[inline(always)]
    pub(crate) fn register(self, index: u8) -> u64 {
        register(&ProbeContext::new(self.regs.cast()), index)
    }

    /// The argument, 0 if the function has none.
    #[inline(always)]
    pub(crate) fn argument(self, argument: Argument) -> Result<u64, Stop> {
        match fetch(self.regs, self.cookie, argument) {
            UNREADABLE => Err(Stop::Count(Counter::ArgumentUnreadable)),
            value => Ok(value),
        }
    }
}

/// The cookie given at attach.
#[inline(always)]
pub(crate) fn cookie(context: &impl EbpfContext) -> Packed {
    // SAFETY: always valid in uprobe programs.
    Packed(unsafe { bpf_get_attach_cookie(context.as_ptr()) })
}

/// No handle, address or size is this large.
const UNREADABLE: u64 = u64::MAX;

/// A subprogram of its own, for the sake of the stack; therefore a number instead of a `Result`.
#[inline(never)]
fn fetch(regs: *mut pt_regs, cookie: Packed, argument: Argument) -> u64 {
    let context = &ProbeContext::new(regs.cast());
    match cookie.location(argument) {
        Loc::None => 0,
        Loc::Arg(index) => register(context, index),
        Loc::Stack(slot) => read(stack_pointer(context) + 8 * u64::from(slot)).unwrap_or(UNREADABLE),
        Loc::Deref(offset) => read(register(context, 0) + u64::from(offset)).unwrap_or(UNREADABLE),
    }
}

/// A 64-bit word of user memory.
#[inline(always)]
pub(crate) fn read(address: u64) -> Option<u64> {
    // SAFETY: a checked read of user memory.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}

/// Offsets into the context must be constant, so each register is named.
#[inline(always)]
fn register(context: &ProbeContext, index: u8) -> u64 {
    let value = match index {
        0 => context.arg(0),
        1 => context.arg(1),
        2 => context.arg(2),
        3 => context.arg(3),
        4 => context.arg(4),
        _ => context.arg(5),
    };
    value.unwrap_or(0)
}

#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn stack_pointer(context: &ProbeContext) -> u64 {
    // SAFETY: the context is the registers.
    unsafe { (*context.regs).rsp }
}

#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn stack_pointer(context: &ProbeContext) -> u64 {
    // SAFETY: the context is the registers.
    unsafe { (*context.regs).sp }
}

/// How much higher the stack is when a function has returned than when it was entered.
#[cfg(bpf_target_arch = "x86_64")]
pub(crate) const RETURN_POPS: u64 = 8;
#[cfg(bpf_target_arch = "aarch64")]
pub(crate) const RETURN_POPS: u64 = 0;

/// Where the stack is when the function has returned.
#[inline(always)]
pub(crate) fn return_stack_pointer(context: &RetProbeContext) -> u64 {
    stack_pointer(&ProbeContext::new(context.regs.cast()))
}

#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
fn instruction_pointer(context: &ProbeContext) -> u64 {
    // SAFETY: the context is the registers.
    unsafe { (*context.regs).rip }
}

#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
fn instruction_pointer(context: &ProbeContext) -> u64 {
    // SAFETY: the context is the registers.
    unsafe { (*context.regs).pc }
}
