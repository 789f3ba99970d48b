//! The three commands of bpf(2) that aya has no way to give: a program for many uprobes, its type information, and the
//! link that puts it at all its places at once.
//!
//! The only module of the agent with `unsafe`: one system call, and the descriptor that it returns. Attributes are plain
//! structures of the kernel's layout (`include/uapi/linux/bpf.h`), cut off after the last field that is used, which the
//! kernel allows.

#![expect(unsafe_code, reason = "a system call that no safe wrapper offers")]

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use zerocopy::{Immutable, IntoBytes};

const PROG_LOAD: u32 = 5;
const BTF_LOAD: u32 = 18;
const LINK_CREATE: u32 = 28;

const PROG_TYPE_KPROBE: u32 = 2;
const TRACE_UPROBE_MULTI: u32 = 48;
/// The program runs at returns.
const UPROBE_MULTI_RETURN: u32 = 1;
/// Statistics and, where there is one, the reason of a refusal.
const LOG_STATS: u32 = 4;
/// The kernel gives up verifying when a signal comes; libbpf tries as often.
const TRIES: u32 = 5;

/// Most bytes of a program's name, without its end.
const NAME: usize = 15;

#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; NAME + 1],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct BtfLoad {
    btf: u64,
    log_buf: u64,
    btf_size: u32,
    log_size: u32,
    log_level: u32,
    /// Padding here; flags in newer kernels.
    zero: u32,
}

#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct UprobeMultiLink {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    cnt: u32,
    multi_flags: u32,
    pid: u32,
    zero: u32,
}

/// A table of records that belong to a program's type information.
pub(super) struct Records<'a> {
    /// The records, one after the other.
    pub(super) bytes: &'a [u8],
    /// How many they are.
    pub(super) count: usize,
    /// Bytes of each.
    pub(super) size: usize,
}

/// What the kernel is to load.
pub(super) struct Program<'a> {
    /// Name; what is longer than the kernel takes is cut off.
    pub(super) name: &'a str,
    /// Licence.
    pub(super) license: &'a CStr,
    /// Instructions of the kernel's layout, eight bytes each.
    pub(super) instructions: &'a [u8],
    /// Its type information, without which it cannot have callbacks, with its functions and lines.
    pub(super) types: Option<(BorrowedFd<'a>, Records<'a>, Records<'a>)>,
}

/// Loads a program that can be at many places.
pub(super) fn load_uprobe_multi(program: &Program<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attributes = ProgLoad {
        prog_type: PROG_TYPE_KPROBE,
        insn_cnt: narrow(program.instructions.len() / 8),
        insns: address(program.instructions),
        license: address(program.license.to_bytes_with_nul()),
        prog_name: short(program.name),
        expected_attach_type: TRACE_UPROBE_MULTI,
        ..ProgLoad::default()
    };
    if let Some((btf, functions, lines)) = &program.types {
        attributes.prog_btf_fd = number(*btf);
        attributes.func_info = address(functions.bytes);
        attributes.func_info_cnt = narrow(functions.count);
        attributes.func_info_rec_size = narrow(functions.size);
        attributes.line_info = address(lines.bytes);
        attributes.line_info_cnt = narrow(lines.count);
        attributes.line_info_rec_size = narrow(lines.size);
    }
    if !log.is_empty() {
        attributes.log_level = LOG_STATS;
        attributes.log_buf = log.as_mut_ptr() as u64;
        attributes.log_size = narrow(log.len());
    }
    let mut tries = 1..TRIES;
    loop {
        match bpf(PROG_LOAD, attributes.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries.next().is_some() => {}
            result => return result,
        }
    }
}

/// Hands type information to the kernel.
pub(super) fn load_btf(types: &[u8]) -> io::Result<OwnedFd> {
    let attributes = BtfLoad { btf: address(types), btf_size: narrow(types.len()), ..BtfLoad::default() };
    bpf(BTF_LOAD, attributes.as_bytes())
}

/// Puts a program at all `offsets` of the file, each with its cookie, in all processes. They are gone once the descriptor
/// is closed.
///
/// # Panics
/// When there are not as many cookies as offsets: the kernel would read what lies behind them.
pub(super) fn link_uprobe_multi(
    program: BorrowedFd<'_>,
    returns: bool,
    path: &CStr,
    offsets: &[u64],
    cookies: &[u64],
) -> io::Result<OwnedFd> {
    assert_eq!(offsets.len(), cookies.len(), "a cookie for each place");
    let attributes = UprobeMultiLink {
        prog_fd: number(program),
        attach_type: TRACE_UPROBE_MULTI,
        path: address(path.to_bytes_with_nul()),
        offsets: address(offsets.as_bytes()),
        cookies: address(cookies.as_bytes()),
        cnt: narrow(offsets.len()),
        multi_flags: if returns { UPROBE_MULTI_RETURN } else { 0 },
        ..UprobeMultiLink::default()
    };
    bpf(LINK_CREATE, attributes.as_bytes())
}

fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr() as u64
}

fn number(descriptor: BorrowedFd<'_>) -> u32 {
    descriptor.as_raw_fd().unsigned_abs()
}

/// Lengths of what is in memory here; one beyond 32 bits is none that the kernel would take, and fails there.
fn narrow(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn short(name: &str) -> [u8; NAME + 1] {
    let mut short = [0; NAME + 1];
    let length = name.len().min(NAME);
    short[..length].copy_from_slice(&name.as_bytes()[..length]);
    short
}

/// Every command used here answers with a new descriptor.
fn bpf(command: u32, attributes: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads `attributes.len()` bytes, and what these point to: slices that the callers borrow until
    // this returns. It writes to the log alone, which the caller has borrowed mutably.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), attributes.len()) };
    let descriptor = i32::try_from(answer).ok().filter(|descriptor| *descriptor >= 0);
    let descriptor = descriptor.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: it is new, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_layout_of_the_kernel() {
        assert_eq!(size_of::<ProgLoad>(), 112, "to attach_btf_id");
        assert_eq!(std::mem::offset_of!(ProgLoad, expected_attach_type), 68);
        assert_eq!(std::mem::offset_of!(ProgLoad, func_info), 80);
        assert_eq!(std::mem::offset_of!(ProgLoad, line_info), 96);
        assert_eq!(std::mem::offset_of!(UprobeMultiLink, path), 16);
        assert_eq!(std::mem::offset_of!(UprobeMultiLink, cnt), 48);
        assert_eq!(size_of::<BtfLoad>(), 32);
    }

    #[test]
    fn a_name_is_cut_to_what_the_kernel_takes() {
        assert_eq!(&short("context_current"), b"context_current\0");
        assert_eq!(&short("a_name_of_twenty_let"), b"a_name_of_twent\0");
        assert_eq!(&short("x")[..2], b"x\0");
    }

    #[test]
    fn a_refusal_is_an_error_with_the_kernels_number() {
        let file = tempfile::tempfile().unwrap();
        let error = link_uprobe_multi(std::os::fd::AsFd::as_fd(&file), false, c"/", &[0], &[0]).unwrap_err();
        assert!(error.raw_os_error().is_some_and(|number| number > 0), "{error}");
    }
}
