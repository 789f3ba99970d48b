//! [0] Finding what to watch, and attaching to it. The only module with `unsafe` and the only one that changes
//! anything on the host.

pub mod attach;
pub mod btf;
pub mod discovery;
pub mod elf;
mod error;
pub mod hazards;
pub mod object;
pub mod prologue;
pub mod table;
pub mod targets;
pub mod verdict;

pub use error::ProbeError;
