//! [1] Where facts come from: the kernel's ring buffer, recordings, `/proc`, NVML.

pub mod diag;
pub mod nvml;
pub mod procfs;
pub mod recording;
pub mod ring;
