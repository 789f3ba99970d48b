//! [1] Where facts come from: the kernel's ring buffer, recordings, `/proc`.

pub mod procfs;
pub mod recording;
pub mod ring;
