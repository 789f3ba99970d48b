//! Building the test binaries and running them one by one, so that each result is known to be of one kind.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::Deserialize;

use system::process::die_with_parent;

use crate::command::{cargo, show};
use crate::test::live::{self, Deadline};
use crate::test::tally::{Kind, Tally};
use crate::{out, workspace};

/// Which packages' tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// What plain `cargo test` runs.
    Default,
    /// `tests/system` and `tests/stacks`.
    System,
}

/// A program of tests.
pub(super) struct Binary {
    name: String,
    pub(super) kind: Kind,
    executable: PathBuf,
    package_dir: PathBuf,
}

impl Binary {
    /// It, as cargo would start it.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.package_dir).env("CARGO_MANIFEST_DIR", &self.package_dir);
        with_tools(&mut command);
        command
    }
}

/// Builds the selection's tests and runs those of wanted kinds.
pub(crate) fn run(
    selection: Selection,
    filter: Option<&str>,
    wants: impl Fn(Kind) -> bool,
    deadline: Deadline,
    tally: &mut Tally,
) -> Result<()> {
    for binary in build(selection)?.iter().filter(|binary| wants(binary.kind)) {
        out::line(format_args!("--- {}", binary.name));
        if binary.kind == Kind::System {
            live::run(binary, filter, deadline, tally)?;
        } else {
            run_one(binary.command().args(filter), binary.kind, tally)?;
        }
    }
    Ok(())
}

/// The examples in doc comments of the default packages.
pub(crate) fn run_doc_tests(tally: &mut Tally) -> Result<()> {
    let mut command = cargo();
    command.args(["test", "--doc", "--locked", "--quiet"]);
    run_one(with_tools(&mut command), Kind::Doc, tally)
}

/// Some tests run programs that `setup` installs, and skip themselves without.
fn with_tools(command: &mut Command) -> &mut Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(workspace::tools().join("bin")).chain(std::env::split_paths(&path));
    match std::env::join_paths(dirs) {
        // What `setup` installs is there: a test that lacks it fails.
        Ok(path) => command.env("PATH", path).env("STAGELENS_SET_UP", "1"),
        // Only a folder with a colon in its name could do that; then tests see the PATH they would see without us.
        Err(_) => command,
    }
}

/// Runs one program of tests and counts what it says.
pub(super) fn run_one(command: &mut Command, kind: Kind, tally: &mut Tally) -> Result<()> {
    let failed_before = tally.failed_of(kind);
    die_with_parent(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", show(command)))?;
    let stdout = child.stdout.take().context("the test's stdout is piped")?;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("cannot read a test's output")?;
        let line = String::from_utf8_lossy(&line);
        out::line(&line);
        tally.line(kind, &line);
    }
    let status = child.wait()?;
    if !status.success() && tally.failed_of(kind) == failed_before {
        out::line(format_args!("{} ended with {status} and reported no failure", show(command)));
        tally.crashed(kind);
    }
    Ok(())
}

/// The fields of cargo's `compiler-artifact` message that matter here.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

fn build(selection: Selection) -> Result<Vec<Binary>> {
    let mut command = cargo();
    command.args(["test", "--no-run", "--locked", "--message-format=json-render-diagnostics"]);
    if selection == Selection::System {
        command.args(["--package", "system", "--package", "stacks", "--tests"]);
    }
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", show(&command)))?;
    anyhow::ensure!(output.status.success(), "building the tests failed ({})", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| binary(line, selection)).collect())
}

fn binary(line: &str, selection: Selection) -> Option<Binary> {
    let artifact: Artifact = serde_json::from_str(line).ok()?;
    let executable = artifact.executable.filter(|_| artifact.profile.test)?;
    let package_dir = artifact.manifest_path.parent()?.to_path_buf();
    let package = package_dir.file_name()?.to_string_lossy();
    let is_test_target = artifact.target.kind.iter().any(|kind| kind == "test");
    let kind = match (selection, is_test_target) {
        (Selection::System, true) => Kind::System,
        (Selection::Default, true) if artifact.target.name.starts_with("golden") => Kind::Golden,
        (Selection::Default, true) => Kind::Integration,
        _ => Kind::Unit,
    };
    Some(Binary { name: format!("{package}: {}", artifact.target.name), kind, executable, package_dir })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str, kind: &str, test: bool) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/x/y/Cargo.toml",
            "target":{{"name":"{name}","kind":["{kind}"]}},"profile":{{"test":{test}}},"executable":"/x/t"}}"#
        )
    }

    #[test]
    fn kinds_of_binaries() {
        let cases = [
            ("agent", "lib", Selection::Default, Kind::Unit),
            ("golden_requests", "test", Selection::Default, Kind::Golden),
            ("cli_usage", "test", Selection::Default, Kind::Integration),
            ("system", "test", Selection::System, Kind::System),
            ("system", "lib", Selection::System, Kind::Unit),
            ("stacks", "test", Selection::System, Kind::System),
        ];
        for (name, kind, selection, expected) in cases {
            let found = binary(&message(name, kind, true), selection).map(|binary| binary.kind);
            assert_eq!(found, Some(expected), "{name} {kind}");
        }
        assert!(binary(&message("agent", "bin", false), Selection::Default).is_none());
    }
}
