//! Why the agent cannot attach at all. What fails for one program only is a verdict, not an error.

use std::{error::Error, io};

use aya::{BtfError, EbpfError, maps::MapError};
use aya_obj::{ParseError, relocation::EbpfRelocationError};
use thiserror::Error;

use super::hazards::KernelVersion;

/// Reasons to give up at start.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// No toolchain when this binary was built.
    #[error("built without BPF programs; run `cargo xtask setup` and build again")]
    NoObject,
    /// Process numbers of `/proc` are not those the kernel reports.
    #[error(
        "this process is in a PID namespace of its own and cannot tell processes apart; run it on the host, or with `--pid=host` / `hostPID: true`"
    )]
    PidNamespace,
    /// Too old for attach cookies.
    #[error("kernel {}.{}.{} is too old: 5.15 is the oldest that works", .0.major, .0.minor, .0.patch)]
    KernelTooOld(KernelVersion),
    /// A release string that is no version.
    #[error("cannot tell the kernel's version from {0:?}")]
    KernelUnknown(String),
    /// Missing capabilities.
    #[error(
        "not permitted to load BPF programs: run as root, or give CAP_SYS_ADMIN, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
    )]
    NotPermitted(#[source] EbpfError),
    /// The object as a whole could not be loaded.
    #[error("the BPF object cannot be loaded")]
    Load(#[source] EbpfError),
    /// The object lacks a map: it was built from another version.
    #[error("the BPF object has no map {0}: agent and object are of different versions")]
    NoMap(&'static str),
    /// A map could not be opened.
    #[error("map {name}")]
    Map {
        /// Name of the map.
        name: &'static str,
        /// Why.
        #[source]
        source: MapError,
    },
    /// A tier was demanded.
    #[error("socket.tier demands {tier}, which cannot be had on this kernel: {reason}")]
    SocketTier {
        /// Which.
        tier: &'static str,
        /// Why not.
        reason: String,
    },
    /// Tier B was demanded.
    #[error(
        "socket.tier = \"b\" needs kernel type information on files and sockets: use a kernel built with CONFIG_DEBUG_INFO_BTF"
    )]
    NoFileOffsets,
    /// Network timing was demanded.
    #[error("socket.network_timing = \"on\" cannot be had on this kernel: {0}")]
    NetworkTiming(String),
    /// No way to be woken by the kernel side.
    #[error("cannot wait for the ring buffer")]
    Ring(#[source] io::Error),
    /// No thread for discovery.
    #[error("cannot start the discovery thread")]
    Thread(#[source] io::Error),
}

/// Why probes are attached one by one instead of all places of a program at once. Nothing is lost but time at the end.
#[derive(Debug, Error)]
pub(super) enum MultiError {
    /// The object as this agent reads it.
    #[error("the BPF object cannot be read")]
    Object(#[from] ParseError),
    /// Type information of the object.
    #[error("type information of the BPF object")]
    Types(#[from] BtfError),
    /// A call or a map that could not be found.
    #[error("the BPF object cannot be resolved")]
    Relocation(#[from] EbpfRelocationError),
    /// The kernel has no such links (before 6.6), or does not let this process have any.
    #[error("the kernel refuses links to many places (it has them since 6.6)")]
    Kernel(#[source] io::Error),
    /// Every program was refused.
    #[error("no program could be loaded for links to many places")]
    NothingLoaded,
}

impl ProbeError {
    /// Sorts a failed load by whether more rights would help.
    pub(super) fn from_load(error: EbpfError) -> Self {
        let denied = sources(&error).any(|source| {
            source.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::PermissionDenied)
        });
        if denied { Self::NotPermitted(error) } else { Self::Load(error) }
    }
}

fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// An error and its sources on one line; a source that repeats what was said is left out, as some libraries repeat
/// a source in their own text.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for part in sources(error).map(ToString::to_string) {
        if text.contains(&part) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&part);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_sources_once() {
        let inner = io::Error::from_raw_os_error(1);
        let error = ProbeError::Map {
            name: "SCOPE",
            source: MapError::SyscallError(aya::sys::SyscallError { call: "bpf", io_error: inner }),
        };
        let text = chain(&error);
        assert!(text.starts_with("map SCOPE: "), "{text}");
        assert_eq!(text.matches("Operation not permitted").count(), 1, "{text}");
    }
}
