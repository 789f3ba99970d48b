//! What NVML tells, through the whole agent: shown with the service it belongs to, released by a signal, and no
//! hindrance when it hangs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use system::agent::Agent;
use system::rig::{Load, Server, ServerOptions, Shape};
use system::{host, wait};

const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn told_released_and_hanging(dir: &Path) -> Result<()> {
    let mut server = Server::start(&ServerOptions::new(Shape::Single), dir)?;
    let gpu = json!({
        "uuid": "GPU-a", "name": "NVIDIA H200", "architecture": 9, "utilization": 87, "power": 512_500,
        "memory": {"total": 150_000_000_000_u64, "reserved": 0, "used": 60_000_000_000_u64},
        "processes": [{"pid": server.process.pid(), "memory": 60_000_000_000_u64}],
    });
    let driver = Driver::new(dir)?;
    driver.write(&json!({"driver": "580.65.06", "cuda": 13000, "devices": [gpu]}))?;
    let config = driver.config(dir)?;
    let mut agent = Agent::start(dir, &["--config", config.to_str().context("UTF-8")?])?;
    agent.wait_attached(&server)?;

    told(&agent, server.process.pid())?;
    released_and_resumed(&agent, &driver)?;

    driver.write(&json!({"hang": ["nvmlDeviceGetUtilizationRates"], "devices": [gpu]}))?;
    let gpus = until(&agent, "the hang", |gpus| gpus["nvml"]["hanging_function"].is_string())?;
    ensure!(gpus["nvml"]["hanging_function"] == "nvmlDeviceGetUtilizationRates", "{gpus}");
    ensure!(gpus["gpus"][0].get("utilization_ratio").is_none(), "a number of the past: {gpus}");
    let clients = Load::requests(1, 3).start(server.port, dir)?.finish(LIMIT)?;
    ensure!(clients.iter().all(|client| client.outcome == "ok"), "{clients:?}");
    agent.get("/livez")?;
    // Also the end does not wait for it.
    agent.stop()?;
    server.stop()
}

fn told(agent: &Agent, pid: u32) -> Result<()> {
    let gpus = until(agent, "the device", |gpus| gpus["gpus"][0]["power_watts"].is_number())?;
    let service = agent.status()?.services.into_iter().find(|service| service.pids.contains(&pid));
    let want = json!([{
        "pid": pid, "type": "compute", "comm": "modelserver", "memory_used_bytes": 60_000_000_000_u64,
        "service": service.context("the server is no service")?.name,
    }]);
    let gpu = &gpus["gpus"][0];
    let mut processes = gpu["processes"].clone();
    // What it does there is shown once it has worked.
    let process = processes[0].as_object_mut().context("a process")?;
    process.remove("activity");
    process.remove("coverage");
    ensure!(processes == want, "{gpus}");
    ensure!((&gpu["utilization_ratio"], &gpu["power_watts"]) == (&json!(0.87), &json!(512.5)), "{gpus}");
    ensure!(gpus["nvml"]["driver_version"] == "580.65.06", "{gpus}");
    let metrics = agent.metrics_text()?;
    let line = "gpu_memory_used_bytes{device=\"GPU-a\"} 60000000000.0";
    ensure!(metrics.lines().any(|l| l == line), "{line} is not in {metrics}");
    Ok(())
}

fn released_and_resumed(agent: &Agent, driver: &Driver) -> Result<()> {
    agent.process.signal(Signal::USR1)?;
    let gpus = until(agent, "release", |gpus| gpus["nvml"]["state"] == "released")?;
    ensure!(gpus["gpus"][0].get("power_watts").is_none(), "a number of the past: {gpus}");
    let calls = driver.calls()?;
    ensure!(calls.lines().last() == Some("nvmlShutdown"), "it is still open: {calls}");
    agent.process.signal(Signal::USR2)?;
    until(agent, "its return", |gpus| gpus["gpus"][0]["power_watts"].is_number())?;
    Ok(())
}

/// Waits until `/api/v1/gpus` is so.
fn until(agent: &Agent, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    let mut last = Value::Null;
    let found = wait::until(what, LIMIT, || {
        last = serde_json::from_str(&agent.get("/api/v1/gpus")?)?;
        Ok(is_so(&last).then(|| last.clone()))
    });
    found.with_context(|| format!("the last answer was {last}"))
}

/// A copy of the simulated library, and the file that it reads.
pub(crate) struct Driver(PathBuf);

impl Driver {
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let folder = dir.join("driver");
        fs::create_dir_all(&folder)?;
        fs::copy(host::libnvidia_ml()?, folder.join("libnvidia-ml.so.1"))?;
        // Of the last time.
        let _ = fs::remove_file(folder.join("fakenvml.calls"));
        Ok(Self(folder))
    }

    pub(crate) fn write(&self, state: &Value) -> Result<()> {
        let new = self.0.join("new");
        fs::write(&new, state.to_string())?;
        Ok(fs::rename(new, self.0.join("fakenvml.json"))?)
    }

    fn calls(&self) -> Result<String> {
        Ok(fs::read_to_string(self.0.join("fakenvml.calls"))?)
    }

    pub(crate) fn config(&self, dir: &Path) -> Result<PathBuf> {
        let path = dir.join("gpus.toml");
        let library = self.0.join("libnvidia-ml.so.1");
        fs::write(&path, format!("[gpu]\nnvml = \"on\"\nnvml_library = \"{}\"\n", library.display()))?;
        Ok(path)
    }
}
