//! The agent, watching services that have no GPU.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use system::agent::{AGENT_LIMIT, Agent, Follower, Record, Status};
use system::wait;

/// How long after the last answer a record may take to be printed.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);

/// An agent and what it prints.
#[derive(Debug)]
pub struct Watch {
    /// The agent.
    pub agent: Agent,
    /// `requests --follow --json`.
    pub follower: Follower,
}

impl Watch {
    /// Starts an agent for the services of these ports and waits until it watches them.
    pub fn ports(ports: &[u16], dir: &Path) -> Result<Self> {
        let mut watch = Self::launch(&port_arguments(ports), dir)?;
        watch.wait_ports(ports)?;
        Ok(watch)
    }

    /// Starts an agent with these arguments and waits until it is ready.
    pub fn launch(arguments: &[String], dir: &Path) -> Result<Self> {
        Self::follow(Agent::start(dir, &words(arguments))?, dir)
    }

    /// Like [`Watch::ports`], the agent being started by another program that takes its command line.
    pub fn under(wrapper: &[&str], ports: &[u16], dir: &Path) -> Result<Self> {
        let mut agent = Agent::launch_under(wrapper, dir, &words(&port_arguments(ports)))?;
        agent.wait_ready()?;
        let mut watch = Self::follow(agent, dir)?;
        watch.wait_ports(ports)?;
        Ok(watch)
    }

    fn follow(agent: Agent, dir: &Path) -> Result<Self> {
        let follower = agent.follow(dir)?;
        Ok(Self { agent, follower })
    }

    /// Waits until services with these ports are watched.
    pub fn wait_ports(&mut self, ports: &[u16]) -> Result<()> {
        let has = |status: &Status, port| status.services.iter().any(|service| service.ports.contains(port));
        let all = |status: &Status| ports.iter().all(|port| has(status, port));
        self.wait_status(&format!("the agent to watch ports {ports:?}"), all)
    }

    /// Waits until a process is watched.
    pub fn wait_pid(&mut self, pid: u32) -> Result<()> {
        let has = |status: &Status| status.services.iter().any(|service| service.pids.contains(&pid));
        self.wait_status(&format!("the agent to watch process {pid}"), has)
    }

    /// Waits until its status fulfils a condition.
    pub fn wait_status(&mut self, what: &str, done: impl Fn(&Status) -> bool) -> Result<()> {
        let mut last = Status::default();
        let found = wait::until(what, AGENT_LIMIT, || {
            self.agent.process.check_alive()?;
            last = self.agent.status()?;
            Ok(done(&last).then_some(()))
        });
        found.with_context(|| format!("its status was: {last:#?}"))
    }

    /// Waits for `count` records of a port. Not getting them is for the comparison to say.
    pub fn records(&mut self, port: u16, count: usize) -> Result<Vec<Record>> {
        let all = |records: &[Record]| records.len() >= count;
        let _ = self.follower.wait("records", port, SETTLE_LIMIT, all);
        self.follower.records(port)
    }

    /// Ends the agent, whereupon every record is final, and returns those of a port.
    pub fn finish(mut self, port: u16) -> Result<Vec<Record>> {
        self.agent.stop()?;
        self.follower.wait_end(SETTLE_LIMIT)?;
        self.follower.records(port)
    }
}

fn port_arguments(ports: &[u16]) -> Vec<String> {
    ports.iter().flat_map(|port| ["--port".to_owned(), port.to_string()]).collect()
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}
