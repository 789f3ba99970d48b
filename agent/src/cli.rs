//! The command line: one file per command, exit codes, and the one place where an error is printed.

mod capacity;
mod check;
mod client;
mod diagnose;
mod doctor;
mod failure;
mod gpu;
mod live;
mod output;
mod recorder;
mod replay;
mod requests;
mod run;
mod setup;
mod show;
mod state;
mod summary;
mod table;

use std::{io::Write as _, net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

use failure::Failure;

/// What a command gives back: an exit code, or why it failed.
type Outcome = Result<ExitCode, Failure>;

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 findings or a failed check, 2 usage, 64 bad config, 69 not possible on \
                          this host (or the agent cannot be reached).";

/// Where each request of an inference server spent its time, seen from outside with eBPF.
#[derive(Debug, Parser)]
#[command(name = "stagelens", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The daemon: discover, attach, correlate, serve.
    Run {
        #[command(flatten)]
        scope: Scope,
        /// Address of the HTTP API [config: listen].
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
        /// Write a recording as well, for `replay`.
        #[arg(long, value_name = "FILE")]
        record: Option<PathBuf>,
    },
    /// Print finished requests of a running daemon, oldest first, one line each.
    Requests(requests::Args),
    /// Print the GPUs that a running daemon sees: their use, how they fare, and who is on them.
    Gpu(gpu::Args),
    /// Print what a running daemon found: why requests are slow or fail, with the evidence; exits 1 when a finding goes on.
    Diagnose(diagnose::Args),
    /// Print what changed on the node: processes, neighbours, models, kernels, devices.
    Changes(diagnose::Args),
    /// Print how much more each model can take: latency and throughput by concurrency, and the knee, or why there is none.
    Capacity(capacity::Args),
    /// Write a recording for `replay`: a daemon run without the HTTP API.
    Record {
        /// The file; replaced if it exists.
        file: PathBuf,
        /// Stop after so many seconds; otherwise at SIGINT or SIGTERM.
        #[arg(long, value_name = "SECONDS")]
        seconds: Option<u64>,
        #[command(flatten)]
        scope: Scope,
        /// Serve the HTTP API at this address.
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
    },
    /// Print the requests of a recording, and a summary; needs no root and no GPU.
    Replay {
        /// The recording.
        file: PathBuf,
        /// One JSON record a line, the same bytes that the live run gave, and no summary.
        #[arg(long)]
        json: bool,
        /// The steps of its engines and how many requests were in each, one JSON record a line, in place of requests.
        #[arg(long, conflicts_with = "json")]
        steps: bool,
        /// What was found, one JSON record a line, in place of requests.
        #[arg(long, conflicts_with_all = ["json", "steps"])]
        findings: bool,
    },
    /// Tell what this host allows, and what each gap costs; exits 1 when something is missing.
    Doctor {
        #[command(flatten)]
        scope: Scope,
    },
    /// Attach everything, tell how it went, and exit; exits 1 when it went badly.
    Check {
        /// Every single probe must be attached.
        #[arg(long)]
        strict: bool,
        #[command(flatten)]
        scope: Scope,
    },
    /// The configuration.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print the effective configuration (file and flags) as TOML.
    Show {
        #[command(flatten)]
        scope: Scope,
        /// Address of the HTTP API [config: listen].
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
        /// With what each key means and takes.
        #[arg(long)]
        comments: bool,
    },
}

/// What to watch, for every command that attaches.
#[derive(Debug, Args)]
struct Scope {
    /// Config file [default: /etc/stagelens/stagelens.toml if it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Watch only the service of this process; may be repeated [config: discovery.pids].
    #[arg(long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pids: Vec<u32>,
    /// Watch only the service that listens on this port; may be repeated [config: discovery.ports].
    #[arg(long = "port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
}

/// Parses the command line, does what it says, and prints the error if there is one.
pub fn main() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(code) => code,
        Err(failure) => {
            if let Some(message) = failure.message() {
                // Nothing can be done if standard error is gone.
                let _ = writeln!(std::io::stderr().lock(), "stagelens: {message}");
            }
            failure.code()
        }
    }
}

fn dispatch(command: Command) -> Outcome {
    match command {
        Command::Run { scope, listen, record } => run::run(&scope, listen, record),
        Command::Requests(args) => requests::requests(&args),
        Command::Gpu(args) => gpu::gpu(&args),
        Command::Record { file, seconds, scope, listen } => run::record(file, seconds, &scope, listen),
        Command::Diagnose(args) => diagnose::diagnose(&args),
        Command::Changes(args) => diagnose::changes(&args),
        Command::Capacity(args) => capacity::capacity(&args),
        Command::Replay { file, json, steps, findings } => {
            replay::replay(&file, replay::Form::of(json, steps, findings))
        }
        Command::Doctor { scope } => doctor::doctor(&scope),
        Command::Check { strict, scope } => check::check(strict, &scope),
        Command::Config { command: ConfigCommand::Show { scope, listen, comments } } => {
            show::show(&scope, listen, comments)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
