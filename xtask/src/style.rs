//! What is checked without running anything: format, lints, the project's own rules, the README's excerpt.

use anyhow::Result;

use crate::command::{cargo, run};
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
    run(cargo()
        .args(["clippy", "--workspace", "--exclude", "ebpf", "--all-targets", "--locked"])
        .args(["--", "-D", "warnings"]))
}
