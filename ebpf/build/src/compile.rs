//! The nested cargo that builds the kernel side.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};

use thiserror::Error;

use crate::toolchain::{Toolchain, Way};
use crate::{TARGET, stack};

/// Why the kernel side could not be built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// Cargo itself did not start.
    #[error("cannot start `{program}`: is cargo in PATH?")]
    Start {
        /// What was to be started.
        program: String,
        /// Why it was not.
        #[source]
        source: io::Error,
    },
    /// Cargo ran and failed.
    #[error("building the BPF programs failed ({status}); the compiler said:\n{output}")]
    Failed {
        /// How cargo ended.
        status: ExitStatus,
        /// What it wrote.
        output: String,
    },
    /// The object is there and cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The object.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The object is not one.
    #[error("the BPF object is malformed; is bpf-linker built for this compiler's LLVM?")]
    Malformed(#[from] object::Error),
    /// Uprobe programs may not use that much stack: a larger one is shared by preempted runs.
    #[error(
        "functions used by uprobe programs need more than {} bytes of stack: {offenders:?}",
        stack::LIMIT
    )]
    Stack {
        /// Names and bytes.
        offenders: Vec<(String, u32)>,
    },
    /// Cargo succeeded without leaving the object.
    #[error("the build succeeded but left no object at {}; remove {} and build again", path.display(), dir.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
        /// The nested target directory.
        dir: PathBuf,
    },
}

/// Builds the kernel side of the workspace at `workspace_root` in a target directory of its own inside `out_dir`
/// (the outer cargo holds the lock of the usual one) and returns the path of the object.
///
/// The object is for the architecture in `CARGO_CFG_TARGET_ARCH` if this runs in a build script, otherwise for
/// this machine's: register names differ, although the instructions do not.
pub fn build(toolchain: &Toolchain, workspace_root: &Path, out_dir: &Path) -> Result<PathBuf, BuildError> {
    let target_dir = out_dir.join("bpf-target");
    let mut cargo = command(toolchain, workspace_root, &target_dir);
    let output = cargo.output().map_err(|source| BuildError::Start {
        program: cargo.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    check(&output)?;
    let path = target_dir.join(TARGET).join("release/stagelens-ebpf");
    if !path.is_file() {
        return Err(BuildError::Missing { path, dir: target_dir });
    }
    check_stack(&path)?;
    Ok(path)
}

fn check_stack(path: &Path) -> Result<(), BuildError> {
    let object = fs::read(path).map_err(|source| BuildError::Read { path: path.to_owned(), source })?;
    let offenders = stack::offenders(&object)?;
    if offenders.is_empty() { Ok(()) } else { Err(BuildError::Stack { offenders }) }
}

fn command(toolchain: &Toolchain, workspace_root: &Path, target_dir: &Path) -> Command {
    let mut cargo = clean_cargo(&toolchain.way);
    cargo.args(["build", "--release", "--locked", "--package", "ebpf", "--target", TARGET]);
    if toolchain.way == Way::Rustup {
        cargo.args(["-Z", "build-std=core"]);
    }
    cargo
        .current_dir(workspace_root)
        .arg("--target-dir")
        .arg(target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(&target_arch()))
        .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &toolchain.linker)
        // One module and no unwinding: BPF has neither a second object to link nor an unwinder.
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    cargo
}

/// A cargo that knows nothing of the one that may have started us: its flags, its toolchain, its job server.
fn clean_cargo(way: &Way) -> Command {
    let mut cargo = match way {
        Way::Rustup => {
            let mut rustup = Command::new("rustup");
            rustup.args(["run", "nightly", "cargo"]);
            rustup
        }
        Way::Packaged { .. } => Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
    };
    for (name, _) in env::vars_os().filter(|(name, _)| is_inherited(name)) {
        cargo.env_remove(name);
    }
    if let Way::Packaged { rustc } = way {
        // A stable compiler: `bpf_target_arch` and the target itself count as unstable.
        cargo.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
    }
    cargo
}

/// Whether a variable was set by, or for, the outer cargo and would change what the nested one builds.
/// Settings of the user's network, registries and home stay.
fn is_inherited(name: &OsStr) -> bool {
    const KEPT: [&str; 7] = [
        "CARGO_HOME",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTR",
        "CARGO_SOURCE_",
        "CARGO_TERM_",
        "CARGO_CACHE_",
    ];
    const DROPPED: [&str; 13] = [
        "CARGO",
        "RUSTC",
        "RUSTDOC",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
        "DEP_",
        "CLIPPY_ARGS",
        "__CARGO",
        "MAKEFLAGS",
        "MFLAGS",
        "LD_LIBRARY_PATH",
        "RUST_RECURSION_COUNT",
        "RUSTUP_FORCE",
    ];
    const DROPPED_WHOLE: [&str; 8] =
        ["TARGET", "HOST", "PROFILE", "OPT_LEVEL", "DEBUG", "OUT_DIR", "NUM_JOBS", "CLIPPY_CONF_DIR"];
    let name = name.to_string_lossy();
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    (starts(&DROPPED) && !starts(&KEPT)) || DROPPED_WHOLE.contains(&&*name)
}

fn rustflags(arch: &str) -> String {
    let arch = format!("--cfg=bpf_target_arch=\"{arch}\"");
    [&arch, "-Cdebuginfo=2", "-Clink-arg=--btf"].join("\x1f")
}

fn target_arch() -> String {
    env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_else(|_| env::consts::ARCH.to_owned())
}

fn check(output: &Output) -> Result<(), BuildError> {
    if output.status.success() {
        return Ok(());
    }
    let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(BuildError::Failed { status: output.status, output: output_text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_cargos_variables_are_dropped_and_the_users_are_kept() {
        let dropped = [
            "CARGO",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_PKG_NAME",
            "CARGO_MAKEFLAGS",
            "CARGO_TARGET_DIR",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTFLAGS",
            "RUSTUP_TOOLCHAIN",
            "TARGET",
            "OUT_DIR",
            "DEP_Z_ROOT",
        ];
        let kept = ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_REGISTRIES_X_INDEX", "PATH", "HOME", "TARGETS"];
        for name in dropped {
            assert!(is_inherited(OsStr::new(name)), "{name} must not reach the nested cargo");
        }
        for name in kept {
            assert!(!is_inherited(OsStr::new(name)), "{name} must reach the nested cargo");
        }
    }

    #[test]
    fn flags_name_the_architecture_and_ask_for_btf() {
        let flags = rustflags("aarch64");
        assert!(flags.starts_with("--cfg=bpf_target_arch=\"aarch64\"\x1f"));
        assert!(flags.ends_with("-Clink-arg=--btf"));
    }
}
