//! Where fields of kernel structures are, read from the running kernel's own type information (BTF).
//!
//! Rust has no relocatable field access for BPF, so the offsets are resolved here and given to the kernel side as a
//! load-time constant. Only what is needed is read: structures, unions, the modifiers around them, and names.

use std::{fs, io};

use thiserror::Error;
use wire::socket::Offsets;

/// Type information of the running kernel.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
/// Nesting of anonymous members and of modifiers that is followed; real kernels stay below ten.
const MAX_DEPTH: u32 = 32;
/// Members looked at to find one field; a kernel structure has hundreds, a hostile file could ask for billions.
const MAX_MEMBERS: u32 = 100_000;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const FUNC: u32 = 12;

/// Why offsets are not known.
#[derive(Debug, Error)]
pub enum BtfError {
    /// No type information.
    #[error("cannot read {VMLINUX} (kernel built without CONFIG_DEBUG_INFO_BTF?)")]
    Read(#[source] io::Error),
    /// Cut short or inconsistent.
    #[error("kernel type information is damaged at byte {at}")]
    Damaged {
        /// Where.
        at: usize,
    },
    /// A kind of type from a newer kernel, whose length is not known.
    #[error("kernel type information has an unknown kind {kind}")]
    UnknownKind {
        /// The kind.
        kind: u32,
    },
    /// The structure or a field on the way does not exist.
    #[error("this kernel has no {path} (not found: {part})")]
    NotFound {
        /// The whole path.
        path: String,
        /// The part that is missing.
        part: String,
    },
    /// The field does not begin at a byte.
    #[error("{path} is a bit field")]
    BitField {
        /// The whole path.
        path: String,
    },
}

/// Parsed type information: where each type begins.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    /// Byte position of each type; type ids count from 1.
    types: Vec<u32>,
    strings: std::ops::Range<usize>,
}

/// The fixed part of one type.
#[derive(Clone, Copy, Debug)]
struct Type {
    at: usize,
    name: u32,
    kind: u32,
    vlen: u32,
    /// Member offsets also hold bit field sizes.
    flag: bool,
    /// Size, or the id of the type it modifies.
    refers: u32,
}

impl Btf {
    /// The running kernel's.
    pub fn vmlinux() -> Result<Self, BtfError> {
        Self::parse(fs::read(VMLINUX).map_err(BtfError::Read)?)
    }

    /// Reads the header and finds where each type begins.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, BtfError> {
        let magic = bytes.get(..2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        if magic != Some(MAGIC) {
            return Err(BtfError::Damaged { at: 0 });
        }
        let field = |at: usize| word(&bytes, at).map(|word| word as usize);
        let header = field(4)?;
        let section = |offset: usize, len: usize| {
            let start = header.checked_add(offset)?;
            let end = start.checked_add(len)?;
            (end <= bytes.len()).then_some(start..end)
        };
        let types = section(field(8)?, field(12)?).ok_or(BtfError::Damaged { at: 8 })?;
        let strings = section(field(16)?, field(20)?).ok_or(BtfError::Damaged { at: 16 })?;
        let mut btf = Self { bytes, types: Vec::new(), strings };
        btf.index(types)?;
        Ok(btf)
    }

    fn index(&mut self, section: std::ops::Range<usize>) -> Result<(), BtfError> {
        let mut at = section.start;
        while at < section.end {
            self.types.push(u32::try_from(at).map_err(|_| BtfError::Damaged { at })?);
            let found = self.type_at(at)?;
            at += 12 + trailing_bytes(found.kind, found.vlen as usize)?;
        }
        if at == section.end { Ok(()) } else { Err(BtfError::Damaged { at }) }
    }

    fn type_at(&self, at: usize) -> Result<Type, BtfError> {
        let info = word(&self.bytes, at + 4)?;
        Ok(Type {
            at,
            name: word(&self.bytes, at)?,
            kind: (info >> 24) & 0x1f,
            vlen: info & 0xffff,
            flag: info >> 31 != 0,
            refers: word(&self.bytes, at + 8)?,
        })
    }

    fn by_id(&self, id: u32) -> Option<Type> {
        let at = *self.types.get((id as usize).checked_sub(1)?)? as usize;
        self.type_at(at).ok()
    }

    fn string(&self, offset: u32) -> Option<&[u8]> {
        let strings = self.bytes.get(self.strings.clone())?.get(offset as usize..)?;
        strings.split(|&b| b == 0).next()
    }

    fn named<'a>(&'a self, name: &'a str, wanted: &'a [u32]) -> impl Iterator<Item = Type> + 'a {
        self.types.iter().filter_map(move |&at| {
            let found = self.type_at(at as usize).ok()?;
            let matches = wanted.contains(&found.kind) && self.string(found.name)? == name.as_bytes();
            matches.then_some(found)
        })
    }

    /// The kernel has a tracepoint of this name.
    pub fn has_tracepoint(&self, name: &str) -> bool {
        self.named(&format!("btf_trace_{name}"), &[TYPEDEF]).next().is_some()
    }

    /// Byte offset of a field: `structure.field.field`, through anonymous structures and unions.
    pub fn offset(&self, path: &str) -> Result<u32, BtfError> {
        let (structure, fields) = path.split_once('.').unwrap_or((path, ""));
        let missing = |part: &str| BtfError::NotFound { path: path.to_owned(), part: part.to_owned() };
        let mut failure = missing(structure);
        // Two translation units may have different structures of one name; the right one has the fields.
        for candidate in self.named(structure, &[STRUCT, UNION]) {
            match self.walk(candidate, fields, path) {
                Ok(bits) if bits % 8 != 0 => return Err(BtfError::BitField { path: path.to_owned() }),
                Ok(bits) => return Ok(bits / 8),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn walk(&self, mut at: Type, fields: &str, path: &str) -> Result<u32, BtfError> {
        let mut bits = 0u32;
        let mut budget = MAX_MEMBERS;
        for part in fields.split('.') {
            let missing = || BtfError::NotFound { path: path.to_owned(), part: part.to_owned() };
            let (offset, next) = self.member(at, part, 0, &mut budget).ok_or_else(missing)?;
            bits = bits.checked_add(offset).ok_or_else(missing)?;
            // The last part may be of any type; `void` has no number.
            at = self.strip(next).unwrap_or(at);
        }
        Ok(bits)
    }

    /// Bit offset and type of a member, looked for in anonymous members too.
    fn member(&self, of: Type, name: &str, depth: u32, budget: &mut u32) -> Option<(u32, u32)> {
        if depth > MAX_DEPTH || !matches!(of.kind, STRUCT | UNION) {
            return None;
        }
        (0..of.vlen as usize).find_map(|index| {
            *budget = budget.checked_sub(1)?;
            let at = of.at + 12 + index * 12;
            let member_name = self.string(word(&self.bytes, at).ok()?)?;
            let kind = word(&self.bytes, at + 4).ok()?;
            let raw = word(&self.bytes, at + 8).ok()?;
            let offset = if of.flag { raw & 0x00ff_ffff } else { raw };
            if member_name == name.as_bytes() {
                return Some((offset, kind));
            }
            if !member_name.is_empty() {
                return None;
            }
            let (inner, found) = self.member(self.strip(kind)?, name, depth + 1, budget)?;
            Some((offset.checked_add(inner)?, found))
        })
    }

    /// The type behind typedef, volatile, const, restrict and type tags.
    fn strip(&self, mut id: u32) -> Option<Type> {
        for _ in 0..MAX_DEPTH {
            let found = self.by_id(id)?;
            if !matches!(found.kind, 8..=11 | 18) {
                return Some(found);
            }
            id = found.refers;
        }
        None
    }

    /// The kernel lets programs go over all things of this kind.
    pub fn has_iterator(&self, of: &str) -> bool {
        self.named(&format!("bpf_iter_{of}"), &[FUNC]).next().is_some()
    }

    /// The offsets that the kernel side needs.
    pub fn socket_offsets(&self) -> Result<Offsets, BtfError> {
        let common = |field: &str| self.offset(&format!("sock.__sk_common.{field}"));
        // Kernels without IPv6 lack the fields, and never have a socket to read them from.
        let v6 = |field: &str| common(field).unwrap_or(0);
        Ok(Offsets {
            family: common("skc_family")?,
            state: common("skc_state")?,
            local_port: common("skc_num")?,
            peer_port: common("skc_dport")?,
            local_v4: common("skc_rcv_saddr")?,
            peer_v4: common("skc_daddr")?,
            local_v6: v6("skc_v6_rcv_saddr"),
            peer_v6: v6("skc_v6_daddr"),
            net: common("skc_net.net")?,
            netns_inum: self.offset("net.ns.inum")?,
            task_tgid: self.offset("task_struct.tgid")?,
            task_pid: self.offset("task_struct.pid")?,
            // A bit field on old kernels.
            protocol: self.offset("sock.sk_protocol").unwrap_or(0),
            sock_shutdown: self.offset("sock.sk_shutdown").unwrap_or(0),
            ..self.descriptor_offsets(self.network_offsets().unwrap_or_default())
        })
        .map(|offsets| self.with_unix(self.with_threads(offsets)))
    }

    /// Adds those for unix sockets, if all of them are there.
    fn with_unix(&self, offsets: Offsets) -> Offsets {
        let unix = || -> Result<Offsets, BtfError> {
            let inode = self.offset("socket_alloc.vfs_inode")? + self.offset("inode.i_ino")?;
            Ok(Offsets {
                unix_peer: self.offset("unix_sock.peer")?,
                unix_address: self.offset("unix_sock.addr")?,
                sock_socket: self.offset("sock.sk_socket")?,
                socket_inode: inode - self.offset("socket_alloc.socket")?,
                ..offsets
            })
        };
        unix().unwrap_or(offsets)
    }

    /// Adds those that tell whether a process has threads left, if both are there.
    fn with_threads(&self, offsets: Offsets) -> Offsets {
        match (self.offset("task_struct.signal"), self.offset("signal_struct.live")) {
            (Ok(task_signal), Ok(signal_live)) => Offsets { task_signal, signal_live, ..offsets },
            _ => offsets,
        }
    }

    /// The offsets that lead from a file descriptor to its socket, beside these others; 0 where one is not there.
    fn descriptor_offsets(&self, others: Offsets) -> Offsets {
        let all = || {
            Ok::<_, BtfError>(Offsets {
                task_files: self.offset("task_struct.files")?,
                files_table: self.offset("files_struct.fdt")?,
                table_entries: self.offset("fdtable.max_fds")?,
                table_files: self.offset("fdtable.fd")?,
                file_inode: self.offset("file.f_inode")?,
                file_private: self.offset("file.private_data")?,
                inode_mode: self.offset("inode.i_mode")?,
                socket_sock: self.offset("socket.sk")?,
                task_status: self.offset("task_struct.thread_info.status").unwrap_or(0),
                ..others
            })
        };
        all().unwrap_or(others)
    }

    /// The offsets for arrival and acknowledgement alone; the others are 0.
    pub fn network_offsets(&self) -> Result<Offsets, BtfError> {
        let tcp = |field: &str| self.offset(&format!("tcp_sock.{field}"));
        let control = self.offset("sk_buff.cb")?;
        let segment = |field: &str| Ok(control + self.offset(&format!("tcp_skb_cb.{field}"))?);
        Ok(Offsets {
            rcv_nxt: tcp("rcv_nxt")?,
            copied_seq: tcp("copied_seq")?,
            snd_una: tcp("snd_una")?,
            snd_nxt: tcp("snd_nxt")?,
            write_seq: tcp("write_seq")?,
            srtt_us: tcp("srtt_us")?,
            total_retrans: tcp("total_retrans")?,
            segment_seq: segment("seq")?,
            segment_end_seq: segment("end_seq")?,
            segment_ack_seq: segment("ack_seq")?,
            ..Offsets::default()
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    let slice = at.checked_add(4).and_then(|end| bytes.get(at..end)).ok_or(BtfError::Damaged { at })?;
    Ok(u32::from_le_bytes([slice[0], slice[1], slice[2], slice[3]]))
}

/// Bytes behind the fixed part of a type, by its kind.
fn trailing_bytes(kind: u32, vlen: usize) -> Result<usize, BtfError> {
    Ok(match kind {
        // int, var, declaration tag
        1 | 14 | 17 => 4,
        // pointer, forward, typedef, volatile, const, restrict, function, float, type tag
        2 | 7..=12 | 16 | 18 => 0,
        // array
        3 => 12,
        // structure, union, data section, 64-bit enumeration
        4 | 5 | 15 | 19 => vlen * 12,
        // enumeration, function prototype
        6 | 13 => vlen * 8,
        kind => return Err(BtfError::UnknownKind { kind }),
    })
}

#[cfg(test)]
#[path = "btf/tests.rs"]
mod tests;
