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

/// A binary of the tests, as it was built with them.
pub fn test_binary(name: &str) -> Result<PathBuf> {
    existing(root().join("target/debug").join(name))
}

/// The simulated driver.
pub fn libcuda() -> Result<PathBuf> {
    existing(root().join("target/rig/libcuda.so.1"))
}

/// The thin runtime.
pub fn libcudart() -> Result<PathBuf> {
    existing(root().join("target/rig/libcudart.so.12"))
}

/// The simulated library of NVML.
pub fn libnvidia_ml() -> Result<PathBuf> {
    existing(root().join("target/rig/libnvidia-ml.so.1"))
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
    if !is_admin(&std::fs::read_to_string("/proc/self/status").unwrap_or_default()) {
        return Some("this root has no CAP_SYS_ADMIN, as in a container without --privileged".into());
    }
    ["/sys/kernel/btf/vmlinux", "/sys/bus/event_source/devices/uprobe/type"]
        .iter()
        .find(|path| !Path::new(path).exists())
        .map(|path| format!("the kernel does not offer what BPF needs: there is no {path}"))
}

/// The capability that loading and attaching take is in the effective set of a `/proc/PID/status`.
fn is_admin(status: &str) -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    set.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|set| set >> CAP_SYS_ADMIN & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_in_a_container_is_no_admin() {
        for (set, admin) in
            [("000001ffffffffff", true), ("00000000a80425fb", false), ("", false), ("?", false)]
        {
            assert_eq!(is_admin(&format!("Name:\tx\nCapEff:\t{set}\n")), admin, "{set}");
        }
        assert!(!is_admin(""));
    }
}
