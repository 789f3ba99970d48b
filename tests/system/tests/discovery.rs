//! Servers and drivers that come after the agent.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use system::agent::Agent;
use system::rig::{Load, Server, ServerOptions, Shape};
use system::run::Stage;

const LIMIT: Duration = Duration::from_mins(1);

pub(crate) fn driver_loaded_late_single(dir: &Path) -> Result<()> {
    // Longer than the agent needs to see the process without its driver.
    comes_late(&ServerOptions::new(Shape::Single).with("dlopen-delay-ms", 5000), dir)
}

pub(crate) fn driver_loaded_late_split(dir: &Path) -> Result<()> {
    comes_late(&ServerOptions::new(Shape::Split).with("dlopen-delay-ms", 5000), dir)
}

pub(crate) fn server_after_agent(dir: &Path) -> Result<()> {
    comes_late(&ServerOptions::new(Shape::Split), dir)
}

/// The agent is ready before the server exists, and still sees every request once it says that it watches.
fn comes_late(options: &ServerOptions, dir: &Path) -> Result<()> {
    let mut agent = Agent::start(dir, &[])?;
    let server = Server::start(options, dir)?;
    agent.wait_attached(&server)?;
    let follower = agent.follow(dir)?;
    let stage = Stage { server, agent, follower };
    let finished = stage.play(options.shape.name(), &Load::requests(1, 10), dir, LIMIT)?;
    let violations = finished.report.violations();
    ensure!(violations.is_empty(), "{}\nin {:#?}", violations.join("; "), finished.report);
    Ok(())
}
