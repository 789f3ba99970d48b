//! [0] Finding what to watch, and attaching to it. The only module that changes
//! anything on the host.
//!
//! [`Session`] is the whole of it for the rest of the agent: it loads the programs, finds services, attaches to their
//! CUDA driver and TLS library and sends what it sees as observations; [`crate::source::ring::RingSource`] then has the records.
//! Beneath it, what decides is pure ([`table`], [`tls`], [`hazards`], [`verdict`], [`prologue`], [`discovery::group`]) and what
//! acts is thin ([`attach`], [`targets`], [`discovery`]).

pub mod attach;
pub mod btf;
pub mod discovery;
mod doctor;
pub mod elf;
mod error;
pub mod hazards;
pub mod object;
pub mod prologue;
mod session;
pub mod status;
mod syscall;
pub mod table;
pub mod targets;
mod tier;
pub mod tls;
pub mod verdict;

pub use discovery::Hints;
pub use doctor::{Check, Grade, doctor, doctor_nvml};
pub use error::ProbeError;
pub(crate) use error::chain;
pub use session::{NetworkTiming, Session, Settings, Tls};
pub use status::Status;
pub use tier::{SocketTier, Tier};
pub use verdict::ProbeVerdict;
