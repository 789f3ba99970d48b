//! The system call the current task is in: number and arguments, from the registers it entered the kernel with.
//! The only architecture-dependent part of the socket programs.

use core::ptr;

use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_task_pt_regs};

use arch::{ARGUMENTS, FIRST, NUMBER};

/// Registers saved at kernel entry (`struct pt_regs`), as words.
#[derive(Clone, Copy)]
pub(crate) struct Registers(*const u64);

impl Registers {
    #[inline(always)]
    pub(crate) fn current() -> Self {
        // SAFETY: both helpers are always valid in the programs that call this.
        Self(unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) as *const u64 })
    }

    /// Number of the system call, or `None` when the registers are not those of a native system call in progress:
    /// a 32-bit task, a kernel-side worker, or deferred work on the way back to user space.
    #[inline(always)]
    pub(crate) fn syscall(self) -> Option<u16> {
        if !arch::in_native_syscall(self) {
            return None;
        }
        u16::try_from(self.word::<NUMBER>() as u32).ok()
    }

    /// The same at the end of a system call, when its result has taken a register's place. `None` for 32-bit tasks.
    #[inline(always)]
    pub(crate) fn exiting(self) -> Option<u16> {
        if !arch::is_native(self) {
            return None;
        }
        u16::try_from(self.word::<NUMBER>() as u32).ok()
    }

    /// The return from a signal ends like a system call, but leaves no number.
    #[inline(always)]
    pub(crate) fn returns_from_signal(self) -> bool {
        self.word::<NUMBER>() as u32 == u32::MAX
    }

    /// First argument; at the end of a call too.
    #[inline(always)]
    pub(crate) fn first(self) -> u64 {
        self.word::<FIRST>()
    }

    /// Fourth argument.
    #[inline(always)]
    pub(crate) fn fourth(self) -> u64 {
        self.word::<{ ARGUMENTS[3] }>()
    }

    /// Second argument.
    #[inline(always)]
    pub(crate) fn second(self) -> u64 {
        self.word::<{ ARGUMENTS[1] }>()
    }

    /// Third argument.
    #[inline(always)]
    pub(crate) fn third(self) -> u64 {
        self.word::<{ ARGUMENTS[2] }>()
    }

    #[inline(always)]
    fn word<const INDEX: usize>(self) -> u64 {
        // SAFETY: the verifier knows the pointer's type and checks the offset. Volatile, because it wants each
        // access to be of exactly one field.
        unsafe { ptr::read_volatile(self.0.add(INDEX)) }
    }
}

#[cfg(bpf_target_arch = "x86_64")]
mod arch {
    use core::ptr;

    use super::Registers;

    /// `orig_ax`.
    pub(super) const NUMBER: usize = 15;
    /// `di`, `si`, `dx`, `r10`.
    pub(super) const ARGUMENTS: [usize; 4] = [14, 13, 12, 7];
    /// `di` keeps its value.
    pub(super) const FIRST: usize = 14;
    const AX: usize = 10;
    const IP: usize = 16;
    const CS: usize = 17;
    /// Code segment of 64-bit user space.
    const USER_CS: u16 = 0x33;
    const ENOSYS: u64 = 38;

    /// `ax` holds -ENOSYS from entry until the call's result replaces it; workers have no instruction pointer.
    #[inline(always)]
    pub(super) fn in_native_syscall(registers: Registers) -> bool {
        registers.word::<AX>() == ENOSYS.wrapping_neg() && registers.word::<IP>() != 0 && is_native(registers)
    }

    #[inline(always)]
    pub(super) fn is_native(registers: Registers) -> bool {
        // SAFETY: as in `word`; `cs` shares its word with other bits on newer kernels.
        unsafe { ptr::read_volatile(registers.0.add(CS).cast::<u16>()) == USER_CS }
    }

    pub(crate) mod number {
        pub(crate) const READ: u16 = 0;
        pub(crate) const WRITE: u16 = 1;
        pub(crate) const READV: u16 = 19;
        pub(crate) const WRITEV: u16 = 20;
        pub(crate) const SENDFILE: u16 = 40;
        pub(crate) const SENDTO: u16 = 44;
        pub(crate) const RECVFROM: u16 = 45;
        pub(crate) const SENDMSG: u16 = 46;
        pub(crate) const RECVMSG: u16 = 47;
        pub(crate) const SPLICE: u16 = 275;
        pub(crate) const RECVMMSG: u16 = 299;
        pub(crate) const SENDMMSG: u16 = 307;
        pub(crate) const PREADV2: u16 = 327;
        pub(crate) const PWRITEV2: u16 = 328;
    }
}

#[cfg(bpf_target_arch = "aarch64")]
mod arch {
    use super::Registers;

    /// `syscallno` (the lower half of its word).
    pub(super) const NUMBER: usize = 35;
    /// `x0`, `x1`, `x2`, `x3`.
    pub(super) const ARGUMENTS: [usize; 4] = [0, 1, 2, 3];
    /// `orig_x0`: the result takes the place of `x0`.
    pub(super) const FIRST: usize = 34;
    const PC: usize = 32;
    const PSTATE: usize = 33;
    /// `PSR_MODE32_BIT`: a 32-bit task.
    const MODE32: u64 = 0x10;

    #[inline(always)]
    pub(super) fn in_native_syscall(registers: Registers) -> bool {
        registers.word::<PC>() != 0 && is_native(registers)
    }

    #[inline(always)]
    pub(super) fn is_native(registers: Registers) -> bool {
        registers.word::<PSTATE>() & MODE32 == 0
    }

    pub(crate) mod number {
        pub(crate) const READ: u16 = 63;
        pub(crate) const WRITE: u16 = 64;
        pub(crate) const READV: u16 = 65;
        pub(crate) const WRITEV: u16 = 66;
        pub(crate) const SENDFILE: u16 = 71;
        pub(crate) const SPLICE: u16 = 76;
        pub(crate) const SENDTO: u16 = 206;
        pub(crate) const RECVFROM: u16 = 207;
        pub(crate) const SENDMSG: u16 = 211;
        pub(crate) const RECVMSG: u16 = 212;
        pub(crate) const RECVMMSG: u16 = 243;
        pub(crate) const SENDMMSG: u16 = 269;
        pub(crate) const PREADV2: u16 = 286;
        pub(crate) const PWRITEV2: u16 = 287;
    }
}

pub(crate) use arch::number;
