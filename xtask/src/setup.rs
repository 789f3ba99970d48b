//! Makes this machine able to build and test; every step first looks whether there is anything to do.
//!
//! A step that cannot be done says why and what to do by hand, and the others go on: without a BPF toolchain the
//! workspace still builds, replays and runs its unit and golden tests.

mod stacks;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use ebpf_build::{Toolchain, ToolchainError, Way};

use crate::command::{in_path, quiet};
use crate::{debian, linker, out, workspace};

/// What the machine can do after `setup`; the reasons are sentences for whoever runs the task.
#[derive(Debug)]
pub(crate) struct Ready {
    /// The BPF toolchain, or why there is none.
    pub(crate) bpf_toolchain: Result<(), String>,
    /// Whether BPF programs can be loaded here, or why not.
    pub(crate) live: Result<(), String>,
}

/// One thing that building or testing needs.
struct Step {
    name: &'static str,
    /// Does what is missing and says what there is now.
    run: fn() -> Result<String>,
}

/// In this order: later steps use what earlier ones installed.
const STEPS: &[Step] = &[
    Step { name: "C linker", run: c_linker },
    Step { name: "BPF compiler", run: bpf_compiler },
    Step { name: "bpf-linker", run: bpf_linker },
    Step { name: "Prometheus (for tests)", run: prometheus },
    Step { name: "bpftool (for tests)", run: bpftool },
    Step { name: "tracefs (for tests)", run: tracefs },
    Step { name: "Python servers (for tests)", run: stacks::python },
    Step { name: "CUDA runtime (for tests)", run: stacks::cudart },
    Step { name: "nginx (for tests)", run: nginx },
    Step { name: "OpenSSL's command (for tests)", run: openssl },
    Step { name: "liburing (for tests)", run: stacks::liburing },
];

/// `cargo xtask setup`: fails if something is missing afterwards.
pub(crate) fn command() -> Result<()> {
    let failed = run_steps();
    match live() {
        Ok(()) => {
            out::progress("setup", "this user can load BPF programs here: the demo and all tests can run");
        }
        Err(reason) => {
            out::progress("setup", format_args!("live demo and system tests cannot run here: {reason}"));
        }
    }
    if failed > 0 {
        bail!("{failed} of {} steps could not be done; the lines above say why and what to do", STEPS.len());
    }
    Ok(())
}

/// For the tasks that need it: does what it can and reports what is there.
pub(crate) fn ensure() -> Ready {
    run_steps();
    let toolchain = ebpf_build::find_toolchain().map(drop).map_err(|error| error.to_string());
    Ready { live: toolchain.clone().and_then(|()| live()), bpf_toolchain: toolchain }
}

fn run_steps() -> usize {
    let mut failed = 0;
    for (index, step) in STEPS.iter().enumerate() {
        let title = format!("[{}/{}] {}", index + 1, STEPS.len(), step.name);
        match (step.run)() {
            Ok(state) => out::progress("setup", format_args!("{title}: {state}")),
            Err(error) => {
                failed += 1;
                out::progress("setup", format_args!("{title}: missing. {error:#}"));
            }
        }
    }
    failed
}

fn doing(text: &str) {
    out::progress("setup", format_args!("  {text} …"));
}

fn c_linker() -> Result<String> {
    if !in_path("cc") {
        doing("installing gcc and the C library's headers");
        debian::install(&["gcc", "libc6-dev"])?;
    }
    Ok("present".into())
}

/// The packaged way's compiler with `core` for the BPF target, and the LLVM its linker is built on.
const BPF_PACKAGES: [&str; 3] = ["rustc-web", "libstd-rust-web-dev-bpf", linker::LLVM_PACKAGE];

fn bpf_compiler() -> Result<String> {
    if matches!(ebpf_build::find_toolchain(), Err(ToolchainError::NoCompiler)) {
        doing(&format!("installing {} (half a minute)", BPF_PACKAGES.join(", ")));
        debian::install(&BPF_PACKAGES).context(ToolchainError::NoCompiler)?;
    }
    match ebpf_build::find_toolchain() {
        Ok(Toolchain { way, .. }) => Ok(describe(&way)),
        Err(ToolchainError::NoLinker { .. }) => Ok("present".into()),
        Err(error) => Err(error.into()),
    }
}

fn describe(way: &Way) -> String {
    match way {
        Way::Rustup => "rustup nightly with rust-src".into(),
        Way::Packaged { rustc } => format!("{} (packaged, with core for BPF)", rustc.display()),
    }
}

fn bpf_linker() -> Result<String> {
    match ebpf_build::find_toolchain() {
        Err(ToolchainError::NoLinker { .. }) => {
            doing("building it (a minute or two)");
            linker::install()?;
        }
        Err(error @ ToolchainError::NoCompiler) => return Err(anyhow!(error)),
        Ok(_) => {}
    }
    let toolchain = ebpf_build::find_toolchain()?;
    linker::version(&toolchain.linker)
}

fn prometheus() -> Result<String> {
    tool("prometheus", &["prometheus", "promtool"])
}

fn bpftool() -> Result<String> {
    tool("bpftool", &["bpftool"])
}

fn nginx() -> Result<String> {
    tool("nginx", &["nginx"])
}

fn openssl() -> Result<String> {
    tool("openssl", &["openssl"])
}

/// A tool of the tests: from PATH if it is there, else unpacked and linked into `target/tools/bin`.
fn tool(package: &str, programs: &[&str]) -> Result<String> {
    let bin = workspace::tools().join("bin");
    let have = |program: &&str| in_path(program) || bin.join(program).is_file();
    if !programs.iter().all(have) {
        doing(&format!("unpacking Debian's {package} under target/tools"));
        fs::create_dir_all(&bin)?;
        let unpacked = debian::unpack(package)
            .with_context(|| format!("install {} by hand and put it in PATH", programs.join(" and ")))?;
        for program in programs {
            link(&unpacked, program, &bin)?;
        }
    }
    Ok("present".into())
}

fn link(unpacked: &Path, program: &str, bin: &Path) -> Result<()> {
    let found = ["usr/bin", "usr/sbin"]
        .map(|dir| unpacked.join(dir).join(program))
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| format!("the package has no {program}"))?;
    let link = bin.join(program);
    // A dangling link of an earlier run would make `symlink` fail.
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(found, link).map_err(Into::into)
}

/// A test looks there for uprobes left behind; the agent itself does without.
fn tracefs() -> Result<String> {
    let at = Path::new("/sys/kernel/tracing");
    if !at.join("uprobe_events").exists() {
        if !rustix::process::geteuid().is_root() {
            bail!("{} is not mounted, and mounting it needs root", at.display());
        }
        quiet(Command::new("mount").args(["-t", "tracefs", "tracefs"]).arg(at))?;
    }
    Ok(format!("mounted at {}", at.display()))
}

/// Whether this user can load BPF programs on this kernel, as far as one sees from outside: the agent's `doctor`
/// tries each program.
pub(crate) fn live() -> Result<(), String> {
    system::host::obstacle().map_or(Ok(()), Err)
}
