//! Finds a BPF toolchain on this machine and builds the kernel side with it.
//!
//! Used by the agent's build script and by `cargo xtask`, so that "which toolchain, which flags" is written once.
//! Two ways, tried in this order: a rustup nightly with `rust-src`, which builds `core` itself; and a packaged
//! compiler that ships `core` for the BPF target (Debian's `rustc-web` with `libstd-rust-web-dev-bpf`).

mod compile;
mod stack;
mod toolchain;

use std::path::{Path, PathBuf};

pub use compile::{BuildError, build};
pub use toolchain::{Toolchain, ToolchainError, Way, find_toolchain};

/// The compiler's name for the kernel's virtual machine, little endian.
pub const TARGET: &str = "bpfel-unknown-none";

/// Root of the workspace this crate was built in.
pub fn workspace_root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// Where `cargo xtask setup` installs tools (`cargo install --root` of this directory).
pub fn tools_dir() -> PathBuf {
    workspace_root().join("target/tools")
}
