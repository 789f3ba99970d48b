//! Services: several servers of one program beside each other, each of another build, under one agent.
//!
//! All of them are started by this process, in one session and job: only their connections tell which front belongs to
//! which engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use system::accuracy::{self, Joined};
use system::agent::{Agent, Follower};
use system::rig::{Load, Server, ServerOptions, Shape};
use system::run::SETTLE_LIMIT;
use system::truth::with_arrivals;

const LIMIT: Duration = Duration::from_mins(1);
/// Requests to each server.
const REQUESTS: u32 = 32;
/// What a stage may be off at the median: the promise of the product.
const WITHIN: (f64, f64) = (0.1, 0.002);

/// A server, where its files are, and how many processes it has beside the one that listens.
struct Build {
    name: &'static str,
    server: Server,
    dir: PathBuf,
    engines: usize,
}

fn start(name: &'static str, options: &ServerOptions, engines: usize, dir: &Path) -> Result<Build> {
    let dir = dir.join(name);
    fs::create_dir_all(&dir)?;
    Ok(Build { name, server: Server::start(options, &dir)?, dir, engines })
}

/// Ranks, replicas, two models, a proxy, a chain, shared memory: each is one service, with its engines and nobody
/// else's; no request is missed or told twice; streams have the stages of the engine that they were at.
pub(crate) fn many_builds(dir: &Path) -> Result<()> {
    let split = || ServerOptions::new(Shape::Split);
    let mut builds = vec![
        start("ranks", &ServerOptions::new(Shape::Sharded).with("ranks", 2), 2, dir)?,
        start("replicas", &split().with("replicas", 2), 2, dir)?,
        start("models", &split().with("models", "small,large"), 2, dir)?,
        start("proxied", &ServerOptions::new(Shape::Proxied), 1, dir)?,
        start("chain", &ServerOptions::new(Shape::Chain), 2, dir)?,
        start("shm", &ServerOptions::new(Shape::Shm), 1, dir)?,
    ];
    let mut agent = Agent::start(dir, &[])?;
    for build in &builds {
        agent.wait_attached(&build.server)?;
    }
    let mut follower = agent.follow(dir)?;
    let mut seen = BTreeMap::new();
    for build in &builds {
        seen.insert(build.name, play(build, &mut follower)?);
    }
    each_is_one_service(&agent, &builds)?;
    metrics_of_services(&agent, &builds)?;
    for (name, joined) in &seen {
        ensure!(joined.missed.is_empty() && joined.duplicated.is_empty(), "{name}: {joined:#?}");
        ensure!(joined.unmatched == 0, "{name}: {} records of nothing", joined.unmatched);
        stages_hold(joined).with_context(|| (*name).to_owned())?;
    }
    models_have_engines(&follower, &builds)?;
    builds.iter_mut().try_for_each(|build| build.server.stop())?;
    agent.stop()?;
    follower.wait_end(SETTLE_LIMIT)
}

/// Load for one server, half of it for the other model where there are two.
fn play(build: &Build, follower: &mut Follower) -> Result<Joined> {
    let port = build.server.port;
    let load = |count, seed: u32| Load::requests(4, count).varied().with("seed", seed);
    let loads = match build.name {
        "models" => {
            vec![load(REQUESTS / 2, 1).with("model", "small"), load(REQUESTS / 2, 2).with("model", "large")]
        }
        // Probes that run a step, and are no requests.
        "chain" => vec![load(REQUESTS, 1).with("probe", "/health_generate")],
        _ => vec![load(REQUESTS, 1)],
    };
    let mut running = Vec::new();
    for (number, load) in loads.iter().enumerate() {
        let dir = build.dir.join(number.to_string());
        fs::create_dir_all(&dir)?;
        running.push(load.start(port, &dir)?);
    }
    let mut clients = Vec::new();
    for load in &mut running {
        clients.extend(load.finish(LIMIT)?);
    }
    let all = |records: &[system::agent::Record]| records.len() >= clients.len();
    let records = follower.wait("the last records", port, SETTLE_LIMIT, all)?;
    Ok(accuracy::join(&with_arrivals(build.server.truth()?, &clients), &records))
}

fn each_is_one_service(agent: &Agent, builds: &[Build]) -> Result<()> {
    let status = agent.status()?;
    let mut taken = BTreeSet::new();
    for build in builds {
        let front = build.server.process.pid();
        let own: BTreeSet<u32> = children(front).into_iter().chain([front]).collect();
        ensure!(own.len() == build.engines + 1, "{} has the processes {own:?}", build.name);
        let service = status.services.iter().find(|service| service.pids.contains(&front));
        let service = service.with_context(|| format!("{} is no service", build.name))?;
        let pids: BTreeSet<u32> = service.pids.iter().copied().collect();
        ensure!(pids == own, "{}: {pids:?} instead of {own:?}", build.name);
        ensure!(service.ports.contains(&build.server.port), "{}: {:?}", build.name, service.ports);
        ensure!(taken.insert(service.name.clone()), "{} has the name of another one", build.name);
    }
    Ok(())
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// The sockets' bytes at least carry what the clients sent, and connections and CPU time are there for each.
fn metrics_of_services(agent: &Agent, builds: &[Build]) -> Result<()> {
    let metrics = agent.metrics_text()?;
    for build in builds {
        let label = format!("service=\"modelserver:{}\"", build.server.port);
        let value = |name: &str, more: &str| {
            let line = metrics
                .lines()
                .find(|line| line.starts_with(name) && line.contains(&label) && line.contains(more))?;
            line.rsplit(' ').next()?.parse::<f64>().ok()
        };
        let is_there = |name: &str, more: &str| {
            let found = value(name, more);
            ensure!(found.is_some_and(|n| n > 0.0), "{name} of {} is {found:?}", build.name);
            Ok(())
        };
        is_there("inference_service_info{", "engine=\"unknown\"")?;
        is_there("inference_service_cpu_seconds_total{", "")?;
        is_there("inference_service_memory_bytes{", "")?;
        is_there("inference_service_network_bytes_total{", "dir=\"in\"")?;
        is_there("inference_service_network_bytes_total{", "dir=\"out\"")?;
    }
    Ok(())
}

/// Of streams whose steps are told, each stage is right at the median.
fn stages_hold(joined: &Joined) -> Result<()> {
    let told = || joined.pairs.iter().filter(|pair| pair.record.confidence.as_deref() != Some("bounded"));
    let count = told().count();
    ensure!(count * 2 > joined.pairs.len(), "of {} requests {count} have steps", joined.pairs.len());
    for stage in ["queue", "prefill", "decode"] {
        let mut off: Vec<f64> = told()
            .filter_map(|pair| {
                let truth = pair.truth.stage(stage)?;
                let error = (pair.record.stage(stage)? - truth).abs();
                Some(error - WITHIN.1.max(truth * WITHIN.0))
            })
            .collect();
        off.sort_by(f64::total_cmp);
        let median = off.get(off.len() / 2).context("no request has the stage")?;
        ensure!(*median <= 0.0, "{stage} is {median} s more off than it may be at the median");
    }
    Ok(())
}

/// What is told of the requests of a model comes from one engine, and of the other model from the other.
fn models_have_engines(follower: &Follower, builds: &[Build]) -> Result<()> {
    let port = builds.iter().find(|build| build.name == "models").map(|build| u64::from(build.server.port));
    let mut engines: BTreeMap<String, BTreeMap<u64, u32>> = BTreeMap::new();
    for line in follower.lines() {
        let record: Value = serde_json::from_str(&line)?;
        let engine = record["engine_pid"].as_u64().filter(|_| record["local_port"].as_u64() == port);
        if let (Some(engine), Some(model)) = (engine, record["model"].as_str()) {
            *engines.entry(model.to_owned()).or_default().entry(engine).or_default() += 1;
        }
    }
    let most = |model: &str| engines.get(model)?.iter().max_by_key(|(_, count)| **count).map(|(pid, _)| *pid);
    ensure!(most("small").is_some() && most("large").is_some(), "{engines:?}");
    ensure!(most("small") != most("large"), "{engines:?}");
    Ok(())
}
