//! Which hooks see socket calls.

use serde::Serialize;
use wire::{names, socket::Offsets};

use super::{btf::Btf, error::ProbeError, table::Program};

/// Which hooks are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketTier {
    /// Tier A where the kernel has it, else tier B.
    #[default]
    Auto,
    /// Tier A, or fail.
    A,
    /// Tier B, or fail.
    B,
}

/// Which hooks are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// `sock_send_length` and `sock_recv_length` (Linux 6.3).
    #[default]
    A,
    /// `sys_exit`.
    B,
}

/// The tracepoints of tier A.
const TRACEPOINTS: [&str; 2] = ["sock_send_length", "sock_recv_length"];

impl Tier {
    /// The tier to use on this kernel. Whether it attaches, the verdicts of its programs say.
    pub(super) fn pick(wanted: SocketTier, btf: Option<&Btf>, offsets: &Offsets) -> Result<Self, ProbeError> {
        match wanted {
            SocketTier::A => Ok(Self::A),
            SocketTier::B if offsets.task_files == 0 => Err(ProbeError::NoFileOffsets),
            SocketTier::B => Ok(Self::B),
            SocketTier::Auto => Ok(Self::best(btf, offsets)),
        }
    }

    fn best(btf: Option<&Btf>, offsets: &Offsets) -> Self {
        let has_a = btf.is_none_or(|btf| TRACEPOINTS.iter().all(|name| btf.has_tracepoint(name)));
        if has_a || offsets.task_files == 0 { Self::A } else { Self::B }
    }

    /// Its programs.
    pub(super) const fn programs(self) -> &'static [Program] {
        match self {
            Self::A => &[names::PROG_SOCK_RECV, names::PROG_SOCK_SEND],
            Self::B => &[names::PROG_SOCK_EXIT],
        }
    }

    /// A program of the other tier.
    pub(super) fn excludes(self, program: Program) -> bool {
        let other = if self == Self::A { Self::B } else { Self::A };
        other.programs().contains(&program)
    }

    /// Its name and hooks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "tier A (sock_send_length, sock_recv_length)",
            Self::B => "tier B (sys_exit)",
        }
    }

    /// What it costs.
    pub const fn cost(self) -> &'static str {
        match self {
            Self::A => "nothing on system calls that are no socket calls",
            Self::B => "about 0.15 microseconds on every system call of the node",
        }
    }

    /// What it does not see.
    pub const fn blind_spots(self) -> &'static str {
        match self {
            Self::A => {
                "what is spliced out of a socket; the bytes of io_uring, sendfile, splice and 32-bit programs (their number is known)"
            }
            Self::B => {
                "io_uring and 32-bit programs; the bytes of sendfile and splice (their number is known)"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tier_follows_what_is_wanted_and_what_is_known() {
        let known = Offsets { task_files: 8, ..Offsets::default() };
        let unknown = Offsets::default();
        let pick = |wanted, offsets| Tier::pick(wanted, None, offsets).ok();
        assert_eq!(pick(SocketTier::Auto, &known), Some(Tier::A));
        assert_eq!(pick(SocketTier::A, &unknown), Some(Tier::A));
        assert_eq!(pick(SocketTier::B, &known), Some(Tier::B));
        assert_eq!(pick(SocketTier::B, &unknown), None);
        assert!(Tier::A.excludes(names::PROG_SOCK_EXIT) && !Tier::B.excludes(names::PROG_SOCK_EXIT));
    }
}
