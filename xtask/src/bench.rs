//! `cargo xtask bench`: how right the agent is, and how fast.

mod accuracy;
mod cells;

use anyhow::Result;

use crate::command;

/// Arguments of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Shapes x concurrency x (streaming, not): what the agent says beside what was true
    Accuracy(accuracy::Args),
    /// Records a second through decode to stage, on one core
    Pipeline,
}

/// Runs one of them.
pub(crate) fn command(args: &Args) -> Result<()> {
    match &args.what {
        What::Accuracy(args) => accuracy::command(args),
        What::Pipeline => {
            command::run(command::cargo().args(["bench", "-p", "agent", "--bench", "pipeline"]))
        }
    }
}
