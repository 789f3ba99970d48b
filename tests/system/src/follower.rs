//! A client that prints each finished request of an agent.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::agent::Record;
use crate::process::Process;
use crate::{host, wait};

/// A running `stagelens requests --follow --json`.
#[derive(Debug)]
pub struct Follower {
    pub(crate) process: Process,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Follower {
    pub(crate) fn start(agent: SocketAddr, dir: &Path) -> Result<Self> {
        let mut command = Command::new(host::binary("stagelens")?);
        command
            .args(["requests", "--follow", "--json", "--url", &format!("http://{agent}")])
            .stdout(Stdio::piped());
        let mut process = Process::start("follow", command, dir)?;
        let stdout = process.stdout().context("stdout of the follower is piped")?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                sink.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Ok(Self { process, lines })
    }

    /// The lines so far, as printed.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The records so far, of one port: other servers of this machine are none of our business.
    pub fn records(&self, port: u16) -> Result<Vec<Record>> {
        let records: Result<Vec<_>> = self.lines().iter().map(|line| Record::parse(line)).collect();
        Ok(records?
            .into_iter()
            .filter(|record| record.local_port.is_none_or(|local| local == port))
            .collect())
    }

    /// Waits until the records of `port` fulfil a condition.
    pub fn wait(
        &mut self,
        what: &str,
        port: u16,
        limit: Duration,
        done: impl Fn(&[Record]) -> bool,
    ) -> Result<Vec<Record>> {
        wait::until(what, limit, || {
            self.process.check_alive()?;
            Ok(Some(self.records(port)?).filter(|records| done(records)))
        })
    }

    /// Waits for its end, which follows the agent's.
    pub fn wait_end(&mut self, limit: Duration) -> Result<()> {
        self.process.wait(limit).map(drop)
    }
}
