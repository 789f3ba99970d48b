//! Jobs on simulated GPUs, each a service of its own, and an agent that watches no others.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::agent::Agent;
use crate::process::Process;
use crate::{history, host, wait};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// How long anything may take on a busy machine.
pub const LIMIT: Duration = Duration::from_mins(3);

/// How to start a job.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// Name of its program, and so of its service.
    pub name: &'a str,
    /// Arguments.
    pub arguments: &'a [&'a str],
    /// Devices that there are.
    pub devices: u32,
    /// `CUDA_VISIBLE_DEVICES`.
    pub visible: Option<&'a str>,
}

/// A running job. It does nothing before [`Job::begin`].
#[derive(Debug)]
pub struct Job {
    /// The process.
    pub process: Process,
    dir: PathBuf,
}

impl Job {
    /// Starts one, with its files in a folder of its own.
    pub fn start(plan: &Plan<'_>, dir: &Path) -> Result<Self> {
        let own = dir.join(plan.name);
        fs::create_dir_all(&own)?;
        // A service is named after the program.
        let program = own.join(plan.name);
        fs::copy(host::test_binary("gpujob")?, &program)?;
        let mut command = Command::new(program);
        command
            .args(plan.arguments)
            .arg("--libcuda")
            .arg(host::libcuda()?)
            .arg("--start")
            .arg(own.join("start"))
            .arg("--working")
            .arg(own.join("working"))
            .arg("--stop")
            .arg(own.join("stop"))
            .env("FAKECUDA_SHM", dir.join("devices"))
            .env("FAKECUDA_DEVICES", plan.devices.max(1).to_string())
            .env("FAKECUDA_HISTORY", own.join("history"))
            .env_remove("CUDA_VISIBLE_DEVICES")
            // Jobs of one process group and program would be one service.
            .process_group(0);
        if let Some(visible) = plan.visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        Ok(Self { process: Process::start(plan.name, command, dir)?, dir: own })
    }

    /// Lets it call the driver.
    pub fn begin(&self) -> Result<()> {
        Ok(fs::write(self.dir.join("start"), "")?)
    }

    /// Waits until it has loaded the driver and made its contexts.
    pub fn wait_working(&mut self) -> Result<()> {
        let maps = format!("/proc/{}/maps", self.pid());
        let working = self.dir.join("working");
        wait::until("the job to work", LIMIT, || {
            self.process.check_alive()?;
            let loaded = fs::read_to_string(&maps)?.contains("/libcuda.so.1");
            Ok((loaded && working.exists()).then_some(()))
        })
    }

    /// Lets it end.
    pub fn finish(&mut self) -> Result<()> {
        fs::write(self.dir.join("stop"), "")?;
        let status = self.process.wait(LIMIT)?;
        ensure!(status.success(), "a job ended with {status}: {}", self.process.log());
        Ok(())
    }

    /// What it really did on a device.
    pub fn steps(&self, device: u64) -> Result<Vec<history::Interval>> {
        history::steps(&self.dir.join("history"), device)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// A container of a pod, as far as the cgroup of a process tells.
#[derive(Debug)]
pub struct Pod {
    /// Of the pod.
    pub uid: String,
    /// Of the container.
    pub id: String,
    /// Outermost first.
    folders: Vec<PathBuf>,
}

impl Pod {
    /// Makes it, as a container runtime does.
    pub fn new() -> Result<Self> {
        let number = std::process::id();
        let (uid, id) = (format!("5e3f0000-0000-4000-8000-{number:012x}"), format!("{number:064x}"));
        // The unified hierarchy, or one of the older ones.
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.procs").exists());
        let root = root.context("there is no hierarchy of cgroups")?;
        let mut pod = Self { folders: Vec::new(), uid, id };
        let mut folder = root.to_owned();
        for name in ["kubepods".to_owned(), format!("pod{}", pod.uid), pod.id.clone()] {
            folder = folder.join(name);
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            pod.folders.push(folder.clone());
        }
        Ok(pod)
    }

    /// Puts a process into it.
    pub fn take(&self, pid: u32) -> Result<()> {
        let innermost = self.folders.last().context("it has folders")?;
        Ok(fs::write(innermost.join("cgroup.procs"), pid.to_string())?)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        for folder in self.folders.iter().rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// UUID of a simulated device.
pub fn uuid(device: u32) -> String {
    format!("GPU-66616b65-6375-6461-0000-{device:012}")
}

/// Devices as NVML tells them, with the processes on each.
pub fn devices(processes: &[&[u32]]) -> Value {
    let device = |(index, pids): (usize, &&[u32])| {
        let processes: Vec<Value> = pids.iter().map(|pid| json!({"pid": pid, "memory": 1})).collect();
        let index = u32::try_from(index).unwrap_or(0);
        json!({
            "uuid": uuid(index), "name": "Fake GPU", "pci_bus_id": format!("00000000:{:02X}:00.0", index + 1),
            "memory": {"total": 1_u64 << 34, "reserved": 0, "used": 0}, "processes": processes,
        })
    };
    json!({"driver": "580", "cuda": 13000, "devices": processes.iter().enumerate().map(device).collect::<Vec<_>>()})
}

/// Starts an agent that watches these jobs and no others of this machine, with NVML that tells of these devices.
pub fn watch(jobs: &[&Job], devices: &Value, dir: &Path) -> Result<Agent> {
    let config = nvml(devices, dir)?;
    let pids: Vec<String> = jobs.iter().map(|job| job.pid().to_string()).collect();
    let mut arguments = vec!["--config", config.to_str().context("UTF-8")?];
    for pid in &pids {
        arguments.extend(["--pid", pid]);
    }
    let mut agent = Agent::start(dir, &arguments)?;
    wait_attached(&mut agent)?;
    Ok(agent)
}

/// Waits until the driver that they have loaded is attached to, so that their first call is seen.
pub fn wait_attached(agent: &mut Agent) -> Result<()> {
    wait::until("the driver to be attached to", LIMIT, || {
        agent.process.check_alive()?;
        let probes = agent.status()?.probes;
        let is_it =
            |name: &str| probes.iter().any(|probe| probe.program == name && probe.state == "attached");
        Ok((is_it("cuda_context_return") && is_it("cuda_launch")).then_some(()))
    })
}

/// A copy of the simulated library that tells of these devices, and a configuration that uses it.
pub fn nvml(devices: &Value, dir: &Path) -> Result<PathBuf> {
    let folder = dir.join("driver");
    fs::create_dir_all(&folder)?;
    let library = folder.join("libnvidia-ml.so.1");
    fs::copy(host::libnvidia_ml()?, &library)?;
    fs::write(folder.join("fakenvml.json"), devices.to_string())?;
    let config = dir.join("jobs.toml");
    fs::write(&config, format!("[gpu]\nnvml = \"on\"\nnvml_library = \"{}\"\n", library.display()))?;
    Ok(config)
}

/// Waits until `/api/v1/gpus` has what is looked for.
pub fn until<T>(agent: &mut Agent, what: &str, look: impl Fn(&Value) -> Option<T>) -> Result<T> {
    let mut last = Value::Null;
    let found = wait::until(what, LIMIT, || {
        agent.process.check_alive()?;
        last = serde_json::from_str(&agent.get("/api/v1/gpus")?)?;
        Ok(look(&last))
    });
    found.with_context(|| format!("the last answer was {last}"))
}

/// A process on a device, as `/api/v1/gpus` shows it.
pub fn process<'a>(gpus: &'a Value, device: &str, pid: u32) -> Option<&'a Value> {
    let gpu = gpus["gpus"].as_array()?.iter().find(|gpu| gpu["uuid"] == device)?;
    gpu["processes"].as_array()?.iter().find(|process| process["pid"] == pid)
}

/// What one process did to another on a device, likewise.
pub fn pair<'a>(gpus: &'a Value, device: &str, victim: u32, aggressor: u32) -> Option<&'a Value> {
    let gpu = gpus["gpus"].as_array()?.iter().find(|gpu| gpu["uuid"] == device)?;
    let is_it = |pair: &&Value| pair["victim"]["pid"] == victim && pair["aggressor"]["pid"] == aggressor;
    gpu["contention"].as_array()?.iter().find(is_it)
}
