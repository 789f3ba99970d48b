//! The first instructions of a function: where a probe costs least, and what it costs there.
//!
//! The kernel emulates a few instructions and single-steps all others, which is several times as dear. Functions
//! built for indirect branch tracking begin with `endbr64`, which is not emulated, and usually go on with `push`,
//! which is: the probe then goes behind the marker. No register or stack slot has changed there.

use super::verdict::CostClass;

/// What a probe would replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// `push` of a register: emulated.
    Push,
    /// One-byte `nop`: emulated.
    Nop,
    /// `nop` of five bytes: emulated, and on new kernels rewritten.
    Nop5,
    /// Anything else: single-stepped.
    Other,
}

impl Instruction {
    /// What one hit costs.
    pub const fn cost(self) -> CostClass {
        match self {
            Self::Push | Self::Nop | Self::Nop5 => CostClass::Emulated,
            Self::Other => CostClass::SingleStep,
        }
    }
}

/// Where to attach, counted from the function's first byte, and what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Bytes from the entry.
    pub skip: u64,
    /// The instruction there.
    pub instruction: Instruction,
}

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Chooses the place from a function's first bytes (x86-64; elsewhere always the entry).
pub fn place(code: &[u8]) -> Place {
    if !cfg!(target_arch = "x86_64") {
        return Place { skip: 0, instruction: Instruction::Other };
    }
    if let Some(rest) = code.strip_prefix(&ENDBR64)
        && decode(rest) == Instruction::Push
    {
        return Place { skip: ENDBR64.len() as u64, instruction: Instruction::Push };
    }
    Place { skip: 0, instruction: decode(code) }
}

fn decode(code: &[u8]) -> Instruction {
    match code {
        [0x50..=0x57, ..] | [0x40..=0x4f, 0x50..=0x57, ..] => Instruction::Push,
        [0x90, ..] => Instruction::Nop,
        [0x0f, 0x1f, 0x44, 0x00, 0x00, ..] => Instruction::Nop5,
        _ => Instruction::Other,
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_safe_place_is_chosen() {
        let cases: &[(&str, &[u8], u64, Instruction)] = &[
            ("push rbp", &[0x55, 0x48, 0x89, 0xe5], 0, Instruction::Push),
            ("push r15", &[0x41, 0x57], 0, Instruction::Push),
            ("endbr64; push rbp", &[0xf3, 0x0f, 0x1e, 0xfa, 0x55], 4, Instruction::Push),
            ("endbr64; push r12", &[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x54], 4, Instruction::Push),
            ("endbr64; sub rsp", &[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x18], 0, Instruction::Other),
            ("endbr64; nop5", &[0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0, 0], 0, Instruction::Other),
            ("sub rsp", &[0x48, 0x83, 0xec, 0x18], 0, Instruction::Other),
            ("nop", &[0x90], 0, Instruction::Nop),
            ("nop5", &[0x0f, 0x1f, 0x44, 0, 0], 0, Instruction::Nop5),
            ("nothing", &[], 0, Instruction::Other),
        ];
        for (name, code, skip, instruction) in cases {
            assert_eq!(place(code), Place { skip: *skip, instruction: *instruction }, "{name}");
        }
    }
}
