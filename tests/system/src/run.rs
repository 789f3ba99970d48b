//! One whole run: server, agent, load, and what both sides say about it.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::accuracy::{self, Joined, Report};
use crate::agent::{Agent, Follower, Record, Status};
use crate::rig::{ClientView, CudaTruth, Load, Server, ServerOptions};
use crate::truth::{Truth, with_arrivals};

/// How long after the last answer a record may take to be final and to be printed.
pub const SETTLE_LIMIT: Duration = Duration::from_secs(10);

/// Server, agent and follower, all running.
#[derive(Debug)]
pub struct Stage {
    /// The model server.
    pub server: Server,
    /// The agent.
    pub agent: Agent,
    /// `requests --follow --json`.
    pub follower: Follower,
}

/// What a run gave.
#[derive(Debug)]
pub struct Finished {
    /// What was true.
    pub truths: Vec<Truth>,
    /// What the agent printed, record by record, for this server.
    pub records: Vec<Record>,
    /// The printed lines of all servers, as they were.
    pub lines: Vec<String>,
    /// What the clients saw.
    pub clients: Vec<ClientView>,
    /// Both joined.
    pub joined: Joined,
    /// Both compared.
    pub report: Report,
    /// The agent's status at the end of the load.
    pub status: Status,
    /// The agent's metrics then.
    pub metrics: String,
    /// What the simulated driver counted.
    pub cuda: CudaTruth,
}

impl Stage {
    /// Starts everything and waits until the server is watched.
    pub fn set(options: &ServerOptions, dir: &Path, agent_arguments: &[&str]) -> Result<Self> {
        let server = Server::start(options, dir)?;
        let mut agent = Agent::start(dir, agent_arguments)?;
        agent.wait_attached(&server)?;
        let follower = agent.follow(dir)?;
        Ok(Self { server, agent, follower })
    }

    /// Makes load, waits for its records, ends everything and compares.
    pub fn play(mut self, shape: &str, load: &Load, dir: &Path, limit: Duration) -> Result<Finished> {
        let cpu_before = self.agent.process.cpu_seconds()?;
        let clients = load.start(self.server.port, dir)?.finish(limit)?;
        self.settle(clients.len());
        let cpu = self.agent.process.cpu_seconds()? - cpu_before;
        let (status, metrics) = (self.agent.status()?, self.agent.get("/metrics")?);
        self.server.stop()?;
        self.agent.stop()?;
        self.follower.wait_end(SETTLE_LIMIT)?;
        let (truths, cuda) = (with_arrivals(self.server.truth()?, &clients), self.server.cuda_truth()?);
        let records = self.follower.records(self.server.port)?;
        let joined = accuracy::join(&truths, &records);
        let mut report = accuracy::compare(&joined);
        shape.clone_into(&mut report.shape);
        report.concurrency = load.concurrency;
        report.events_dropped = status.health.dropped();
        report.events_seen = status.health.seen;
        report.agent_cpu_s = cpu;
        let lines = self.follower.lines();
        Ok(Finished { truths, records, lines, clients, joined, report, status, metrics, cuda })
    }

    /// Waits until as many records are there as there were requests. Not getting them is for the comparison to say.
    fn settle(&mut self, requests: usize) {
        let all = |records: &[Record]| records.len() >= requests;
        let _ = self.follower.wait("the last records", self.server.port, SETTLE_LIMIT, all);
    }
}
