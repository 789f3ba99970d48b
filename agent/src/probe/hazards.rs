//! What could hurt a target, checked before each attach. Pure: facts in, decision and sentence out.
//!
//! A uprobe is tied to a library's inode, so it fires in every process that maps it, now or later: a rule that
//! depends on one process (a seccomp filter, say) must hold for processes that nobody has seen yet.

use super::prologue::Instruction;

/// Release of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

impl KernelVersion {
    /// From its numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// From a release string such as `6.8.0-45-generic`.
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers =
            release.split(|c: char| c == '.' || !c.is_ascii_digit()).map_while(|part| part.parse().ok());
        Some(Self::new(numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0)))
    }

    const fn is(self, major: u32, minor: u32) -> bool {
        self.major == major && self.minor == minor
    }
}

/// What is about to be attached, and where.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Release of the running kernel.
    pub kernel: KernelVersion,
    /// Processor is x86-64.
    pub x86_64: bool,
    /// The probe fires at the return of the function.
    pub returns: bool,
    /// The instruction it would replace.
    pub instruction: Instruction,
    /// Deepest stack of a function in the program, in bytes; `None` when the build did not check it.
    pub stack_bytes: Option<u32>,
    /// The file was linked by Go.
    pub go: bool,
}

/// Whether to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No known hazard.
    Attach,
    /// Would risk the target; the sentence says why.
    Refuse(&'static str),
}

/// One row: when it applies, and what to say.
struct Hazard {
    applies: fn(&Facts) -> bool,
    sentence: &'static str,
}

const HAZARDS: &[Hazard] = &[
    Hazard {
        applies: |facts| facts.returns && facts.x86_64 && kills_uretprobes_under_seccomp(facts.kernel),
        sentence: "this kernel kills a process with a seccomp filter (any container) when a return probe fires; \
                   fixed in 6.12.16, 6.13.4 and 6.14",
    },
    Hazard {
        // C within such a program runs on a stack that stays, but nothing in the file says which functions are C's.
        applies: |facts| facts.returns && facts.go,
        sentence: "the program was linked by Go, which moves stacks and crashes on a return address that is not its own",
    },
    Hazard {
        applies: |facts| {
            facts.x86_64
                && facts.instruction == Instruction::Nop5
                && facts.kernel >= KernelVersion::new(6, 18, 0)
        },
        sentence: "the function begins with a 5-byte nop, which this kernel turns into a call that can overwrite \
                   the caller's red zone",
    },
    Hazard {
        applies: |facts| {
            facts.kernel >= KernelVersion::new(6, 13, 0)
                && facts.stack_bytes.is_some_and(|bytes| bytes >= PRIVATE_STACK_BYTES)
        },
        sentence: "the program's stack is 64 bytes or more, which this kernel keeps per processor although the \
                   program can be preempted",
    },
    Hazard {
        applies: |facts| facts.kernel == KernelVersion::new(6, 6, 58),
        sentence: "kernel 6.6.58 faults in is_uprobe_at_func_entry when a probed process is profiled",
    },
    Hazard {
        applies: |facts| facts.kernel < KernelVersion::new(5, 15, 0),
        sentence: "kernels before 5.15 have no attach cookies, without which functions cannot be told apart",
    },
];

/// `BPF_PRIV_STACK_MIN_SIZE` of the kernel.
const PRIVATE_STACK_BYTES: u32 = 64;

/// The `uretprobe` system call came in 6.11; filters were told to let it pass in 6.14, and in later 6.12 and 6.13
/// releases (the bounds here are on the safe side).
fn kills_uretprobes_under_seccomp(kernel: KernelVersion) -> bool {
    kernel.is(6, 11) || (kernel.is(6, 12) && kernel.patch < 16) || (kernel.is(6, 13) && kernel.patch < 4)
}

/// Checks every row of the table; the first that applies decides.
pub fn check(facts: &Facts) -> Decision {
    HAZARDS
        .iter()
        .find(|hazard| (hazard.applies)(facts))
        .map_or(Decision::Attach, |hazard| Decision::Refuse(hazard.sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAFE: Facts = Facts {
        kernel: KernelVersion::new(6, 18, 44),
        x86_64: true,
        returns: false,
        instruction: Instruction::Push,
        stack_bytes: Some(48),
        go: false,
    };

    #[test]
    fn releases_are_read() {
        let cases = [
            ("6.18.44-fc-v857", Some((6, 18, 44))),
            ("5.15.0-1053-aws", Some((5, 15, 0))),
            ("6.12-rc3", Some((6, 12, 0))),
            ("6.6.58", Some((6, 6, 58))),
            ("unknown", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(major, minor, patch)| KernelVersion::new(major, minor, patch));
            assert_eq!(KernelVersion::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn each_row_refuses_where_it_applies_and_only_there() {
        let at = |major, minor, patch| Facts { kernel: KernelVersion::new(major, minor, patch), ..SAFE };
        let back = |facts| Facts { returns: true, ..facts };
        let cases: &[(&str, Facts, Option<&str>)] = &[
            ("entry", SAFE, None),
            ("return", back(SAFE), None),
            ("return, before the system call", back(at(6, 10, 14)), None),
            ("return, 6.11", back(at(6, 11, 11)), Some("seccomp")),
            ("return, 6.12 early", back(at(6, 12, 9)), Some("seccomp")),
            ("return, 6.12 fixed", back(at(6, 12, 40)), None),
            ("return, 6.13 early", back(at(6, 13, 1)), Some("seccomp")),
            ("return, 6.14", back(at(6, 14, 0)), None),
            ("return, 6.11 on arm", Facts { x86_64: false, ..back(at(6, 11, 0)) }, None),
            ("entry, 6.11", at(6, 11, 0), None),
            ("return, Go", Facts { go: true, ..back(SAFE) }, Some("Go")),
            ("entry, Go", Facts { go: true, ..SAFE }, None),
            ("nop5", Facts { instruction: Instruction::Nop5, ..SAFE }, Some("red zone")),
            ("nop5, older", Facts { instruction: Instruction::Nop5, ..at(6, 17, 0) }, None),
            ("deep stack", Facts { stack_bytes: Some(64), ..SAFE }, Some("preempted")),
            ("deep stack, older", Facts { stack_bytes: Some(512), ..at(6, 12, 40) }, None),
            ("unchecked stack", Facts { stack_bytes: None, ..SAFE }, None),
            ("6.6.58", at(6, 6, 58), Some("6.6.58")),
            ("6.6.59", at(6, 6, 59), None),
            ("5.10", at(5, 10, 200), Some("cookies")),
        ];
        for (name, facts, refused) in cases {
            match (check(facts), refused) {
                (Decision::Attach, None) => {}
                (Decision::Refuse(sentence), Some(word)) => {
                    assert!(sentence.contains(word), "{name}: {sentence}");
                }
                (decision, _) => panic!("{name}: {decision:?}"),
            }
        }
    }
}
