//! The agent as a user runs it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

pub use crate::follower::Follower;
use crate::process::Process;
use crate::rig::Server;
use crate::{host, wait};

/// How long the agent may take to load, to attach, or to end.
pub const AGENT_LIMIT: Duration = Duration::from_secs(30);

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    /// The process.
    pub process: Process,
    address: SocketAddr,
    recording: PathBuf,
}

/// A finished request, as the agent prints it. Fields that no test reads are left out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names of the request record")]
pub struct Record {
    pub pid: u32,
    pub service: String,
    pub local_port: Option<u16>,
    pub protocol: String,
    pub method: Option<String>,
    pub path: Option<String>,
    pub model: Option<String>,
    pub model_version: Option<String>,
    pub api: Option<String>,
    pub streaming: Option<bool>,
    pub status: Option<u16>,
    pub outcome: Option<String>,
    pub finish_reason: Option<String>,
    pub t_first_byte_in_ns: Option<u64>,
    pub t_first_token_ns: Option<u64>,
    pub t_last_byte_out_ns: Option<u64>,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub chunks: Option<u64>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub tokens_source: Option<String>,
    pub arrival: Option<String>,
    pub t_acked_ns: Option<u64>,
    pub t_close_ns: Option<u64>,
    pub e2e_s: Option<f64>,
    pub delivery_s: Option<f64>,
    pub srtt_s: Option<f64>,
    pub retransmits: Option<u32>,
    pub ttft_s: Option<f64>,
    pub tpot_s: Option<f64>,
    pub tbt_p50_s: Option<f64>,
    pub tbt_max_s: Option<f64>,
    pub stages: BTreeMap<String, f64>,
    pub confidence: Option<String>,
    pub steps: Option<u64>,
    pub batch_size_mean: Option<f64>,
    pub flags: Vec<String>,
    pub request_id: Option<String>,
    pub client_deadline_s: Option<f64>,
    pub client_deadline_samples: Option<u64>,
    pub inner_count: Option<u64>,
    pub inner_service: Option<String>,
    pub inner_pid: Option<u32>,
    pub inner_port: Option<u16>,
    pub t_inner_first_byte_in_ns: Option<u64>,
    pub t_inner_read_done_ns: Option<u64>,
    pub t_inner_first_token_ns: Option<u64>,
    pub t_inner_last_byte_out_ns: Option<u64>,
    pub stage_bounds: BTreeMap<String, [f64; 2]>,
}

impl Record {
    /// Reads one line of `requests --json` or `replay`.
    pub fn parse(line: &str) -> Result<Self> {
        serde_json::from_str(line).with_context(|| format!("not a request record: {line}"))
    }

    /// Its times begin at the arrival, not at the read.
    pub fn observes_arrival(&self) -> bool {
        matches!(self.arrival.as_deref(), Some("wire" | "bounded"))
    }

    /// A stage's seconds, by its short name.
    pub fn stage(&self, name: &str) -> Option<f64> {
        self.stages.get(&format!("{name}_s")).copied()
    }
}

/// What the agent says about itself. Fields that no test reads are left out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names of /api/v1/status")]
pub struct Status {
    pub ready: bool,
    pub services: Vec<Service>,
    pub probes: Vec<Probe>,
    pub health: Health,
    pub tls: BTreeMap<String, Tls>,
}

/// A watched service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names of /api/v1/status")]
pub struct Service {
    pub name: String,
    pub pids: Vec<u32>,
    pub ports: Vec<u16>,
    pub connections_before: u64,
}

/// TLS of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names of /api/v1/status")]
pub struct Tls {
    pub connections: u64,
    pub linked: u64,
    pub opaque: u64,
    pub unlinked_calls: u64,
    pub unlinked_bytes: u64,
    pub contradicted: u64,
    pub unframed: u64,
}

/// One program on one target.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names of /api/v1/status")]
pub struct Probe {
    pub program: String,
    pub target: Option<String>,
    pub state: String,
    pub reason: Option<String>,
}

/// Counts of records.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names of /api/v1/status")]
pub struct Health {
    pub seen: u64,
    pub decoded: u64,
    pub failed: BTreeMap<String, u64>,
    pub ignored: BTreeMap<String, u64>,
    pub limits: BTreeMap<String, u64>,
    pub kernel: BTreeMap<String, u64>,
}

impl Health {
    /// Records that were lost or could not be read.
    pub fn dropped(&self) -> u64 {
        let is_loss = |name: &str| name.starts_with("drop_") || matches!(name, "map_full" | "bad_cookie");
        let lost: u64 = self.kernel.iter().filter(|(name, _)| is_loss(name)).map(|(_, count)| count).sum();
        lost + self.failed.values().sum::<u64>()
    }
}

impl Agent {
    /// Starts `stagelens run` on a free port, recording to `<dir>/run.slrec`, and waits until it is ready.
    pub fn start(dir: &Path, extra: &[&str]) -> Result<Self> {
        let mut agent = Self::launch(dir, extra)?;
        agent.wait_ready()?;
        Ok(agent)
    }

    /// The same without waiting.
    pub fn launch(dir: &Path, extra: &[&str]) -> Result<Self> {
        Self::launch_under(&[], dir, extra)
    }

    /// The same, started by another program (one that takes rights away) that takes its command line.
    pub fn launch_under(wrapper: &[&str], dir: &Path, extra: &[&str]) -> Result<Self> {
        let address = free_address()?;
        let recording = dir.join("run.slrec");
        let stagelens = host::binary("stagelens")?;
        let mut command = match wrapper {
            [] => Command::new(stagelens),
            [program, words @ ..] => {
                let mut command = Command::new(program);
                command.args(words).arg(stagelens);
                command
            }
        };
        command
            .args(["run", "--listen", &address.to_string(), "--record"])
            .arg(&recording)
            .args(extra)
            .stdout(Stdio::null());
        Ok(Self { process: Process::start("stagelens", command, dir)?, address, recording })
    }

    /// Waits for `/readyz`.
    pub fn wait_ready(&mut self) -> Result<()> {
        let mut missing = String::from("no answer yet");
        let ready = wait::until("the agent to be ready", AGENT_LIMIT, || {
            self.process.check_alive()?;
            match self.get("/readyz") {
                Ok(_) => return Ok(Some(())),
                Err(error) => missing = error.to_string(),
            }
            Ok(None)
        });
        ready.with_context(|| format!("the last look at /readyz said: {missing}"))
    }

    /// Waits until every process of `server` that uses the driver is watched and its port is known.
    pub fn wait_attached(&mut self, server: &Server) -> Result<()> {
        let mut last = Status::default();
        let attached = wait::until("the agent to watch the model server", AGENT_LIMIT, || {
            self.process.check_alive()?;
            last = self.status()?;
            Ok(watches(&last, server).then_some(()))
        });
        attached.with_context(|| format!("its status was: {last:#?}"))
    }

    /// `/api/v1/status`.
    pub fn status(&self) -> Result<Status> {
        serde_json::from_str(&self.get("/api/v1/status")?).context("/api/v1/status has an unexpected form")
    }

    /// Body of a GET; a status other than 2xx is an error with the body in it.
    pub fn get(&self, path: &str) -> Result<String> {
        get(self.address, path, "*/*")
    }

    /// `/metrics` in Prometheus' text format.
    pub fn metrics_text(&self) -> Result<String> {
        get(self.address, "/metrics", "text/plain")
    }

    /// Where its HTTP server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it records to.
    pub fn recording(&self) -> &Path {
        &self.recording
    }

    /// Starts `stagelens requests --follow --json` and waits until it is connected.
    pub fn follow(&self, dir: &Path) -> Result<Follower> {
        let before = self.followers()?;
        let mut follower = Follower::start(self.address, dir)?;
        wait::until("the follower to be connected", AGENT_LIMIT, || {
            follower.process.check_alive()?;
            Ok((self.followers()? > before).then_some(()))
        })?;
        Ok(follower)
    }

    /// Clients that follow it, by its own count.
    fn followers(&self) -> Result<f64> {
        let text = self.metrics_text()?;
        let value = text.lines().find_map(|line| line.strip_prefix("stagelens_api_followers "));
        value.and_then(|value| value.parse().ok()).context("stagelens_api_followers is not there")
    }

    /// Lets it end, so that its recording is complete. Letting go of its probes takes the kernel half a minute.
    pub fn stop(&mut self) -> Result<()> {
        self.process.stop(4 * AGENT_LIMIT)
    }
}

fn watches(status: &Status, server: &Server) -> bool {
    let engine_pids = driver_users(server.process.pid());
    let watched = |pid: &u32| status.services.iter().any(|service| service.pids.contains(pid));
    let service = status.services.iter().find(|service| service.pids.contains(&server.process.pid()));
    let has_port = service.is_some_and(|service| service.ports.contains(&server.port));
    let launch_attached =
        status.probes.iter().any(|probe| probe.program == "cuda_launch" && probe.state == "attached");
    has_port && launch_attached && !engine_pids.is_empty() && engine_pids.iter().all(watched)
}

/// `pid` and its children, as far as they map the driver.
fn driver_users(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let all = std::iter::once(pid).chain(children.split_whitespace().filter_map(|child| child.parse().ok()));
    all.filter(|pid| {
        fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("/libcuda.so.1"))
    })
    .collect()
}

fn get(address: SocketAddr, path: &str, accept: &str) -> Result<String> {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(10)))
        .http_status_as_error(false)
        .build();
    let mut response = ureq::Agent::new_with_config(config)
        .get(format!("http://{address}{path}"))
        .header("Accept", accept)
        .call()
        .with_context(|| format!("no answer from {path}"))?;
    let body = response.body_mut().read_to_string()?;
    if !response.status().is_success() {
        bail!("{path} answered {}: {body}", response.status());
    }
    Ok(body)
}

/// A port that is free now, below those that the kernel gives out by itself: a server with a thousand listeners, or a
/// load with as many connections, takes none of them before the agent does.
fn free_address() -> Result<SocketAddr> {
    /// Ports that were tried by this process. Each agent goes on from there, so that two never try the same.
    static TRIED: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 20_000;
    const PORTS: u16 = 10_000;
    // Two test programs at once begin at different places.
    let begin = u16::try_from(std::process::id() % u32::from(PORTS)).unwrap_or(0);
    let free = (0..PORTS).find_map(|_| {
        let port = FIRST + (begin + TRIED.fetch_add(1, Ordering::Relaxed) % PORTS) % PORTS;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?.local_addr().ok()
    });
    free.context("no free port on loopback")
}

/// Runs `stagelens` with these arguments to its end.
pub fn command(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(host::binary("stagelens")?);
    command.args(arguments).stdin(Stdio::null());
    command.output().context("cannot start stagelens")
}

/// Output of `stagelens replay --json RECORDING`.
pub fn replay(recording: &Path) -> Result<String> {
    let recording = recording.to_str().context("the path of a recording is UTF-8")?;
    let output = command(&["replay", "--json", recording])?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "replay ended with {}: {stderr}", output.status);
    String::from_utf8(output.stdout).context("replay printed something that is not UTF-8")
}

/// A JSON value of the agent, for fields that only one test looks at.
pub fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| format!("not JSON: {text}"))
}
