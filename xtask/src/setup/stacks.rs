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

/// Headers and the static library, unpacked and not installed.
pub(super) fn liburing() -> Result<String> {
    if !workspace::tools().join("liburing-dev/usr/include/liburing.h").is_file() {
        doing("unpacking Debian's liburing-dev under target/tools");
        fs::create_dir_all(workspace::tools())?;
        debian::unpack("liburing-dev").context("the tests of io_uring will be skipped")?;
    }
    Ok("present".into())
}
