//! Where the binaries are, and whether this host can run the agent live.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// The workspace's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// A release binary of the workspace.
pub fn binary(name: &str) -> Result<PathBuf> {
    existing(root().join("target/release").join(name))
}

/// The simulated driver.
pub fn libcuda() -> Result<PathBuf> {
    existing(root().join("target/rig/libcuda.so.1"))
}

/// A tool that `cargo xtask setup` installs: from `target/tools`, else from PATH.
pub fn tool(name: &str) -> Result<PathBuf> {
    let own = root().join("target/tools/bin").join(name);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::iter::once(own)
        .chain(std::env::split_paths(&path).map(|dir| dir.join(name)))
        .find(|candidate| candidate.is_file());
    found.ok_or_else(|| anyhow::anyhow!("{name} is not installed; run `cargo xtask setup`"))
}

fn existing(path: PathBuf) -> Result<PathBuf> {
    ensure!(path.is_file(), "{} does not exist; run `cargo xtask build`", path.display());
    Ok(path)
}

/// Why the agent cannot attach anything here, as a sentence; `None` if it can, as far as one sees from outside.
pub fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("loading BPF programs needs root".into());
    }
    ["/sys/kernel/btf/vmlinux", "/sys/bus/event_source/devices/uprobe/type"]
        .iter()
        .find(|path| !Path::new(path).exists())
        .map(|path| format!("the kernel does not offer what BPF needs: there is no {path}"))
}
