//! `cargo xtask`: everything developers and CI run, in one place.
//!
//! `setup` makes the machine able to build and test; `build`, `demo` and `test` call it themselves, so nobody has
//! to remember it. `ci` is `test` and the accuracy of the demo, and `.ci/run` calls `test`.

mod bench;
mod build;
mod ci;
mod command;
mod debian;
mod demo;
mod docs;
mod fuzz;
mod linker;
mod out;
mod scenarios;
mod setup;
mod style;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, tests and demonstrates stagelens.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what building and testing need; safe to run again
    Setup,
    /// Build everything in release mode, the test rig included
    Build,
    /// Run the agent against model servers of known truth and print what it sees beside what was true
    Demo(demo::Args),
    /// Measure how right the agent is, and how fast
    Bench(bench::Args),
    /// Act incidents on the rig, and see that each is told right and nothing else is
    Scenarios(scenarios::Args),
    /// Check format, lints and tidy, then run the unit, golden and system tests
    Test(test::Args),
    /// Give every parser hostile bytes for a while
    Fuzz(fuzz::Args),
    /// Check the rules of the source that the compiler does not
    Tidy,
    /// Put what the demo prints now into the README
    Docs(docs::Args),
    /// Run `test`, then the demo of every shape and load against its truth
    Ci,
}

fn main() -> ExitCode {
    let result = match Args::parse().task {
        Task::Setup => setup::command(),
        Task::Build => build::release(&setup::ensure()),
        Task::Demo(args) => demo::command(&args),
        Task::Bench(args) => bench::command(&args),
        Task::Scenarios(args) => scenarios::command(&args),
        Task::Test(args) => test::command(&args),
        Task::Fuzz(args) => fuzz::command(&args),
        Task::Tidy => tidy::command(),
        Task::Docs(args) => docs::command(&args),
        Task::Ci => ci::command(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::error(&error);
            ExitCode::FAILURE
        }
    }
}
