//! Entry point of the binary `stagelens`: everything is in [`agent::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    agent::cli::main()
}
