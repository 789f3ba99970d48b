//! CUDA calls: the agent's counts are the driver's.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use system::agent::Agent;
use system::rig::{CudaTruth, Load, Server, ServerOptions, Shape};
use system::run::Stage;

const LIMIT: Duration = Duration::from_mins(1);

pub(crate) fn single(dir: &Path) -> Result<()> {
    counts(Shape::Single, dir)
}

pub(crate) fn split(dir: &Path) -> Result<()> {
    counts(Shape::Split, dir)
}

/// Calls of the server's start are over before the agent can attach, so they are counted in a run without load.
fn counts(shape: Shape, dir: &Path) -> Result<()> {
    let options = ServerOptions::new(shape).with("alloc-every", 4);
    let idle_dir = dir.join("idle");
    std::fs::create_dir_all(&idle_dir)?;
    let mut idle = Server::start(&options, &idle_dir)?;
    idle.stop()?;
    let at_start = idle.cuda_truth()?;
    let finished = watch_only(&options, dir)?.play(shape.name(), &Load::requests(2, 20), dir, LIMIT)?;
    let seen = seen(&finished.metrics);
    let truth = since(&at_start, &finished.cuda);
    ensure!(truth.0 + truth.1 > 100 && truth.2 > 0, "the run made too few calls to tell: {truth:?}");
    ensure!(seen == truth, "launches, graph launches, allocations: seen {seen:?}, true {truth:?}");
    Ok(())
}

/// Metrics have no label for the process, so other servers of this machine must stay out of them.
fn watch_only(options: &ServerOptions, dir: &Path) -> Result<Stage> {
    let server = Server::start(options, dir)?;
    let mut agent = Agent::start(dir, &["--pid", &server.process.pid().to_string()])?;
    agent.wait_attached(&server)?;
    let follower = agent.follow(dir)?;
    Ok(Stage { server, agent, follower })
}

fn since(start: &CudaTruth, end: &CudaTruth) -> (u64, u64, u64) {
    (end.launches - start.launches, end.graph_launches - start.graph_launches, end.allocs - start.allocs)
}

fn seen(metrics: &str) -> (u64, u64, u64) {
    let sum = |name: &str, label: &str| {
        let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
        values.map(|value| value as u64).sum()
    };
    (
        sum("cuda_launches_total{", "kind=\"kernel\""),
        sum("cuda_launches_total{", "kind=\"graph\""),
        sum("cuda_alloc_seconds_count", ""),
    )
}
