//! A server with its load and what goes wrong with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use system::agent::Agent;
use system::rig::{Running, Server};
use system::trouble::Trouble;

use crate::GPUS;
use crate::beside::Neighbour;
use crate::node::Node;
use crate::quota::Quota;
use crate::scenario::{Clocks, Demand, Scenario, Start};

/// How long load may go on beyond its time: until the last answers have come.
const LIMIT: Duration = Duration::from_mins(2);

/// A scenario that is being acted.
pub(crate) struct Actor {
    pub(crate) scenario: Scenario,
    gpu: u32,
    dir: PathBuf,
    devices: PathBuf,
    trouble: Trouble,
    loads: Vec<Running>,
    neighbour: Option<Neighbour>,
    quota: Option<Quota>,
    server: Option<Server>,
}

impl Actor {
    /// Its GPUs begin with number `gpu`.
    pub(crate) fn start(scenario: Scenario, gpu: u32, node: &Node, dir: &Path) -> Result<Self> {
        let dir = dir.join(scenario.name);
        std::fs::create_dir_all(&dir)?;
        let trouble = Trouble::new(&dir.join("trouble"))?;
        let devices = node.devices.path.clone();
        let neighbour = Neighbour::start(scenario.beside, gpu, &devices, &dir)?;
        let (loads, server, quota) = (Vec::new(), None, None);
        let mut actor = Self { scenario, gpu, dir, devices, trouble, loads, neighbour, quota, server };
        if actor.scenario.start != Start::Late {
            actor.serve(0)?;
        }
        Ok(actor)
    }

    /// Starts the server, on a port that is free where `port` is 0.
    fn serve(&mut self, port: u16) -> Result<()> {
        let path = self.trouble.path().to_str().context("UTF-8")?.to_owned();
        let mut options = self.scenario.server.clone().with("device", self.gpu).with("trouble", path);
        options.devices = Some(self.devices.clone());
        options.port = port;
        options.environment.push(("FAKECUDA_DEVICES", GPUS.to_string()));
        let server = Server::start(&options, &self.dir)?;
        if self.scenario.quota_us.is_some() {
            self.quota = Some(Quota::new(server.process.pid())?);
        }
        self.server = Some(server);
        Ok(())
    }

    /// Its name, as findings have it; `None` until it has started.
    pub(crate) fn service(&self) -> Option<String> {
        Some(format!("modelserver:{}", self.server.as_ref()?.port))
    }

    /// Waits until the agent sees the driver in it.
    pub(crate) fn wait_attached(&self, agent: &mut Agent) -> Result<()> {
        self.server.as_ref().map_or(Ok(()), |server| agent.wait_attached(server))
    }

    /// Makes the calm load.
    pub(crate) fn calm(&mut self, seconds: f64) -> Result<()> {
        let calm = [self.scenario.calm.clone()];
        self.load(&calm, seconds)
    }

    fn load(&mut self, demands: &[Demand], seconds: f64) -> Result<()> {
        let Some(server) = &self.server else { return Ok(()) };
        for (number, demand) in demands.iter().enumerate() {
            let dir = self.dir.join(format!("clients{number}"));
            std::fs::create_dir_all(&dir)?;
            self.loads.push(demand.load(seconds).start(server.port, &dir)?);
        }
        Ok(())
    }

    /// Waits until its load is over.
    pub(crate) fn rest(&mut self) -> Result<()> {
        self.loads
            .drain(..)
            .try_for_each(|mut load| load.finish(LIMIT).map(drop))
            .with_context(|| self.scenario.name)
    }

    /// Lets it go wrong, and makes the load of that for so long.
    pub(crate) fn begin(&mut self, seconds: f64, node: &mut Node) -> Result<()> {
        match self.scenario.start {
            Start::First => {}
            Start::Late => self.serve(0)?,
            Start::Again => {
                let port = self.server.as_ref().map_or(0, |server| server.port);
                self.server.take().map_or(Ok(()), |mut server| server.stop())?;
                self.serve(port)?;
            }
        }
        self.scenario.wrong.iter().try_for_each(|(what, value)| self.trouble.set(*what, *value))?;
        node.set(self.gpu, self.scenario.clocks)?;
        self.quota.as_ref().map_or(Ok(()), |quota| quota.limit(self.scenario.quota_us))?;
        self.neighbour.as_mut().map_or(Ok(()), |it| it.begin(seconds, &self.dir))?;
        let during = self.scenario.during.clone();
        self.load(&during, seconds)
    }

    /// Lets nothing be wrong any more.
    pub(crate) fn end(&mut self, node: &mut Node) -> Result<()> {
        self.scenario.wrong.iter().try_for_each(|(what, _)| self.trouble.set(*what, 0))?;
        node.set(self.gpu, Clocks::Usual)?;
        self.quota.as_ref().map_or(Ok(()), |quota| quota.limit(None))?;
        self.neighbour.as_mut().map_or(Ok(()), Neighbour::finish)?;
        // A service on GPUs of two models stays wrong as long as it is there.
        if self.scenario.start == Start::Late {
            self.rest()?;
            self.server.take().map_or(Ok(()), |mut server| server.stop())?;
        }
        Ok(())
    }
}
