//! Servers under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use system::process::Process;
use system::wait;

use crate::machine;
use crate::truth::{self, Truth};
use crate::written::{self, Streams};

/// How long a peer may take to listen, or to end.
const LIMIT: Duration = Duration::from_secs(30);

/// A running server.
#[derive(Debug)]
pub struct Peer {
    /// Its first process.
    pub process: Process,
    /// Where it listens on loopback.
    pub port: u16,
    truth: PathBuf,
}

impl Peer {
    /// Starts `command`, which finds in its environment where to write its port and its truth, and waits until it
    /// listens.
    pub fn start(name: &str, mut command: Command, dir: &Path) -> Result<Self> {
        let (port_file, truth) = (dir.join(format!("{name}.port")), dir.join(format!("{name}.truth")));
        for file in [&port_file, &truth] {
            // Of an earlier one of the same name.
            let _ = fs::remove_file(file);
        }
        command.env("PORT_FILE", &port_file).env("TRUTH", &truth).stdout(std::process::Stdio::null());
        let mut process = Process::start(name, command, dir)?;
        let port = wait::until(&format!("{name} to listen"), LIMIT, || {
            process.check_alive()?;
            Ok(fs::read_to_string(&port_file).unwrap_or_default().trim().parse().ok())
        })?;
        Ok(Self { process, port, truth })
    }

    /// A server that was told its port, once it takes connections.
    pub fn listening(name: &str, mut process: Process, port: u16, dir: &Path) -> Result<Self> {
        wait::until(&format!("{name} to listen"), LIMIT, || {
            process.check_alive()?;
            Ok(std::net::TcpStream::connect(("127.0.0.1", port)).ok().map(drop))
        })?;
        Ok(Self { process, port, truth: dir.join(format!("{name}.truth")) })
    }

    /// A peer in Python, with the packages of the environment.
    pub fn python(script: &str, arguments: &[&str], dir: &Path) -> Result<Self> {
        Self::start(script.trim_end_matches(".py"), python(script, arguments)?, dir)
    }

    /// The same, with what it writes noted by `stamp.c`.
    pub fn stamped(script: &str, dir: &Path) -> Result<Self> {
        Self::stamped_with(script, [], dir)
    }

    /// The same with these variables in its environment.
    pub fn stamped_with<'a>(
        script: &str,
        variables: impl IntoIterator<Item = (&'a str, &'a Path)>,
        dir: &Path,
    ) -> Result<Self> {
        let stamp = machine::compile("stamp.c", dir, &["-shared", "-fPIC", "-ldl"])?;
        let mut command = python(script, &[])?;
        command.env("LD_PRELOAD", stamp).env("STAMPS", stamps(dir)).envs(variables);
        Self::start(script.trim_end_matches(".py"), command, dir)
    }

    /// What a stamped one knows about the requests that are over, with the times of its writes.
    pub fn stamped_truth(&self, dir: &Path) -> Result<Vec<Truth>> {
        Ok(written::with_times(self.truth()?, &self.stamped_streams(dir)?))
    }

    /// What a stamped one wrote so far.
    pub fn stamped_streams(&self, dir: &Path) -> Result<Streams> {
        written::streams(&stamps(dir), self.port)
    }

    /// What it knows about the requests that are over.
    pub fn truth(&self) -> Result<Vec<Truth>> {
        truth::read(&self.truth)
    }

    /// Lets it end.
    pub fn stop(&mut self) -> Result<()> {
        self.process.stop(LIMIT)
    }
}

fn stamps(dir: &Path) -> PathBuf {
    dir.join("stamps")
}

/// A Python program of the peers' folder.
pub fn python(script: &str, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(machine::python()?);
    command.arg(machine::peers().join(script)).args(arguments).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}
