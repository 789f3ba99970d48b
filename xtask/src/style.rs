//! What is checked without running anything: format, lints, the project's own rules, the README's excerpt.

use anyhow::Result;

use crate::command::{cargo, in_path, run};
use crate::{docs, out, tidy};

/// All of it; stops at the first part that fails. The order is that in which a failure costs least.
pub(crate) fn check() -> Result<()> {
    out::progress("style", "format");
    run(cargo().args(["fmt", "--all", "--check"]))?;
    out::progress("style", "tidy");
    tidy::command()?;
    docs::command(&docs::Args { check: true })?;
    out::progress("style", "lints");
    // `ebpf` builds for the kernel's target only; clippy cannot check it for the host.
    // The driver of the fuzz targets has C++ in it.
    let features: &[&str] = if in_path("c++") { &["--features", "fuzz/libfuzzer"] } else { &[] };
    run(cargo()
        .args(["clippy", "--workspace", "--exclude", "ebpf", "--all-targets", "--locked"])
        .args(features)
        .args(["--", "-D", "warnings"]))
}
