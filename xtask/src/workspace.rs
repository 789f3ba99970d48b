//! Where things are.

use std::path::PathBuf;

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    ebpf_build::workspace_root().to_path_buf()
}

/// What builds leave behind.
pub(crate) fn target() -> PathBuf {
    root().join("target")
}

/// What `setup` installs.
pub(crate) fn tools() -> PathBuf {
    ebpf_build::tools_dir()
}

/// Release binaries.
pub(crate) fn release() -> PathBuf {
    target().join("release")
}
