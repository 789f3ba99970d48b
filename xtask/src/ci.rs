//! `cargo xtask ci`: what the project's CI runs, in the order in which a failure costs least.

use anyhow::Result;

use crate::command::{cargo, run};
use crate::{demo, docs, out, setup, test, tidy};

/// Everything; stops at the first part that fails.
pub(crate) fn command() -> Result<()> {
    setup::ensure();
    out::progress("ci", "format");
    run(cargo().args(["fmt", "--all", "--check"]))?;
    out::progress("ci", "lints");
    // `ebpf` builds for the kernel's target only; clippy cannot check it for the host.
    run(cargo()
        .args(["clippy", "--workspace", "--exclude", "ebpf", "--all-targets", "--locked"])
        .args(["--", "-D", "warnings"]))?;
    out::progress("ci", "tidy");
    tidy::command()?;
    docs::command(&docs::Args { check: true })?;
    test::command(&test::Args::default())?;
    out::progress("ci", "accuracy");
    demo::check_accuracy()
}
