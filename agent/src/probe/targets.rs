//! Libraries that a process maps, by identity, and which of them are a CUDA driver or have TLS in them.
//!
//! A library is identified by device and inode, never by path: paths differ between mount namespaces, and a file can
//! be replaced or deleted while it is mapped. It is opened through `/proc/PID/map_files`, which leads to the mapped
//! file itself, else through `/proc/PID/root`, whose inode is then compared.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, BufRead},
    os::{
        fd::AsRawFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::MetadataExt,
        },
    },
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};
use thiserror::Error;
use wire::names;

use super::{
    elf::{self, ElfError, Function},
    table::{self, DRIVER_MARK, Program, RUNTIME_MARK, TABLE},
    tls,
};
use crate::source::procfs::{ProcError, ProcFs};

/// Most lines of one memory map that are read.
const MAX_LINES: usize = 1 << 20;

/// Identity of a mapped file, as the memory map states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Device number, `major << 32 | minor`.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// Where an address of a process is: the file, and the place in it. `None` if it is in no executable mapping of a file,
/// or the process is gone.
pub fn locate(procfs: &ProcFs, pid: u32, addresses: &[u64]) -> BTreeMap<u64, (Mapping, u64)> {
    let mut found = BTreeMap::new();
    let Ok(mut reader) = procfs.maps(pid) else { return found };
    let mut line = Vec::new();
    for _ in 0..MAX_LINES {
        line.clear();
        if !reader.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            break;
        }
        let Some(mapping) = parse_line(&line) else { continue };
        for &address in addresses.iter().filter(|at| (mapping.start..mapping.end).contains(at)) {
            let offset = address - mapping.start + mapping.offset;
            found.insert(address, (mapping.clone(), offset));
        }
    }
    found
}

/// An executable mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// Which file.
    pub file: FileId,
    /// Its path in the process's mount namespace, without " (deleted)".
    pub path: PathBuf,
}

/// Why a mapped file could not be used.
#[derive(Debug, Error)]
pub enum TargetError {
    /// Neither way of opening it worked.
    #[error("{path} of process {pid} cannot be opened", path = .path.display())]
    Open {
        /// Process.
        pid: u32,
        /// Path there.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The path now leads to another file, and the mapped one is out of reach.
    #[error("{path} of process {pid} has been replaced, and the mapped file is out of reach (needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE)", path = .path.display())]
    Replaced {
        /// Process.
        pid: u32,
        /// Path there.
        path: PathBuf,
    },
    /// Its functions cannot be read.
    #[error("{path}", path = .path.display())]
    Elf {
        /// Path.
        path: PathBuf,
        /// Why.
        #[source]
        source: ElfError,
    },
}

/// What a library is probed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A CUDA driver.
    Cuda,
    /// The CUDA runtime, where the driver cannot be had.
    Runtime,
    /// OpenSSL or one of its kind, in a library of its own or within a program.
    Tls,
}

impl Kind {
    /// Programs that are attached to it. One that fires at the return of a function stands before its partner at the
    /// entry: attached in this order and detached in reverse, no call is left waiting for a return that nobody sees.
    pub const fn programs(self) -> &'static [Program] {
        match self {
            Self::Cuda => &[
                names::PROG_SYNC_RETURN,
                names::PROG_SYNC_ENTER,
                names::PROG_QUERY_RETURN,
                names::PROG_QUERY_ENTER,
                names::PROG_BEGIN_RETURN,
                names::PROG_BEGIN_ENTER,
                names::PROG_END,
                names::PROG_MEMORY_RETURN,
                names::PROG_MEMORY_ENTER,
                names::PROG_RESOLVE_RETURN,
                names::PROG_RESOLVE_ENTER,
                names::PROG_RARE_RETURN,
                names::PROG_RARE_ENTER,
                names::PROG_EVENT_RECORD,
                names::PROG_WAIT_EVENT,
                names::PROG_COPY,
                names::PROG_LAUNCH,
                names::PROG_CONTEXT_RETURN,
                names::PROG_CONTEXT_ENTER,
                names::PROG_CONTEXT_CURRENT,
            ],
            Self::Runtime => &[
                names::PROG_SYNC_RETURN,
                names::PROG_SYNC_ENTER,
                names::PROG_QUERY_RETURN,
                names::PROG_QUERY_ENTER,
                names::PROG_BEGIN_RETURN,
                names::PROG_BEGIN_ENTER,
                names::PROG_END,
                names::PROG_MEMORY_RETURN,
                names::PROG_MEMORY_ENTER,
                names::PROG_RARE_RETURN,
                names::PROG_RARE_ENTER,
                names::PROG_EVENT_RECORD,
                names::PROG_WAIT_EVENT,
                names::PROG_COPY,
                names::PROG_LAUNCH,
            ],
            Self::Tls => &[
                names::PROG_TLS_RETURN,
                names::PROG_TLS_ENTER,
                names::PROG_TLS_HANDSHAKE,
                names::PROG_TLS_FREE,
            ],
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Self::Cuda => DRIVER_MARK,
            Self::Runtime => RUNTIME_MARK,
            Self::Tls => tls::TLS_MARK,
        }
    }

    fn symbols(self) -> Vec<&'static str> {
        match self {
            Self::Cuda | Self::Runtime => {
                let rows = TABLE.iter().filter(|row| row.runtime == (self == Self::Runtime));
                rows.flat_map(|row| row.symbols).map(|symbol| symbol.name).collect()
            }
            Self::Tls => tls::FUNCTIONS.iter().map(|function| function.symbol).collect(),
        }
    }
}

/// A library that is probed, open.
#[derive(Debug)]
pub struct Library {
    /// What for.
    pub kind: Kind,
    /// Identity.
    pub id: FileId,
    /// Path in the mount namespace where it was found first.
    pub path: PathBuf,
    /// The open file: keeps the inode reachable after the process is gone.
    pub file: File,
    /// The probed functions that it exports.
    pub functions: BTreeMap<&'static str, Function>,
    /// It was linked by Go.
    pub is_go: bool,
    /// Variants of probed functions that it exports and that the table does not have.
    pub unknown: Vec<String>,
}

/// Executable mappings of a process that may be worth a look inside, a file once.
#[derive(Debug, Default)]
pub struct Mapped {
    /// Named like a CUDA driver.
    pub cuda: Vec<Mapping>,
    /// Named so that it may be one: only its functions tell.
    pub maybe_cuda: Vec<Mapping>,
    /// Named like the CUDA runtime.
    pub runtime: Vec<Mapping>,
    /// The program itself, and what is named like a library that has TLS in it.
    pub tls: Vec<Mapping>,
}

impl Mapped {
    /// There is something in it that programs use a GPU through, or that looks like it.
    pub fn may_use_gpu(&self) -> bool {
        !(self.cuda.is_empty() && self.maybe_cuda.is_empty() && self.runtime.is_empty())
    }
}

/// Reads the memory map of a process whose program is `exe`, as its link tells.
pub fn mapped(procfs: &ProcFs, pid: u32, exe: &Path) -> Result<Mapped, ProcError> {
    let exe = Path::new(OsStr::from_bytes(without_mark(exe.as_os_str().as_bytes())));
    let mut reader = procfs.maps(pid)?;
    let read = |source| ProcError::Read { path: procfs.path(pid, "maps"), source };
    let mut found = Mapped::default();
    let mut line = Vec::new();
    for _ in 0..MAX_LINES {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(read)? == 0 {
            break;
        }
        let Some(mapping) = parse_line(&line) else { continue };
        let list = if is_driver_name(&mapping.path) {
            &mut found.cuda
        } else if is_runtime_name(&mapping.path) {
            &mut found.runtime
        } else if may_be_driver(&mapping.path) {
            &mut found.maybe_cuda
        } else if mapping.path == exe || may_have_tls(&mapping.path) {
            &mut found.tls
        } else {
            continue;
        };
        if list.iter().all(|known| known.file != mapping.file) {
            list.push(mapping);
        }
    }
    Ok(found)
}

/// `libcuda.so`, `libcuda.so.1`, `libcuda.so.550.54.14`; not `libcudart.so`.
pub fn is_driver_name(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
    name.strip_prefix(b"libcuda.so").is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

/// `libcudart.so.12`; packagers put a hash into the name.
fn is_runtime_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libcudart"))
}

/// A driver by another name, as of a layer that shares a GPU between containers. The libraries of frameworks with such
/// names are looked into once and have none of the driver's functions.
fn may_be_driver(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.as_bytes().to_ascii_lowercase()).unwrap_or_default();
    let has = |word: &[u8]| name.windows(word.len()).any(|part| part == word);
    has(b".so") && (has(b"cuda") || has(b"nvidia"))
}

/// OpenSSL by itself, under whatever name packagers give it, and what is often built with it inside.
fn may_have_tls(path: &Path) -> bool {
    const NAMES: [&[u8]; 5] = [b"libssl.so", b"libssl-", b"libpython3", b"libnode.so", b"_ssl."];
    let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
    NAMES.iter().any(|known| name.starts_with(known))
}

/// One line: `start-end perms offset major:minor inode   path`. `None` for mappings without a file, without
/// executable bytes, or lines that are not understood.
fn parse_line(line: &[u8]) -> Option<Mapping> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|&b| b == b' ')?;
        let field = std::str::from_utf8(&rest[..end]).ok()?;
        rest = &rest[end + 1..];
        Some(field)
    };
    let (start, end) = field()?.split_once('-')?;
    let executable = field()?.as_bytes().get(2) == Some(&b'x');
    let offset = field()?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?.parse().ok()?;
    let path = rest.trim_ascii_start();
    if !executable || inode == 0 || !path.starts_with(b"/") {
        return None;
    }
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        file: FileId { device: hex(major)? << 32 | hex(minor)?, inode },
        path: unescape(without_mark(path)),
    })
}

/// A path without what the kernel adds once its file is gone or replaced.
fn without_mark(path: &[u8]) -> &[u8] {
    path.strip_suffix(b" (deleted)").unwrap_or(path)
}

/// The kernel writes a newline in a path as `\012`, and nothing else escaped.
fn unescape(path: &[u8]) -> PathBuf {
    const NEWLINE: &[u8] = b"\\012";
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(NEWLINE) {
            plain.push(b'\n');
            rest = tail;
        } else {
            plain.push(first);
            rest = tail;
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

/// Opens a mapped file. `Ok(None)`: it has the name of a library of this kind but is none.
pub fn open_library(
    kind: Kind,
    procfs: &ProcFs,
    pid: u32,
    mapping: &Mapping,
) -> Result<Option<Library>, TargetError> {
    let file = open_mapped(procfs, pid, mapping)?;
    let is_unknown = |name: &str| kind != Kind::Tls && table::is_unknown_variant(name);
    let found = elf::exports(&file, &kind.symbols(), is_unknown)
        .map_err(|source| TargetError::Elf { path: mapping.path.clone(), source })?;
    let elf::Exports { functions, others: unknown, is_go } = found;
    let is_one = functions.contains_key(kind.mark());
    let (id, path) = (mapping.file, mapping.path.clone());
    Ok(is_one.then(|| Library { kind, id, path, file, functions, is_go, unknown }))
}

fn open_mapped(procfs: &ProcFs, pid: u32, mapping: &Mapping) -> Result<File, TargetError> {
    let range = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
    if let Ok(file) = File::open(procfs.path(pid, &range)) {
        return Ok(file);
    }
    let within = mapping.path.strip_prefix("/").unwrap_or(&mapping.path);
    let path = procfs.path(pid, "root").join(within);
    let open = |source| TargetError::Open { pid, path: mapping.path.clone(), source };
    // Its owner may have put anything there since, a FIFO that nobody writes to or a device among it: what it is must
    // be known before it is opened for more than a look.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let seen = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(|error| open(error.into()))?);
    let metadata = seen.metadata().map_err(open)?;
    // Only the inode: on overlay and btrfs the device of the map and of the file differ.
    if !metadata.is_file() || metadata.ino() != mapping.file.inode {
        return Err(TargetError::Replaced { pid, path: mapping.path.clone() });
    }
    File::open(format!("/proc/self/fd/{}", seen.as_raw_fd())).map_err(open)
}

#[cfg(test)]
#[path = "targets/tests.rs"]
mod tests;
