//! Uprobes of one program in one file as one link (`uprobe_multi`, Linux 6.6), where aya makes one perf event a place.
//!
//! The kernel waits for readers once a link instead of once a place: measured on a busy machine, an agent with a whole
//! driver (273 places) ends in 0.2 to 0.8 s, killed or not; by perf events it took 27 to 35 s. And a program in a file takes
//! one descriptor instead of one a place: 111 in all instead of 364.
//!
//! aya 0.14 loads no program with this attach type, so the object is read once more, its calls and maps resolved with the
//! library that aya itself uses, against the maps that aya has made.

use std::{
    collections::{BTreeMap, HashSet},
    ffi::CString,
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd},
};

use aya::{
    Ebpf,
    maps::{Map, MapData},
};
use aya_obj::{Function, Object};

use super::super::{
    error::MultiError,
    syscall::{self, Records},
    table::Program,
};

/// Bytes of the verifier's log that are kept of a refusal: its end, on the kernels that have these links.
const LOG_BYTES: usize = 64 << 10;
/// What the kernel answers to a link into something that is no regular file, if it knows such links.
const NO_REGULAR_FILE: i32 = libc::EBADF;

/// Programs that can be at many places with one link.
#[derive(Debug)]
pub(super) struct Multi {
    loaded: BTreeMap<Program, OwnedFd>,
}

/// The object with its calls and maps resolved.
struct Resolved {
    object: Object,
    types: Option<OwnedFd>,
}

impl Multi {
    /// Loads those programs; the second value has those that the kernel refused, with its reason. An error where it has
    /// no such links.
    pub(super) fn load(
        bytes: &[u8],
        bpf: &Ebpf,
        programs: impl Iterator<Item = Program>,
    ) -> Result<(Self, BTreeMap<Program, String>), MultiError> {
        let resolved = Resolved::new(bytes, bpf)?;
        let (mut loaded, mut refused) = (BTreeMap::new(), BTreeMap::new());
        for program in programs {
            match resolved.load(program) {
                Ok(descriptor) => _ = loaded.insert(program, descriptor),
                Err(reason) => _ = refused.insert(program, reason),
            }
        }
        let multi = Self { loaded };
        multi.try_link()?;
        Ok((multi, refused))
    }

    /// Asks for a link into a folder: kernels that do not know these links object to the link, others to the folder.
    fn try_link(&self) -> Result<(), MultiError> {
        let program = self.loaded.values().next().ok_or(MultiError::NothingLoaded)?;
        let answer = syscall::link_uprobe_multi(program.as_fd(), false, c"/", &[0], &[0]);
        match answer.map_err(|error| (error.raw_os_error(), error)) {
            Err((Some(NO_REGULAR_FILE), _)) => Ok(()),
            Err((_, error)) => Err(MultiError::Kernel(error)),
            Ok(_link) => Err(MultiError::Kernel(io::Error::other("it takes a folder for a file"))),
        }
    }

    /// Puts a program at these places, offset and cookie, of an open file.
    pub(super) fn attach(
        &self,
        program: Program,
        returns: bool,
        file: RawFd,
        places: &[(u64, u64)],
    ) -> io::Result<OwnedFd> {
        let loaded = self.loaded.get(program).ok_or_else(|| io::Error::other("the program is not loaded"))?;
        let (offsets, cookies): (Vec<u64>, Vec<u64>) = places.iter().copied().unzip();
        // Through our own descriptor: the process that maps the file may be gone, its path may lead elsewhere.
        let path = CString::new(format!("/proc/self/fd/{file}")).map_err(io::Error::other)?;
        syscall::link_uprobe_multi(loaded.as_fd(), returns, &path, &offsets, &cookies)
    }

    /// Instructions the verifier walked, by program: the kernel tells them beside the descriptor.
    pub(super) fn verified_instructions(&self) -> impl Iterator<Item = (String, u32)> {
        self.loaded.iter().filter_map(|(name, descriptor)| {
            let path = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
            let text = std::fs::read_to_string(path).ok()?;
            let number = text.lines().find_map(|line| line.strip_prefix("verified_insns:"))?;
            Some(((*name).to_owned(), number.trim().parse().ok()?))
        })
    }
}

impl Resolved {
    fn new(bytes: &[u8], bpf: &Ebpf) -> Result<Self, MultiError> {
        let mut object = Object::parse(bytes)?;
        let types = match aya::features().btf() {
            Some(features) => object.fixup_and_sanitize_btf(features)?.map(aya_obj::btf::Btf::to_bytes),
            None => None,
        };
        let types = types.map(|types| syscall::load_btf(&types)).transpose().map_err(MultiError::Kernel)?;
        let descriptors: BTreeMap<&str, RawFd> =
            bpf.maps().filter_map(|(name, map)| Some((name, descriptor(map)?))).collect();
        let maps = std::mem::take(&mut object.maps);
        let maps = maps
            .iter()
            .filter_map(|(name, map)| Some((name.as_str(), *descriptors.get(name.as_str())?, map)));
        let sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        object.relocate_maps(maps, &sections)?;
        object.relocate_calls(&sections)?;
        object.sanitize_functions(aya::features());
        Ok(Self { object, types })
    }

    fn load(&self, name: Program) -> Result<OwnedFd, String> {
        let program = self.object.programs.get(name);
        let function = program.and_then(|program| self.object.functions.get(&program.function_key()));
        let (Some(program), Some(function)) = (program, function) else {
            return Err("it is not in the object: agent and object are of different versions".to_owned());
        };
        let instructions = instruction_bytes(function);
        let (functions, lines) = (function.func_info.func_info_bytes(), function.line_info.line_info_bytes());
        let types = self.types.as_ref().map(|types| {
            let count = function.func_info.len();
            let functions = Records { bytes: &functions, count, size: function.func_info_rec_size };
            let count = function.line_info.len();
            (types.as_fd(), functions, Records { bytes: &lines, count, size: function.line_info_rec_size })
        });
        let program =
            syscall::Program { name, license: &program.license, instructions: &instructions, types };
        syscall::load_uprobe_multi(&program, &mut []).or_else(|_| {
            let mut log = vec![0; LOG_BYTES];
            syscall::load_uprobe_multi(&program, &mut log)
                .map_err(|error| super::load::reason(&error, &text(&log)))
        })
    }
}

fn text(log: &[u8]) -> String {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).into_owned()
}

/// As the kernel reads them: code, two registers of four bits each, offset, immediate value.
fn instruction_bytes(function: &Function) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(function.instructions.len() * 8);
    for instruction in &function.instructions {
        bytes.extend([instruction.code, instruction.dst_reg() | instruction.src_reg() << 4]);
        bytes.extend(instruction.off.to_le_bytes());
        bytes.extend(instruction.imm.to_le_bytes());
    }
    bytes
}

/// Of the kinds of map that the object has.
fn descriptor(map: &Map) -> Option<RawFd> {
    let data: &MapData = match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerCpuHashMap(data)
        | Map::PerCpuLruHashMap(data)
        | Map::RingBuf(data)
        | Map::SkStorage(data)
        | Map::Unsupported(data) => data,
        _ => return None,
    };
    Some(data.fd().as_fd().as_raw_fd())
}
