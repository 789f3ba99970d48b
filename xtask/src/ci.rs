//! `cargo xtask ci`: every test, then accuracy in every cell of the demo.

use anyhow::Result;

use crate::{demo, out, test};

/// Everything; stops at the first part that fails.
pub(crate) fn command() -> Result<()> {
    test::command(&test::Args::default())?;
    out::progress("ci", "accuracy");
    demo::check_accuracy()
}
