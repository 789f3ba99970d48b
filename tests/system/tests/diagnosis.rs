//! Why it was slow: incidents acted on servers and GPUs of their own, all at once, under one agent, and one where nothing
//! is wrong.
//!
//! What is wrong is known from how it was made: the finding that comes first must be of that rule, within a minute of its
//! beginning, and be closed within two of its end.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use system::agent::{self, Agent};
use system::rig::{Load, Running, Server, ServerOptions, Shape};
use system::wait;

use crate::jobs::{self, Job, Plan};

/// Load before, which tells what is usual.
const CALM_S: f64 = 50.0;
/// Load of an incident.
const INCIDENT_S: f64 = 55.0;
/// A finding must be there so long after the beginning.
const FOUND: Duration = Duration::from_mins(1);
/// And closed so long after the end.
const CLOSED: Duration = Duration::from_mins(2);
/// Load after it: as long as that may take.
const AFTER_S: f64 = 125.0;

/// What is wrong for a while.
struct Incident {
    name: &'static str,
    /// The rule that must come first; `None` where nothing is wrong.
    rule: Option<&'static str>,
    options: ServerOptions,
    load: Load,
    /// A training job works on the same GPU meanwhile.
    beside: bool,
}

/// Load with prompts and answers of these lengths.
fn load(clients: u32, seconds: f64, [input, output]: [&str; 2]) -> Load {
    Load::for_seconds(clients, seconds).with("input-tokens", input).with("output-tokens", output)
}

/// Lengths of what is usual.
const USUAL: [&str; 2] = ["48-80", "12-20"];

fn incidents() -> Vec<Incident> {
    let split = || ServerOptions::new(Shape::Split);
    let acted = |name, rule, load| Incident { name, rule, options: split(), load, beside: false };
    let during = |clients| load(clients, INCIDENT_S, USUAL);
    vec![
        acted("longer prompts", Some("input_drift"), load(2, INCIDENT_S, ["1500-2000", USUAL[1]])),
        acted("longer answers", Some("output_drift"), load(2, INCIDENT_S, [USUAL[0], "60-80"])),
        acted("clients that leave", Some("error_class_spike"), during(2).with("abort-ratio", "0.5")),
        Incident {
            options: split().with("max-batch", 2),
            ..acted("more requests than it can take", Some("capacity_knee_passed"), during(12))
        },
        Incident {
            options: ServerOptions::new(Shape::Single),
            beside: true,
            ..acted("a training job beside it", Some("gpu_contention"), during(2))
        },
        acted("nothing", None, during(2)),
    ]
}

/// A server, and what goes on with it.
struct Acted {
    incident: Incident,
    server: Server,
    dir: PathBuf,
    service: String,
    job: Option<Job>,
    found_s: Option<f64>,
    closed_s: Option<f64>,
}

impl Acted {
    fn start(incident: Incident, dir: &Path) -> Result<Self> {
        let dir = dir.join(incident.name.replace(' ', "_"));
        std::fs::create_dir_all(&dir)?;
        let server = Server::start(&incident.options, &dir)?;
        let service = format!("modelserver:{}", server.port);
        let job = if incident.beside { Some(trainer(&server, &dir)?) } else { None };
        Ok(Self { incident, server, dir, service, job, found_s: None, closed_s: None })
    }

    fn load(&self, load: &Load) -> Result<Running> {
        load.start(self.server.port, &self.dir)
    }

    /// Rules of its findings that go on, the first one first.
    fn active(&self, findings: &[Value]) -> Vec<String> {
        let own =
            findings.iter().filter(|it| it["state"] == "active" && it["service"] == self.service.as_str());
        own.map(|it| it["rule"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn line(&self) -> String {
        let seconds = |at: Option<f64>| at.map_or("-".into(), |s| format!("{s:.0} s"));
        let (found, closed) = (seconds(self.found_s), seconds(self.closed_s));
        format!(
            "{:32} {:24} found {found:>5} closed {closed:>5}\n",
            self.incident.name,
            self.incident.rule.unwrap_or("-")
        )
    }
}

/// A training job on the GPU of a server, which does nothing yet.
fn trainer(server: &Server, dir: &Path) -> Result<Job> {
    std::os::unix::fs::symlink(server.shared_memory(), dir.join("devices"))?;
    // Six milliseconds of work and hardly any rest.
    let arguments = [
        "train_model.py",
        "--device",
        "0",
        "--uuid",
        "--kernels",
        "3",
        "--units",
        "2000",
        "--pause-us",
        "200",
    ];
    Job::start(&Plan { name: "trainer", arguments: &arguments, devices: 1, visible: None }, dir)
}

/// NVML tells of the GPU of the server with the training job, and of another one, so that it is not known of the other
/// servers where they are.
fn nvml(all: &[Acted], dir: &Path) -> Result<PathBuf> {
    let with = all.iter().find_map(|acted| Some([acted.server.process.pid(), acted.job.as_ref()?.pid()]));
    jobs::nvml(&jobs::devices(&[&with.context("one of them has a job beside it")?, &[]]), dir)
}

fn findings(agent: &Agent) -> Result<Vec<Value>> {
    let told: Value = serde_json::from_str(&agent.get("/api/v1/findings")?)?;
    told["findings"].as_array().cloned().context("a list")
}

fn finish(loads: Vec<Running>) -> Result<()> {
    let limit = Duration::from_mins(3);
    loads.into_iter().try_for_each(|mut load| load.finish(limit).map(drop))
}

pub(crate) fn incidents_are_told(dir: &Path) -> Result<()> {
    let started: Result<Vec<Acted>> = incidents().into_iter().map(|it| Acted::start(it, dir)).collect();
    let mut all = started?;
    let config = nvml(&all, dir)?;
    let mut agent = Agent::start(dir, &["--config", config.to_str().context("UTF-8")?])?;
    all.iter().try_for_each(|acted| agent.wait_attached(&acted.server))?;
    finish(all.iter().map(|acted| acted.load(&load(2, CALM_S, USUAL))).collect::<Result<_>>()?)?;
    let before = findings(&agent)?;
    ensure!(
        all.iter().all(|acted| acted.active(&before).is_empty()),
        "before anything was wrong: {before:#?}"
    );

    let loads = all.iter().map(|acted| acted.load(&acted.incident.load)).collect::<Result<_>>()?;
    all.iter().filter_map(|acted| acted.job.as_ref()).try_for_each(Job::begin)?;
    let begun = Instant::now();
    found(&mut all, &agent, begun)?;
    told_to_people(&agent)?;
    finish(loads)?;
    all.iter_mut().filter_map(|acted| acted.job.as_mut()).try_for_each(Job::finish)?;

    let calm: Vec<Running> =
        all.iter().map(|acted| acted.load(&load(2, AFTER_S, USUAL))).collect::<Result<_>>()?;
    let ended = Instant::now();
    closed(&mut all, &agent, ended)?;
    std::fs::write(dir.join("result"), all.iter().map(Acted::line).collect::<String>())?;
    let nothing = all.iter().filter(|acted| acted.incident.rule.is_none());
    for quiet in nothing {
        let said: Vec<Value> =
            findings(&agent)?.into_iter().filter(|it| it["service"] == quiet.service.as_str()).collect();
        ensure!(said.is_empty(), "nothing was wrong with it: {said:#?}");
    }
    drop(calm);
    agent.stop()
}

/// Waits until of each incident the right finding comes first.
fn found(all: &mut [Acted], agent: &Agent, begun: Instant) -> Result<()> {
    let mut last = Vec::new();
    let waited = wait::until("the right finding of each incident", FOUND, || {
        last = findings(agent)?;
        for acted in all.iter_mut().filter(|acted| acted.found_s.is_none()) {
            let first = acted.active(&last).into_iter().next();
            if first.as_deref() == acted.incident.rule && first.is_some() {
                acted.found_s = Some(begun.elapsed().as_secs_f64());
            }
        }
        Ok(all.iter().all(|acted| acted.found_s.is_some() || acted.incident.rule.is_none()).then_some(()))
    });
    let lines: String = all.iter().map(Acted::line).collect();
    let gpus = agent.get("/api/v1/gpus").unwrap_or_default();
    waited.with_context(|| {
        format!("so far:\n{lines}{gpus}\n{}", serde_json::to_string_pretty(&last).unwrap_or_default())
    })
}

/// Waits until nothing is told any more.
fn closed(all: &mut [Acted], agent: &Agent, ended: Instant) -> Result<()> {
    let mut last = Vec::new();
    let waited = wait::until("everything to be over", CLOSED, || {
        last = findings(agent)?;
        for acted in all.iter_mut().filter(|acted| acted.closed_s.is_none()) {
            if acted.active(&last).is_empty() {
                acted.closed_s = Some(ended.elapsed().as_secs_f64());
            }
        }
        Ok(all.iter().all(|acted| acted.closed_s.is_some()).then_some(()))
    });
    waited.with_context(|| serde_json::to_string_pretty(&last).unwrap_or_default())
}

/// The command, its exit code, and the metric say the same.
fn told_to_people(agent: &Agent) -> Result<()> {
    let url = format!("http://{}", agent.address());
    let said = agent::command(&["diagnose", "--url", &url])?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    ensure!(said.status.code() == Some(1), "a finding goes on: {:?}\n{text}", said.status);
    ensure!(text.contains("input_drift") && text.contains("look next:"), "{text}");
    let changes = agent::command(&["changes", "--url", &url])?;
    ensure!(changes.status.success(), "{changes:?}");
    let metrics = agent.metrics_text()?;
    let is_it = |line: &str| {
        line.starts_with("inference_finding_active{rule=\"input_drift\"") && line.ends_with(" 1.0")
    };
    ensure!(metrics.lines().any(is_it), "{metrics}");
    Ok(())
}
