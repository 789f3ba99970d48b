//! bpf-linker, which turns the compiler's output into a BPF object.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{cargo, quiet};
use crate::{debian, workspace};

/// The version this workspace is tested with.
const VERSION: &str = "0.13.0";

/// LLVMs it can be built on, best first: the version must be at least that of the compiler's own LLVM.
const LLVMS: [u32; 2] = [22, 23];

/// Installs it into `target/tools`.
pub(crate) fn install() -> Result<()> {
    let (version, prefix) = match find_llvm() {
        Some(found) => found,
        None => install_llvm()?,
    };
    let mut install = cargo();
    install
        .args(["install", "--quiet", "--locked", "--root"])
        .arg(workspace::tools())
        .args(["bpf-linker", "--version", VERSION, "--no-default-features", "--features"])
        .arg(format!("llvm-{version}"))
        .env("LLVM_PREFIX", prefix);
    quiet(&mut install).map(drop)
}

/// The first line of `bpf-linker --version`.
pub(crate) fn version(linker: &Path) -> Result<String> {
    let said = quiet(Command::new(linker).arg("--version"))?;
    Ok(said.lines().next().unwrap_or_default().to_owned())
}

fn install_llvm() -> Result<(u32, PathBuf)> {
    debian::install(&[LLVM_PACKAGE]).context("bpf-linker needs LLVM's development files")?;
    find_llvm().with_context(|| format!("{LLVM_PACKAGE} is installed, but there is no llvm-config of it"))
}

/// LLVM's development files.
pub(crate) const LLVM_PACKAGE: &str = "llvm-22-dev";

fn find_llvm() -> Option<(u32, PathBuf)> {
    LLVMS.into_iter().map(|version| (version, PathBuf::from(format!("/usr/lib/llvm-{version}")))).find(
        |(_, prefix)| prefix.join("bin/llvm-config").is_file() && prefix.join("include/llvm-c").is_dir(),
    )
}
