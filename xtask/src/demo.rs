//! `cargo xtask demo` (in the making).

use anyhow::{Result, bail};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn command(_: &Args) -> Result<()> {
    bail!("not yet")
}

pub(crate) fn check_accuracy() -> Result<()> {
    bail!("not yet")
}
