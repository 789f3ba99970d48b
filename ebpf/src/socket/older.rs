//! Connections that began before their process was watched: told before anything moves on them.
//!
//! The kernel runs the program for each open file of each process of the host when the agent asks, in the agent's
//! context. Those of unix sockets are left to their first call, since only that shows whether they carry requests.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use wire::names::SCOPE_SOCKETS;
use wire::socket::tcp;

use super::descriptor;
use super::identity::announce_older;
use super::sock::{INET, INET6, Sock};
use crate::emit::{Outcome, Stop, finish};
use crate::maps::offset;
use crate::scope::{Task, scope_of};

/// match: `struct bpf_iter__task_file`
#[repr(C)]
pub(crate) struct OpenFile {
    meta: u64,
    /// 0 behind the last one, as below.
    task: u64,
    descriptor: u32,
    file: u64,
}

/// match: `bpf_iter_task_file(struct bpf_iter_meta *meta, struct task_struct *task, u32 fd, struct file *file)`
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
pub(crate) extern "C" fn sock_older(context: *const OpenFile) -> u32 {
    finish(older(context))
}

#[inline(always)]
fn older(context: *const OpenFile) -> Outcome {
    // Read like any other structure: as numbers, which the verifier does not follow.
    let at = Sock(context.cast());
    let task: u64 = at.field(core::mem::offset_of!(OpenFile, task));
    let file: u64 = at.field(core::mem::offset_of!(OpenFile, file));
    let (tgid_at, is_end) = (offset!(task_tgid), task == 0 || file == 0);
    if is_end || tgid_at == 0 {
        return Err(Stop::Quiet);
    }
    let tgid: u32 = Sock(task as *const u8).field(tgid_at);
    if scope_of(tgid) & SCOPE_SOCKETS == 0 {
        return Err(Stop::Quiet);
    }
    let sock = descriptor::socket_of_file(file).ok_or(Stop::Quiet)?;
    let family = sock.family();
    if !matches!(family, INET | INET6) || !sock.is_tcp() || !is_open(sock.state()) {
        return Err(Stop::Quiet);
    }
    // SAFETY: always valid.
    announce_older(sock, family, unsafe { bpf_ktime_get_ns() }, Task::leader(tgid))
}

/// Something may still move on a connection in this state.
#[inline(always)]
fn is_open(state: u8) -> bool {
    matches!(state, tcp::ESTABLISHED | tcp::CLOSE_WAIT | tcp::FIN_WAIT1 | tcp::FIN_WAIT2)
}
