//! Running other programs, with errors that say which one failed and what it said.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The cargo that runs us, or the one in PATH.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(crate::workspace::root()).stdin(Stdio::null());
    // Set by the `cargo run` that started us; they would leak into build scripts and force rebuilds.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Runs `command`, its output going where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", show(command)))?;
    if !status.success() {
        bail!("{} failed ({status})", show(command));
    }
    Ok(())
}

/// Runs `command` with its output kept back; on failure its last lines become the error.
pub(crate) fn quiet(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", show(command)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    let tail = lines[lines.len().saturating_sub(15)..].join("\n");
    bail!("{} failed ({}); it said:\n{tail}", show(command), output.status)
}

/// Whether a program of this name is in PATH.
pub(crate) fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// The program and its arguments, for messages.
pub(crate) fn show(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args()).map(OsStr::to_string_lossy);
    format!("`{}`", words.collect::<Vec<_>>().join(" "))
}
