//! `cargo xtask fuzz`: hostile bytes for the parsers, by libFuzzer, with a check of each access to memory.
//!
//! Targets and what must hold of them are in `tests/fuzz`, where `cargo test` runs what was found. Only the search
//! needs a nightly compiler (for the sanitizer) and a C++ compiler (for libFuzzer).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{cargo, in_path, quiet, run, show};
use crate::{out, workspace};

/// Where the sanitizer is for.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// What libFuzzer needs of the compiler: a count for each edge, and the values that are compared.
const FLAGS: &str = "-Cforce-frame-pointers=yes -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address";

/// Arguments of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only this target
    target: Option<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

struct Target {
    name: String,
    max_len: String,
    about: String,
}

/// Runs one target or all of them; fails when one found something.
pub(crate) fn command(args: &Args) -> Result<()> {
    need_compilers()?;
    let root = workspace::target().join("fuzz");
    let targets = seeds(&root.join("seeds"))?;
    let wanted: Vec<&Target> = targets
        .iter()
        .filter(|target| args.target.as_ref().is_none_or(|name| *name == target.name))
        .collect();
    if wanted.is_empty() {
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        bail!("there is no such fuzz target; there are {}", names.join(", "));
    }
    let program = build(&root)?;
    let mut found = Vec::new();
    for target in wanted {
        out::progress("fuzz", format_args!("{} ({}), {} s", target.name, target.about, args.seconds));
        if let Err(error) = fuzz(target, &program, &root, args.seconds) {
            out::error(&error);
            found.push(target.name.as_str());
        }
    }
    if !found.is_empty() {
        bail!(
            "found something in {}; when it is fixed, keep the input in tests/fuzz/cases/TARGET/",
            found.join(", ")
        );
    }
    Ok(())
}

fn need_compilers() -> Result<()> {
    quiet(&mut nightly_rustc()).context(
        "fuzzing needs a nightly compiler for the sanitizer: `rustup toolchain install nightly --profile minimal`",
    )?;
    if !in_path("c++") {
        bail!("fuzzing needs a C++ compiler to build libFuzzer: on Debian, `apt-get install g++`");
    }
    Ok(())
}

fn nightly_rustc() -> Command {
    let mut rustc = Command::new("rustup");
    rustc.args(["run", "nightly", "rustc", "--version"]);
    rustc
}

/// Writes the first inputs of all targets, and says which there are.
fn seeds(folder: &Path) -> Result<Vec<Target>> {
    let mut seeds = cargo();
    seeds.args(["run", "--quiet", "--locked", "--package", "fuzz", "--bin", "seeds", "--"]).arg(folder);
    let listed = quiet(&mut seeds)?;
    let target = |line: &str| {
        let mut parts = line.split('\t').map(str::to_owned);
        Some(Target { name: parts.next()?, max_len: parts.next()?, about: parts.next()? })
    };
    Ok(listed.lines().filter_map(target).collect())
}

/// In a folder of its own, since everything is compiled with other flags than elsewhere.
fn build(root: &Path) -> Result<PathBuf> {
    out::progress("fuzz", "building all targets with sanitizer and coverage");
    let mut build = Command::new("cargo");
    build.current_dir(workspace::root()).env("RUSTFLAGS", FLAGS).env("STAGELENS_BPF", "skip");
    // `rustup` chooses by this; the one of the cargo that runs us would win over it.
    build.env("RUSTUP_TOOLCHAIN", "nightly").env_remove("CARGO").env_remove("RUSTC");
    build.args(["build", "--locked", "--profile", "fuzz", "--target", PLATFORM, "--target-dir"]).arg(root);
    run(build.args(["--package", "fuzz", "--features", "libfuzzer", "--bin", "fuzz"]))?;
    Ok(root.join(PLATFORM).join("fuzz/fuzz"))
}

fn fuzz(target: &Target, program: &Path, root: &Path, seconds: u32) -> Result<()> {
    let corpus = root.join("corpus").join(&target.name);
    let finds = root.join("finds");
    for folder in [&corpus, &finds] {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let mut fuzz = Command::new(program);
    fuzz.env("FUZZ_TARGET", &target.name).current_dir(workspace::root());
    fuzz.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={}", target.max_len));
    fuzz.arg(format!("-artifact_prefix={}/{}-", finds.display(), target.name));
    fuzz.args(["-rss_limit_mb=2048", "-timeout=10", "-print_final_stats=1", "-verbosity=1"]);
    fuzz.arg(&corpus).arg(root.join("seeds").join(&target.name));
    fuzz.arg(workspace::root().join("tests/fuzz/cases").join(&target.name));
    let status = fuzz.status().with_context(|| format!("cannot start {}", show(&fuzz)))?;
    if !status.success() {
        bail!("{} found something: see the lines above, and {}", target.name, finds.display());
    }
    Ok(())
}
