//! Plaintext of TLS connections of watched processes, at the calls in which OpenSSL takes and gives it.
//!
//! Which socket it belongs to is seen where the library itself uses one (the calls then lie within each other on one
//! thread); where the program moves the ciphertext, the agent finds out.

pub(crate) mod call;
pub(crate) mod identity;
mod record;

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use wire::counter::Counter;
use wire::names::SCOPE_SOCKETS;
use wire::socket::SockId;

use self::identity::SslKey;
use crate::cuda::arguments::{RETURN_POPS, cookie, return_stack_pointer, stack_pointer};
use crate::emit::{Outcome, Stop, finish};
use crate::maps::{SSLS, TLS_CALLS};
use crate::scope::Task;

/// match: `int SSL_read(SSL *, void *, int)`, `int SSL_read_ex(SSL *, void *, size_t, size_t *)`,
/// `int SSL_write(SSL *, const void *, int)`, `int SSL_write_ex(SSL *, const void *, size_t, size_t *)`
#[uprobe]
pub(crate) fn tls_enter(ctx: ProbeContext) -> u32 {
    finish(enter(&ctx))
}

/// match: the return (`int`) of what `tls_enter` is attached to
#[uretprobe]
pub(crate) fn tls_return(ctx: RetProbeContext) -> u32 {
    finish(leave(&ctx))
}

/// match: `int SSL_do_handshake(SSL *)`
#[uprobe]
pub(crate) fn tls_handshake(ctx: ProbeContext) -> u32 {
    finish(handshake(&ctx))
}

/// match: `void SSL_free(SSL *)`
#[uprobe]
pub(crate) fn tls_free(ctx: ProbeContext) -> u32 {
    let task = Task::current();
    if task.is_watched(SCOPE_SOCKETS) {
        let _ = SSLS.remove(SslKey::new(task, ctx.arg(0).unwrap_or(0)));
    }
    0
}

#[inline(always)]
fn enter(ctx: &ProbeContext) -> Outcome {
    let task = Task::current();
    if !is_watched(task) {
        return Err(Stop::Quiet);
    }
    let call = call::begin(task, stack_pointer(ctx))?;
    call.kind.set(cookie(ctx).0);
    call.ssl.set(ctx.arg(0).unwrap_or(0));
    call.buffer.set(ctx.arg(1).unwrap_or(0));
    call.requested.set(ctx.arg(2).unwrap_or(0));
    call.count.set(ctx.arg(3).unwrap_or(0));
    Ok(())
}

#[inline(always)]
fn handshake(ctx: &ProbeContext) -> Outcome {
    let task = Task::current();
    if !is_watched(task) {
        return Err(Stop::Quiet);
    }
    let ssl: u64 = ctx.arg(0).unwrap_or(0);
    // BoringSSL takes its steps within a read or write of the same connection, which goes on.
    if call::current(task).is_some_and(|call| call.ssl.get() == ssl) {
        return Err(Stop::Quiet);
    }
    let stack = stack_pointer(ctx);
    let call = call::begin(task, stack)?;
    call.ssl.set(ssl);
    // SAFETY: always valid.
    let outcome = record::emit(task, call, 0, unsafe { bpf_ktime_get_ns() });
    // Nothing more is asked of it: what is called within is as if its caller had called it.
    let _ = call::returned(task, stack);
    call::end(task);
    outcome
}

#[inline(always)]
fn leave(ctx: &RetProbeContext) -> Outcome {
    let task = Task::current();
    if !is_watched(task) {
        return Err(Stop::Quiet);
    }
    let call = call::returned(task, return_stack_pointer(ctx) - RETURN_POPS)?;
    let outcome = match call.moved(ctx.ret()) {
        0 => Ok(()),
        // SAFETY: always valid.
        len => record::emit(task, call, len, unsafe { bpf_ktime_get_ns() }),
    };
    call::end(task);
    outcome
}

#[inline(never)]
fn is_watched(task: Task) -> bool {
    task.is_watched(SCOPE_SOCKETS)
}

/// The thread moves bytes through a socket: if it does so within a call of a TLS library, that is its socket.
#[inline(always)]
pub(crate) fn uses(task: Task, dir: u8, id: SockId) {
    if let Some(call) = call::current(task)
        && call.dir() == dir
    {
        call.sock.set(id.sock);
        call.sock_birth_ns.set(id.birth_ns);
    }
}

/// A new image: whatever the old one had is gone, and the new one may have an `SSL` at the same address.
#[inline(always)]
pub(crate) fn forget_process(task: Task) {
    forget_thread(task);
    identity::forget_process(task);
}

/// Drops the call that a thread was in.
pub(crate) fn forget_thread(task: Task) {
    let _ = TLS_CALLS.remove(task.0);
}
