//! Kernel side of stagelens: sockets, TLS, processes and CUDA calls of watched processes, as records of [`wire`].
//!
//! Invariants: a hot CUDA call only updates an aggregate; every lost or skipped event is counted
//! ([`wire::counter`]); uprobe programs keep the stack of each subprogram at 48 bytes or less and use no per-CPU
//! scratch, because they are preemptible and a larger one gets a private per-CPU stack on kernels 6.13+.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]
#![expect(
    clippy::inline_always,
    reason = "what is a subprogram and what is not decides the stack of each and what the verifier can prove"
)]
#![expect(clippy::needless_pass_by_value, reason = "the attribute macros hand the context over by value")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of the kernel's interface; a checked conversion is a branch more for the verifier"
)]

mod atomic;
mod cuda;
mod emit;
mod maps;
mod process;
mod repeat;
mod scope;
mod socket;
mod tls;

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Never reached: the verifier refuses a program in which it could be.
    loop {}
}

/// The licence the verifier reads; GPL-only helpers need it.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
