//! How much stack the uprobe programs use.
//!
//! Uprobe programs are preemptible. From Linux 6.13 on a subprogram of 64 bytes or more (rounded up by 16) gets a
//! private stack per CPU, and two preempted runs on one CPU then share it: hosts have panicked. The limit is checked
//! on the object, because what the compiler spills cannot be seen in the source.

use std::collections::{BTreeMap, HashMap, HashSet};

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SymbolIndex, SymbolKind};

/// Largest stack that rounds up to less than 64 bytes.
pub(crate) const LIMIT: u32 = 48;

/// Bytes of an instruction.
const SIZE: u8 = 8;
/// The read-only frame pointer, `r10`.
const FRAME: u8 = 10;

/// A function in an object: its section and its offset there.
type Place = (SectionIndex, u64);

/// A function whose stack is too large for a uprobe program, with its bytes.
pub(crate) type Offender = (String, u32);

/// The functions used by uprobe programs that use more than [`LIMIT`] bytes of stack.
pub(crate) fn offenders(object: &[u8]) -> Result<Vec<Offender>, object::Error> {
    let file = object::File::parse(object)?;
    let functions = functions(&file)?;
    let mut pending: Vec<Place> =
        functions.keys().copied().filter(|place| is_uprobe(&file, *place)).collect();
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    while let Some(place) = pending.pop() {
        let Some(function) = functions.get(&place).filter(|_| seen.insert(place)) else {
            continue;
        };
        let depth = depth(&function.code);
        if depth > LIMIT {
            found.push((function.name.clone(), depth));
        }
        pending.extend(&function.calls);
    }
    Ok(found)
}

fn is_uprobe(file: &object::File<'_>, (section, _): Place) -> bool {
    let name = file.section_by_index(section).ok().and_then(|section| section.name().ok().map(str::to_owned));
    name.is_some_and(|name| name.starts_with("uprobe") || name.starts_with("uretprobe"))
}

struct Function {
    name: String,
    code: Vec<u8>,
    calls: Vec<Place>,
}

fn functions(file: &object::File<'_>) -> Result<HashMap<Place, Function>, object::Error> {
    let mut functions = HashMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
        let Some(index) = symbol.section_index() else {
            continue;
        };
        let section = file.section_by_index(index)?;
        let Some(code) = section.data_range(symbol.address(), symbol.size())? else {
            continue;
        };
        let name = symbol.name()?.to_owned();
        let calls = calls(file, &section, symbol.address(), code);
        functions.insert((index, symbol.address()), Function { name, code: code.to_vec(), calls });
    }
    Ok(functions)
}

/// Where the calls of a function go. A call into another section is relocated; its number counts from the symbol.
fn calls(file: &object::File<'_>, section: &object::Section<'_, '_>, start: u64, code: &[u8]) -> Vec<Place> {
    let symbols: BTreeMap<u64, SymbolIndex> = section
        .relocations()
        .filter_map(|(at, relocation)| match relocation.target() {
            RelocationTarget::Symbol(symbol) => Some((at, symbol)),
            _ => None,
        })
        .collect();
    let mut calls = Vec::new();
    for (at, instruction) in (start..).step_by(SIZE.into()).zip(instructions(code)) {
        let (section, origin) = match symbols.get(&at).and_then(|symbol| file.symbol_by_index(*symbol).ok()) {
            Some(symbol) => (symbol.section_index(), symbol.address()),
            None => (Some(section.index()), at),
        };
        let target = origin.checked_add_signed((i64::from(instruction.immediate) + 1) * i64::from(SIZE));
        if let (true, Some(section), Some(target)) = (instruction.is_local_call(), section, target) {
            calls.push((section, target));
        }
    }
    calls
}

/// The lowest byte below the frame pointer that a function touches, or whose address it takes.
fn depth(code: &[u8]) -> u32 {
    let mut depth = 0;
    let mut frame_copies = 0_u16;
    for instruction in instructions(code) {
        depth = depth.max(instruction.frame_access().unwrap_or(0));
        let destination = 1 << instruction.destination;
        match instruction.opcode {
            MOVE if instruction.source == FRAME => frame_copies |= destination,
            ADD if frame_copies & destination != 0 => depth = depth.max(below(instruction.immediate)),
            _ if instruction.writes_register() => frame_copies &= !destination,
            _ => {}
        }
    }
    depth
}

fn below(offset: i32) -> u32 {
    if offset < 0 { offset.unsigned_abs() } else { 0 }
}

fn instructions(code: &[u8]) -> impl Iterator<Item = Instruction> {
    code.chunks_exact(SIZE.into()).map(Instruction::decode)
}

/// `BPF_ALU64 | BPF_MOV | BPF_X`.
const MOVE: u8 = 0xbf;
/// `BPF_ALU64 | BPF_ADD | BPF_K`.
const ADD: u8 = 0x07;
/// `BPF_JMP | BPF_CALL`.
const CALL: u8 = 0x85;

/// One instruction, as far as it matters here.
#[derive(Clone, Copy)]
struct Instruction {
    opcode: u8,
    destination: u8,
    source: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    fn decode(bytes: &[u8]) -> Self {
        Self {
            opcode: bytes[0],
            destination: bytes[1] & 0x0f,
            source: bytes[1] >> 4,
            offset: i16::from_le_bytes([bytes[2], bytes[3]]),
            immediate: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    /// The low three bits are the class: 0 and 1 load, 2 and 3 store, 4 and 7 compute, 5 and 6 jump.
    fn class(self) -> u8 {
        self.opcode & 0x07
    }

    /// Bytes below the frame pointer, if it reads or writes there.
    fn frame_access(self) -> Option<u32> {
        let base = match self.class() {
            1 => self.source,
            2 | 3 => self.destination,
            _ => return None,
        };
        (base == FRAME).then(|| below(self.offset.into()))
    }

    fn writes_register(self) -> bool {
        matches!(self.class(), 0 | 1 | 4 | 7)
    }

    /// A call of a function of the program, not of a helper.
    fn is_local_call(self) -> bool {
        self.opcode == CALL && self.source == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: u8 = 0x7b;

    fn code(instructions: &[(u8, u8, u8, i16, i32)]) -> Vec<u8> {
        let encode = |&(opcode, destination, source, offset, immediate): &(u8, u8, u8, i16, i32)| {
            let mut bytes = vec![opcode, source << 4 | destination];
            bytes.extend(offset.to_le_bytes());
            bytes.extend(immediate.to_le_bytes());
            bytes
        };
        instructions.iter().flat_map(encode).collect()
    }

    #[test]
    fn depth_is_the_lowest_access_or_address() {
        let cases = [
            ("no stack", code(&[(STORE, 1, 2, -64, 0)]), 0),
            ("a spill", code(&[(STORE, FRAME, 1, -16, 0), (STORE, FRAME, 2, -8, 0)]), 16),
            ("an address", code(&[(MOVE, 2, FRAME, 0, 0), (ADD, 2, 0, 0, -72)]), 72),
            (
                "not an address any more",
                code(&[(MOVE, 2, FRAME, 0, 0), (MOVE, 2, 1, 0, 0), (ADD, 2, 0, 0, -512)]),
                0,
            ),
        ];
        for (name, code, expected) in cases {
            assert_eq!(depth(&code), expected, "{name}");
        }
    }

    #[test]
    fn what_is_not_an_object_is_an_error() {
        assert!(offenders(b"not an object").is_err());
    }
}
