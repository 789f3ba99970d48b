//! Puts the BPF object where `probe/object.rs` includes it from: `OUT_DIR/stagelens-ebpf`.
//!
//! `STAGELENS_BPF_OBJECT=PATH` takes a prebuilt object (packaging), `STAGELENS_BPF=skip` builds none. Without a
//! toolchain the object is empty: the agent then builds, replays and tests, and says so when asked to attach.

use std::env;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const OBJECT_PATH: &str = "STAGELENS_BPF_OBJECT";
const MODE: &str = "STAGELENS_BPF";

fn main() -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let Err(error) = provide(&mut out) else {
        return Ok(ExitCode::SUCCESS);
    };
    for line in error.to_string().lines() {
        writeln!(out, "cargo::error={line}")?;
    }
    Ok(ExitCode::FAILURE)
}

fn provide(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    watch_inputs(out)?;
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run this through cargo")?);
    let object = out_dir.join("stagelens-ebpf");
    match source(out, &out_dir)? {
        Source::Object(path) => {
            fs::copy(&path, &object).map_err(|error| format!("cannot copy {}: {error}", path.display()))?;
        }
        Source::None { reason } => {
            fs::write(&object, [])?;
            writeln!(out, "cargo::warning=building without BPF programs: {reason}")?;
        }
    }
    Ok(())
}

/// Where the object comes from.
enum Source {
    Object(PathBuf),
    None { reason: String },
}

fn source(out: &mut impl Write, out_dir: &Path) -> Result<Source, Box<dyn Error>> {
    if let Some(path) = env::var_os(OBJECT_PATH) {
        watch(out, Path::new(&path))?;
        return Ok(Source::Object(path.into()));
    }
    if env::var_os(MODE).is_some_and(|mode| mode == "skip") {
        return Ok(Source::None { reason: format!("{MODE}=skip") });
    }
    match ebpf_build::find_toolchain() {
        Ok(toolchain) => {
            watch(out, &toolchain.linker)?;
            Ok(Source::Object(ebpf_build::build(&toolchain, ebpf_build::workspace_root(), out_dir)?))
        }
        Err(error) => {
            // A path that is missing counts as changed: the next build looks again, and finds what `setup` left.
            watch(out, &ebpf_build::tools_dir().join("bin/bpf-linker"))?;
            Ok(Source::None { reason: error.to_string() })
        }
    }
}

/// Everything of the workspace that the object depends on.
fn watch_inputs(out: &mut impl Write) -> io::Result<()> {
    for name in [OBJECT_PATH, MODE, "PATH"] {
        writeln!(out, "cargo::rerun-if-env-changed={name}")?;
    }
    for path in [
        "ebpf/src",
        "ebpf/build.rs",
        "ebpf/Cargo.toml",
        "ebpf/wire/src",
        "ebpf/wire/Cargo.toml",
        "ebpf/build/src",
    ] {
        watch(out, &ebpf_build::workspace_root().join(path))?;
    }
    Ok(())
}

fn watch(out: &mut impl Write, path: &Path) -> io::Result<()> {
    writeln!(out, "cargo::rerun-if-changed={}", path.display())
}
