//! From a file descriptor of the current task to the socket behind it, through fields at offsets that the agent
//! resolved.
//!
//! What is looked up at the end of a call is what the descriptor leads to then: if another thread has closed it
//! meanwhile and opened something else, that is where the bytes are counted.

use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_get_current_task;

use super::sock::Sock;
use crate::maps::offset;

/// `S_IFMT` and `S_IFSOCK` of an inode's mode.
const KIND_OF_FILE: u16 = 0o170_000;
const SOCKET: u16 = 0o140_000;

/// The socket of a descriptor; `None` if it is anything else.
#[inline(never)]
pub(crate) fn socket(descriptor: u32) -> Option<Sock> {
    // SAFETY: always valid.
    let task = unsafe { bpf_get_current_task() };
    let table: u64 = field(field(task, offset!(task_files))?, offset!(files_table))?;
    let entries: u32 = field(table, offset!(table_entries))?;
    if descriptor >= entries {
        return None;
    }
    let files: u64 = field(table, offset!(table_files))?;
    socket_of_file(field(files, descriptor as usize * size_of::<u64>())?)
}

/// The socket of an open file; `None` if it is anything else.
#[inline(always)]
pub(crate) fn socket_of_file(file: u64) -> Option<Sock> {
    let inode: u64 = field(file, offset!(file_inode))?;
    let mode: u16 = field(inode, offset!(inode_mode))?;
    if mode & KIND_OF_FILE != SOCKET {
        return None;
    }
    let sock: u64 = field(field(file, offset!(file_private))?, offset!(socket_sock))?;
    (sock != 0).then_some(Sock(sock as *const u8))
}

/// Whether the current task is in a call of the 32-bit table, as 64-bit programs can make too: its number and registers
/// mean something else.
#[inline(always)]
pub(crate) fn in_32_bit_call() -> bool {
    // `TS_COMPAT` of x86.
    const COMPAT: u32 = 2;
    let offset = offset!(task_status);
    // SAFETY: always valid.
    let task = unsafe { bpf_get_current_task() };
    offset != 0 && field::<u32>(task, offset).is_some_and(|status| status & COMPAT != 0)
}

/// A field of a kernel structure; any offset is one, unlike in [`Sock::field`].
#[inline(always)]
fn field<T: Copy>(structure: u64, offset: usize) -> Option<T> {
    // SAFETY: a checked read of kernel memory.
    unsafe { bpf_probe_read_kernel((structure + offset as u64) as *const T) }.ok()
}
