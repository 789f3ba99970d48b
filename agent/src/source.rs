//! [1] Where record bytes come from: the kernel's ring buffer, /proc, or a recording.

pub mod recording;
