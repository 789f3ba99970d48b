//! The BPF object file inside this binary.

/// The kernel side, as built by `build.rs`; empty when there was no BPF toolchain.
pub static BPF_OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/stagelens-ebpf"));
