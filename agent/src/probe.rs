//! [0] Finding what to watch, and attaching to it. The only module with `unsafe` and the only one that changes
//! anything on the host.
