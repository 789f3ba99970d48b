//! Which compiler and linker can produce BPF objects here.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use thiserror::Error;

use crate::{TARGET, tools_dir};

/// A compiler and a linker that together can build the kernel side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolchain {
    /// Which compiler, and how it gets its `core`.
    pub way: Way,
    /// `bpf-linker`.
    pub linker: PathBuf,
}

/// How the compiler comes by `core` for the BPF target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// rustup's nightly compiles it from `rust-src`.
    Rustup,
    /// This packaged compiler brings it prebuilt.
    Packaged {
        /// The compiler.
        rustc: PathBuf,
    },
}

/// Why there is no toolchain; each message says what to run.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ToolchainError {
    /// No compiler that knows the target.
    #[error(
        "no Rust compiler here can build for {TARGET}: run `cargo xtask setup`, or by hand either \
         `rustup toolchain install nightly --component rust-src` or (Debian) \
         `apt-get install rustc-web libstd-rust-web-dev-bpf llvm-22-dev`"
    )]
    NoCompiler,
    /// A compiler, but no linker.
    #[error(
        "bpf-linker is neither in {} nor in PATH: run `cargo xtask setup`, or by hand \
         `cargo install bpf-linker`", tools.display()
    )]
    NoLinker {
        /// Where it was looked for besides PATH.
        tools: PathBuf,
    },
}

/// The first usable toolchain of this machine.
pub fn find_toolchain() -> Result<Toolchain, ToolchainError> {
    let way = find_rustup().or_else(find_packaged).ok_or(ToolchainError::NoCompiler)?;
    let tools = tools_dir().join("bin");
    let linker = find_linker(&tools).ok_or(ToolchainError::NoLinker { tools })?;
    Ok(Toolchain { way, linker })
}

/// Nightly alone is not enough: without `rust-src` there is no `core` for the target.
fn find_rustup() -> Option<Way> {
    let sysroot = sysroot(Command::new("rustup").args(["run", "nightly", "rustc"]))?;
    sysroot.join("lib/rustlib/src/rust/library/core").is_dir().then_some(Way::Rustup)
}

fn find_packaged() -> Option<Way> {
    let rustc = PathBuf::from("/usr/bin/rustc");
    let sysroot = sysroot(&mut Command::new(&rustc))?;
    has_core(&sysroot.join("lib/rustlib").join(TARGET).join("lib")).then_some(Way::Packaged { rustc })
}

fn sysroot(rustc: &mut Command) -> Option<PathBuf> {
    // The outer cargo pins a toolchain through these; the question is about another one.
    rustc.env_remove("RUSTUP_TOOLCHAIN").env_remove("RUSTC_WRAPPER");
    let output = rustc.args(["--print", "sysroot"]).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(path.trim_end()))
}

fn has_core(dir: &Path) -> bool {
    let is_core = |name: &str| {
        name.starts_with("libcore-") && Path::new(name).extension().is_some_and(|ext| ext == "rlib")
    };
    dir.read_dir()
        .is_ok_and(|entries| entries.flatten().any(|entry| is_core(&entry.file_name().to_string_lossy())))
}

fn find_linker(tools: &Path) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    std::iter::once(tools.to_path_buf())
        .chain(env::split_paths(&path))
        .map(|dir| dir.join("bpf-linker"))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = env::temp_dir().join(format!("ebpf-build-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn core_is_found_by_its_rlib_only() {
        let dir = scratch("core");
        assert!(!has_core(&dir));
        fs::write(dir.join("libcore-1.rmeta"), "").unwrap();
        assert!(!has_core(&dir));
        fs::write(dir.join("libcore-1.rlib"), "").unwrap();
        assert!(has_core(&dir));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_workspaces_own_linker_wins() {
        let dir = scratch("linker");
        let own = dir.join("bpf-linker");
        fs::write(&own, "").unwrap();
        assert_eq!(find_linker(&dir), Some(own));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn errors_say_what_to_run() {
        let errors = [ToolchainError::NoCompiler, ToolchainError::NoLinker { tools: tools_dir() }];
        for error in errors {
            assert!(error.to_string().contains("cargo xtask setup"), "{error}");
        }
    }
}
