//! Exported functions of a shared library to places in its file. Bounded: the file may be hostile.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
};

use object::{
    Object, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind,
    elf::{FileHeader64, PF_X},
    read::{
        ReadCache, ReadRef,
        elf::{ElfFile, FileHeader},
    },
};
use thiserror::Error;

/// No driver is near this; a larger file is not read.
const MAX_FILE: u64 = 4 << 30;
/// Bytes that are read of a file, symbol tables and names together; a real driver needs a fiftieth of it.
const MAX_READ: u64 = 32 << 20;
/// No driver is near this number of dynamic symbols.
const MAX_SYMBOLS: usize = 1 << 20;
/// Names of other functions that are kept.
const MAX_OTHERS: usize = 64;
/// First bytes of a function, enough for its first two instructions.
pub const PROLOGUE: usize = 16;

/// Why a file's functions are not known.
#[derive(Debug, Error)]
pub enum ElfError {
    /// The file could not be read.
    #[error("cannot be read")]
    Read(#[from] io::Error),
    /// Not a shared library this agent understands, or a damaged one.
    #[error("is not a valid 64-bit ELF library")]
    Invalid(#[from] object::Error),
    /// Larger than any driver.
    #[error("has {bytes} bytes, more than the {MAX_FILE} that are read")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// More symbols than any driver.
    #[error("has more than {MAX_SYMBOLS} dynamic symbols")]
    TooManySymbols,
    /// Built for another processor than the one it runs on.
    #[error("is for another processor (ELF machine {machine})")]
    Machine {
        /// `e_machine`.
        machine: u16,
    },
}

/// A function in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Offset of its first instruction in the file, which is what the kernel attaches by.
    pub offset: u64,
    /// Its first bytes; zero where the file ends.
    pub prologue: [u8; PROLOGUE],
}

/// The section in which Go's linker says how it built a program; it stays when symbols are stripped.
const GO_SECTION: &str = ".go.buildinfo";

/// What was found in a file.
#[derive(Debug, Default)]
pub struct Exports<'n> {
    /// The exported functions among those that were wanted. Absent ones are simply not here.
    pub functions: BTreeMap<&'n str, Function>,
    /// Names of other exported functions that were asked about, [`MAX_OTHERS`] at most.
    pub others: Vec<String>,
    /// It was linked by Go, whatever else is in it.
    pub is_go: bool,
}

/// Finds the exported functions among `wanted`, and the names of those for which `is_other`.
pub fn exports<'n>(
    file: &File,
    wanted: &[&'n str],
    is_other: impl Fn(&str) -> bool,
) -> Result<Exports<'n>, ElfError> {
    let bytes = file.metadata()?.len();
    if bytes > MAX_FILE {
        return Err(ElfError::TooLarge { bytes });
    }
    let bounded = Bounded(ReadCache::new(Budgeted { file, left: MAX_READ }));
    let elf = ElfFile::<FileHeader64<object::Endianness>, _>::parse(&bounded)?;
    let machine = elf.elf_header().e_machine(elf.endian());
    if machine != NATIVE_MACHINE {
        return Err(ElfError::Machine { machine });
    }
    let mut found = Exports::default();
    for (index, symbol) in elf.dynamic_symbols().enumerate() {
        if index >= MAX_SYMBOLS {
            return Err(ElfError::TooManySymbols);
        }
        // An indirect function's symbol is its resolver, not the function.
        if !symbol.is_definition() || symbol.kind() != SymbolKind::Text || symbol.address() == 0 {
            continue;
        }
        let Ok(name) = symbol.name() else { continue };
        let Some(&name) = wanted.iter().find(|&&candidate| candidate == name) else {
            if found.others.len() < MAX_OTHERS && is_other(name) {
                found.others.push(name.to_owned());
            }
            continue;
        };
        if let Some(offset) = code_offset(&elf, symbol.address(), bytes) {
            found.functions.insert(name, Function { offset, prologue: [0; PROLOGUE] });
        }
    }
    found.is_go = elf.section_by_name(GO_SECTION).is_some();
    drop(elf);
    drop(bounded);
    for function in found.functions.values_mut() {
        read_prologue(file, function)?;
    }
    Ok(found)
}

/// The function at an offset of the file.
pub fn function_at(file: &File, offset: u64) -> io::Result<Function> {
    let mut function = Function { offset, prologue: [0; PROLOGUE] };
    read_prologue(file, &mut function)?;
    Ok(function)
}

/// A file of which only so much is read: the sizes of tables in it are whatever its author wrote there, and a table
/// is read whole.
#[derive(Debug)]
struct Budgeted<'f> {
    file: &'f File,
    left: u64,
}

impl Read for Budgeted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(buffer.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        self.file.read(buffer)
    }
}

impl Seek for Budgeted<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// The same, where memory is taken before it is read.
#[derive(Debug)]
struct Bounded<'f>(ReadCache<Budgeted<'f>>);

impl<'a> ReadRef<'a> for &'a Bounded<'_> {
    fn len(self) -> Result<u64, ()> {
        (&self.0).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > MAX_READ { Err(()) } else { (&self.0).read_bytes_at(offset, size) }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        (&self.0).read_bytes_at_until(range, delimiter)
    }
}

#[cfg(target_arch = "x86_64")]
const NATIVE_MACHINE: u16 = object::elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const NATIVE_MACHINE: u16 = object::elf::EM_AARCH64;

/// Offset of an address in the file, if it lies in executable bytes of it.
fn code_offset<'d>(
    elf: &ElfFile<'d, FileHeader64<object::Endianness>, &'d Bounded<'_>>,
    address: u64,
    file_len: u64,
) -> Option<u64> {
    elf.segments().find_map(|segment| {
        let SegmentFlags::Elf { p_flags } = segment.flags() else { return None };
        let (start, len) = segment.file_range();
        let within = address.checked_sub(segment.address()).filter(|&within| within < len)?;
        let offset = start.checked_add(within).filter(|&offset| offset < file_len)?;
        (p_flags & PF_X != 0).then_some(offset)
    })
}

fn read_prologue(mut file: &File, function: &mut Function) -> io::Result<()> {
    file.seek(SeekFrom::Start(function.offset))?;
    let mut have = 0;
    while have < PROLOGUE {
        match file.read(&mut function.prologue[have..])? {
            0 => break,
            n => have += n,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A library that every test process maps: libc.
    fn libc() -> File {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path =
            maps.lines().find_map(|line| Some(&line[line.find('/')?..]).filter(|p| p.contains("libc.so")));
        File::open(path.expect("a dynamically linked test process maps libc")).unwrap()
    }

    fn temporary(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn find<'n>(file: &File, wanted: &[&'n str]) -> Result<Exports<'n>, ElfError> {
        exports(file, wanted, |_| false)
    }

    #[test]
    fn functions_of_a_real_library_are_found() {
        let found = find(&libc(), &["getppid", "malloc", "no_such_function"]).unwrap();
        assert!(!found.is_go);
        let found = found.functions;
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), ["getppid", "malloc"]);
        let function = found["getppid"];
        assert!(function.offset > 0);
        assert_ne!(function.prologue, [0; PROLOGUE]);
    }

    #[test]
    fn hostile_files_are_errors() {
        let mut libc_bytes = Vec::new();
        libc().read_to_end(&mut libc_bytes).unwrap();
        let damage = |at: Range<usize>| {
            let mut bytes = libc_bytes.clone();
            bytes[at].fill(0xff);
            bytes
        };
        let cases = [
            ("empty", Vec::new()),
            ("text", b"not a library at all".to_vec()),
            ("header only", libc_bytes[..64].to_vec()),
            ("cut", libc_bytes[..libc_bytes.len() / 2].to_vec()),
            ("section offset", damage(40..48)),
            ("machine", damage(18..20)),
            ("class", damage(4..5)),
        ];
        for (name, bytes) in cases {
            let found = find(&temporary(&bytes), &["getppid"]);
            assert!(found.is_err(), "{name}: {found:?}");
        }
        let program_headers = find(&temporary(&damage(32..40)), &["getppid"]);
        assert!(program_headers.is_err() || program_headers.is_ok_and(|found| found.functions.is_empty()));
    }

    /// Any user of the node can make the agent look at a file.
    #[test]
    fn a_table_of_absurd_size_is_not_read() {
        let mut file = tempfile::tempfile().unwrap();
        let mut bytes = Vec::new();
        libc().read_to_end(&mut bytes).unwrap();
        let number = |bytes: &[u8], at: usize, len: usize| {
            bytes[at..at + len].iter().rev().fold(0, |n, b| n << 8 | usize::from(*b))
        };
        let (headers, count) = (number(&bytes, 40, 8), number(&bytes, 60, 2));
        for header in (0..count).map(|i| headers + 64 * i) {
            let is_symbol_table = matches!(number(&bytes, header + 4, 4), 2 | 11);
            if is_symbol_table {
                bytes[header + 32..header + 40].copy_from_slice(&(24_u64 * 40_000_000).to_le_bytes());
            }
        }
        file.write_all(&bytes).unwrap();
        file.set_len(2 << 30).unwrap();
        let peak_kib = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
            line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap()
        };
        let before = peak_kib();
        let found = find(&file, &["getppid"]);
        assert!(matches!(found, Err(ElfError::Invalid(_))), "{found:?}");
        assert!(peak_kib() < before + 300_000, "the table has 937,500 KiB");
    }

    #[test]
    fn no_damage_panics() {
        let mut libc_bytes = Vec::new();
        libc().take(256 * 1024).read_to_end(&mut libc_bytes).unwrap();
        for at in 0..512 {
            let mut bytes = libc_bytes.clone();
            bytes[at] ^= 0xff;
            let _outcome = find(&temporary(&bytes), &["getppid"]);
        }
    }
}
