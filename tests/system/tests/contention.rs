//! Who stands in whose way: two jobs on one device against what the simulated device knows, the same two on devices of
//! their own, and a training job beside a server.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use system::agent::Agent;
use system::rig::{Load, Server, ServerOptions, Shape};
use system::{history, wait};

use crate::jobs::{self, Job, LIMIT, Plan, Pod, pair, process, until, uuid};

/// Steps alone and in company that the comparison rests on.
const STEPS: u64 = 200;
/// Two milliseconds of work and one of rest.
const VICTIM: [&str; 7] = ["--uuid", "--kernels", "4", "--units", "500", "--pause-us", "1000"];
/// Six milliseconds of work and hardly any rest.
const TRAINER: [&str; 8] =
    ["train_model.py", "--uuid", "--kernels", "3", "--units", "2000", "--pause-us", "200"];

fn victim<'a>(arguments: &'a [&'a str]) -> Plan<'a> {
    Plan { name: "victim", arguments, devices: 2, visible: None }
}

fn trainer<'a>(arguments: &'a [&'a str]) -> Plan<'a> {
    Plan { name: "trainer", arguments, devices: 2, visible: None }
}

pub(crate) fn one_device(dir: &Path) -> Result<()> {
    let on_first = ["--device", "0"];
    let mut victim = Job::start(&victim(&[&on_first[..], &VICTIM].concat()), dir)?;
    let mut trainer = Job::start(&trainer(&[&TRAINER[..1], &on_first, &TRAINER[1..]].concat()), dir)?;
    let mut agent = jobs::watch(&[&victim, &trainer], &jobs::devices(&[&[], &[]]), dir)?;
    victim.begin()?;
    waits(&mut agent, &uuid(0), victim.pid(), STEPS)?;
    trainer.begin()?;
    let (one, other) = (victim.pid(), trainer.pid());
    until(&mut agent, "steps in company", |gpus| {
        let pair = pair(gpus, &uuid(0), one, other)?;
        (pair["company_steps"].as_u64()? >= STEPS && pair["aggressor"]["role"] == "training").then_some(())
    })?;
    victim.finish()?;
    trainer.finish()?;

    let (steps, others) = (victim.steps(0)?, trainer.steps(0)?);
    let overlap = history::overlap(&steps, &others);
    let (inflation, solo, company) = history::inflation(&steps, &others).context("no steps of both kinds")?;
    ensure!(
        overlap > 0.1 && inflation > 1.5,
        "they hardly met: {overlap} s, x{inflation} ({solo}, {company})"
    );
    // The last steps are compared two seconds after they ended.
    let found = until(&mut agent, "the whole overlap", |gpus| {
        let pair = pair(gpus, &uuid(0), one, other)?;
        (pair["overlap_s"].as_f64()? >= overlap * 0.98).then(|| pair.clone())
    })?;
    let number = |name: &str| found[name].as_f64().with_context(|| format!("no {name} in {found}"));
    let (seen, ratio) = (number("overlap_s")?, number("inflation_ratio")?);
    std::fs::write(
        dir.join("result"),
        format!("overlap {seen:.4} s, true {overlap:.4} s; inflation {ratio:.4}, true {inflation:.4}\n"),
    )?;
    ensure!((seen / overlap - 1.0).abs() <= 0.02, "overlap {seen} s, true {overlap} s");
    ensure!((ratio / inflation - 1.0).abs() <= 0.1, "inflation {ratio}, true {inflation}");
    ensure!(found["verdict"] == "contended", "{found}");
    named(&found)?;
    let metrics = agent.metrics_text()?;
    let labels =
        format!("{{device=\"{}\",victim=\"victim\",aggressor=\"trainer\",inferred=\"false\"}} ", uuid(0));
    for family in ["gpu_contention_overlap_seconds_total", "gpu_contention_inflation_ratio"] {
        let line = format!("{family}{labels}");
        ensure!(metrics.lines().any(|l| l.starts_with(&line)), "{line} is not in {metrics}");
    }
    active_time(&metrics, "victim", &steps)?;
    agent.stop()
}

/// Who it was, and why one thinks so.
fn named(pair: &Value) -> Result<()> {
    let aggressor = &pair["aggressor"];
    ensure!(aggressor["workload"] == "trainer" && aggressor["comm"] == "trainer", "{aggressor}");
    ensure!(aggressor["role"] == "training", "{aggressor}");
    Ok(())
}

/// The union of its intervals, within two percent.
fn active_time(metrics: &str, workload: &str, steps: &[history::Interval]) -> Result<()> {
    let truth = steps.iter().map(|[begin, end]| end - begin).sum::<u64>() as f64 / 1e9;
    let is_its = |line: &&str| {
        line.starts_with("gpu_process_active_seconds_total{")
            && line.contains(&format!("workload=\"{workload}\""))
    };
    let values =
        metrics.lines().filter(is_its).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    let seen: f64 = values.sum();
    ensure!((seen / truth - 1.0).abs() <= 0.02, "active for {seen} s, true {truth} s");
    Ok(())
}

pub(crate) fn two_devices(dir: &Path) -> Result<()> {
    let mut victim = Job::start(&victim(&[&["--device", "0"], &VICTIM[..]].concat()), dir)?;
    let mut trainer =
        Job::start(&trainer(&[&TRAINER[..1], &["--device", "1"], &TRAINER[1..]].concat()), dir)?;
    let mut agent = jobs::watch(&[&victim, &trainer], &jobs::devices(&[&[], &[]]), dir)?;
    victim.begin()?;
    trainer.begin()?;
    waits(&mut agent, &uuid(0), victim.pid(), STEPS)?;
    waits(&mut agent, &uuid(1), trainer.pid(), STEPS)?;
    // What overlapped is compared two seconds later; the active time of these steps is then shown for as long.
    let later = waits_of(&mut agent, &uuid(0), victim.pid())? + STEPS * 4;
    waits(&mut agent, &uuid(0), victim.pid(), later)?;
    let gpus: Value = serde_json::from_str(&agent.get("/api/v1/gpus")?)?;
    for gpu in gpus["gpus"].as_array().context("a list")? {
        ensure!(gpu.get("contention").is_none(), "they are on devices of their own: {gpu}");
    }
    let metrics = agent.metrics_text()?;
    ensure!(
        !metrics.lines().any(|line| line.starts_with("gpu_contention_overlap_seconds_total{")),
        "{metrics}"
    );
    victim.finish()?;
    trainer.finish()?;
    agent.stop()
}

/// One process with a thread on each of two devices: both use the default stream, whose handle is the same in both
/// contexts, and each wait is for the work of its own.
pub(crate) fn two_contexts(dir: &Path) -> Result<()> {
    let arguments = ["--device", "0", "--device", "1", "--uuid", "--kernels", "2", "--units", "500"];
    let mut job =
        Job::start(&Plan { name: "double", arguments: &arguments, devices: 2, visible: None }, dir)?;
    let mut agent = jobs::watch(&[&job], &jobs::devices(&[&[], &[]]), dir)?;
    job.begin()?;
    for device in [0, 1] {
        waits(&mut agent, &uuid(device), job.pid(), STEPS)?;
    }
    job.finish()?;
    let truth = [job.steps(0)?.len() as u64, job.steps(1)?.len() as u64];
    let found = wait::until("the last steps", LIMIT, || {
        let metrics = agent.metrics_text()?;
        let launches = metrics.lines().find(|line| line.starts_with("cuda_launches_total{"));
        let launches = launches.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or(0);
        Ok((launches >= 2 * (truth[0] + truth[1])).then_some((launches, metrics)))
    })?;
    ensure!(found.0 == 2 * (truth[0] + truth[1]), "{} launches, true {truth:?}", found.0);
    let waits = found.1.lines().find(|line| line.starts_with("cuda_sync_wait_seconds_count"));
    let waits = waits.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    ensure!(waits == Some(truth[0] + truth[1]), "each wait is a step: {waits:?}, true {truth:?}");
    agent.stop()
}

/// A training job in a pod comes to the device of a server that answers requests; the agent is told of neither.
pub(crate) fn neighbour(dir: &Path) -> Result<()> {
    let mut server = Server::start(&ServerOptions::new(Shape::Single), dir)?;
    let arguments = [&TRAINER[..1], &["--device", "0"], &TRAINER[1..]].concat();
    let mut trainer = Job::start(&Plan { devices: 1, ..trainer(&arguments) }, dir)?;
    let pids = [server.process.pid(), trainer.pid()];
    let pod = Pod::new()?;
    pod.take(trainer.pid())?;
    let config = jobs::nvml(&jobs::devices(&[&pids]), dir)?;
    let mut agent = Agent::start(dir, &["--config", config.to_str().context("UTF-8")?])?;
    agent.wait_attached(&server)?;
    jobs::wait_attached(&mut agent)?;
    trainer.begin()?;
    let mut load = Load::for_seconds(2, 20.0).start(server.port, dir)?;
    let event =
        until(&mut agent, "the neighbour", |gpus| Some(gpus["neighbours"].as_array()?.first()?.clone()))?;
    ensure!(
        (&event["inference"]["pid"], &event["training"]["pid"]) == (&pids[0].into(), &pids[1].into()),
        "{event}"
    );
    ensure!(
        (&event["training"]["pod"], &event["training"]["container"]) == (&json!(pod.uid), &json!(pod.id)),
        "{event}"
    );
    ensure!(event["training"]["workload"] == "trainer" && event["device"] == uuid(0), "{event}");
    let gpus: Value = serde_json::from_str(&agent.get("/api/v1/gpus")?)?;
    let trains = process(&gpus, &uuid(0), pids[1]).context("the trainer is not on the device")?;
    let evidence = trains["activity"]["evidence"].to_string();
    for part in ["training_command", "\"train\"", "steps_without_requests"] {
        ensure!(evidence.contains(part), "{part} is not in {evidence}");
    }
    let server_evidence =
        process(&gpus, &uuid(0), pids[0]).context("the server is not on it")?["activity"].to_string();
    ensure!(server_evidence.contains("\"requests\""), "{server_evidence}");
    load.finish(LIMIT)?;
    trainer.finish()?;
    agent.stop()?;
    server.stop()
}

/// Waits until so many steps of a process are known to have been on a device.
fn waits(agent: &mut Agent, device: &str, pid: u32, count: u64) -> Result<()> {
    until(agent, "steps on the device", |gpus| {
        let waits = process(gpus, device, pid)?["activity"]["waits"].as_u64()?;
        (waits >= count).then_some(())
    })
}

fn waits_of(agent: &mut Agent, device: &str, pid: u32) -> Result<u64> {
    until(agent, "the process", |gpus| process(gpus, device, pid)?["activity"]["waits"].as_u64())
}
