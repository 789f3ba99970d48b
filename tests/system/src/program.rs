//! A program that makes CUDA calls by a script, and what it and the simulated driver know of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::agent::{AGENT_LIMIT, Agent};
use crate::process::Process;
use crate::rig::SharedMemory;
use crate::truth::Stamp;
use crate::{host, wait};

/// A running program.
#[derive(Debug)]
pub struct Program {
    /// Its process.
    pub process: Process,
    dir: PathBuf,
    _shared_memory: SharedMemory,
}

/// Work, as the program counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the words of the agent")]
pub struct Work {
    pub launches: u64,
    pub graphs: u64,
    pub copies: u64,
    pub h2d: u64,
    pub d2h: u64,
    pub other: u64,
}

/// What one wait proved.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Step {
    /// The work.
    pub work: Work,
    /// Around its first call.
    pub first: Stamp,
    /// Around its result.
    pub result: Stamp,
    /// Graph launched last, 0 for none.
    pub graph: u64,
}

/// What the program wrote down.
#[derive(Debug, Deserialize)]
pub struct Report {
    /// Waits, in order.
    pub steps: Vec<Step>,
    /// Bytes to the device and to the host in calls that do not tell which.
    pub untold: [u64; 2],
}

/// What the simulated driver counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "calls, by name")]
pub struct Counts {
    pub launches: u64,
    pub captured_launches: u64,
    pub captured_graphs: u64,
    pub graph_launches: u64,
    pub memsets: u64,
    pub copies: BTreeMap<String, Copies>,
    pub allocs: u64,
    pub calls: BTreeMap<String, u64>,
}

/// Copies of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "they say it")]
pub struct Copies {
    pub count: u64,
    pub bytes: u64,
}

impl Program {
    /// Starts `executable` with a script; it waits until [`Program::go`].
    pub fn start(executable: &str, script: &str, dir: &Path) -> Result<Self> {
        let shared_memory = SharedMemory::new();
        let mut command = Command::new(executable);
        command
            .arg(host::libcuda()?)
            .arg(dir)
            .arg(script)
            .env("FAKECUDA_SHM", &shared_memory.path)
            .env("FAKECUDA_TRUTH", dir.join("cuda.json"))
            .env("FAKECUDA_UNIT_NS", "1")
            .env("FAKECUDA_COPY_LATENCY_NS", "100");
        let process = Process::start("cudacalls", command, dir)?;
        let mut program = Self { process, dir: dir.to_owned(), _shared_memory: shared_memory };
        program.wait_file("ready", AGENT_LIMIT)?;
        Ok(program)
    }

    /// Starts an agent that watches only this program, and waits until it does.
    pub fn watched(&mut self, dir: &Path) -> Result<Agent> {
        let pid = self.process.pid();
        let mut agent = Agent::start(dir, &["--pid", &pid.to_string()])?;
        wait::until("the agent to watch the program", AGENT_LIMIT, || {
            self.process.check_alive()?;
            agent.process.check_alive()?;
            let status = agent.status()?;
            let is_watched = status.services.iter().any(|service| service.pids.contains(&pid));
            let is_attached =
                status.probes.iter().any(|probe| probe.program == "cuda_launch" && probe.state == "attached");
            Ok((is_watched && is_attached).then_some(()))
        })?;
        Ok(agent)
    }

    /// Runs the script to its end.
    pub fn go(&mut self, limit: Duration) -> Result<Report> {
        fs::write(self.dir.join("go"), "")?;
        self.wait_file("report.json", limit)?;
        let text = fs::read_to_string(self.dir.join("report.json"))?;
        serde_json::from_str(&text).context("the program's report has an unexpected form")
    }

    /// Ends it; what the simulated driver counted.
    pub fn end(&mut self, limit: Duration) -> Result<Counts> {
        fs::write(self.dir.join("end"), "")?;
        let status = self.process.wait(limit)?;
        ensure!(status.success(), "the program ended with {status}: {}", self.process.log());
        let text = fs::read_to_string(self.dir.join("cuda.json"))?;
        serde_json::from_str(&text).context("the simulated driver's counts have an unexpected form")
    }

    fn wait_file(&mut self, name: &str, limit: Duration) -> Result<()> {
        let path = self.dir.join(name);
        wait::until(&format!("the program's file {name}"), limit, || {
            self.process.check_alive()?;
            Ok(path.exists().then_some(()))
        })
    }
}
