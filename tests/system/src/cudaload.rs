//! A process that calls the simulated driver as a test tells it, and a simulated NVML that sees what it holds.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::process::die_with_parent;
use crate::{host, wait};

/// How long anything may take.
const LIMIT: Duration = Duration::from_mins(1);

/// Simulated devices, and an agent that has NVML for them.
#[derive(Debug)]
pub struct Node {
    /// The agent.
    pub agent: Agent,
    dir: PathBuf,
    program: PathBuf,
    bytes: u64,
}

/// UUID of the only device.
pub const DEVICE: &str = "GPU-a";

impl Node {
    /// One device of so many bytes. `program` is `memory-load`.
    pub fn start(dir: &Path, program: &str, bytes: u64) -> Result<Self> {
        let driver = dir.join("driver");
        fs::create_dir_all(&driver)?;
        fs::copy(host::libnvidia_ml()?, driver.join("libnvidia-ml.so.1"))?;
        let device = json!({"uuid": DEVICE, "memory": {"total": bytes, "reserved": 0, "used": 0}});
        let state = json!({"driver": "580.65.06", "devices": [device], "fakecuda": dir.join("shm")});
        fs::write(driver.join("fakenvml.json"), state.to_string())?;
        let config = dir.join("gpus.toml");
        let library = driver.join("libnvidia-ml.so.1");
        fs::write(&config, format!("[gpu]\nnvml = \"on\"\nnvml_library = \"{}\"\n", library.display()))?;
        // The file of the devices is there before NVML looks for it.
        Load::spawn(Path::new(program), dir, "first", bytes)?.call("cuInit 0")?;
        let agent = Agent::start(dir, &["--config", config.to_str().context("UTF-8")?])?;
        Ok(Self { agent, dir: dir.to_owned(), program: program.into(), bytes })
    }

    /// A process that has loaded the driver, is watched, and has made no call.
    pub fn load(&mut self, name: &str) -> Result<Load> {
        let load = Load::spawn(&self.program, &self.dir, name, self.bytes)?;
        self.watched(load.pid())?;
        Ok(load)
    }

    /// Waits until a process is watched.
    pub fn watched(&mut self, pid: u32) -> Result<()> {
        wait::until("the agent to watch it", LIMIT, || {
            self.agent.process.check_alive()?;
            let status = self.agent.status()?;
            let is_known = status.services.iter().any(|service| service.pids.contains(&pid));
            let is_probe = |name: &str| {
                status.probes.iter().any(|probe| probe.program == name && probe.state == "attached")
            };
            Ok((is_known && is_probe("cuda_memory_enter")).then_some(()))
        })
    }

    /// A process with a current context; all of its calls are seen.
    pub fn ready(&mut self, name: &str) -> Result<Load> {
        let mut load = self.load(name)?;
        load.begin()?;
        Ok(load)
    }

    /// What the agent knows of a process's memory, once it is so.
    pub fn memory(&self, pid: u32, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = Value::Null;
        let found = wait::until(what, LIMIT, || {
            let gpus: Value = serde_json::from_str(&self.agent.get("/api/v1/gpus")?)?;
            let all = gpus["memory"].as_array().cloned().unwrap_or_default();
            last = all.into_iter().find(|memory| memory["pid"] == pid).unwrap_or_default();
            Ok(is_so(&last).then(|| last.clone()))
        });
        found.with_context(|| format!("the last answer was {last:#}"))
    }
}

/// The process.
#[derive(Debug)]
pub struct Load {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    truth: PathBuf,
}

impl Load {
    fn spawn(program: &Path, dir: &Path, name: &str, bytes: u64) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .arg(host::libcuda()?)
            .env("FAKECUDA_SHM", dir.join("shm"))
            .env("FAKECUDA_MEM_BYTES", bytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(dir.join(format!("{name}.log")))?);
        die_with_parent(&mut command);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        let mut load =
            Self { stdin: child.stdin.take(), child, stdout, truth: dir.join(format!("{name}.truth")) };
        // An answer says that the driver is loaded.
        load.call("cuDriverGetVersion @0")?;
        Ok(load)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Initialises the driver and makes a context current.
    pub fn begin(&mut self) -> Result<()> {
        self.ok("cuInit 0")?;
        let context = self.ok("cuDevicePrimaryCtxRetain @0 0")?;
        self.ok(&format!("cuCtxSetCurrent {context}")).map(drop)
    }

    /// Makes a call: its result code and the words for results.
    pub fn call(&mut self, line: &str) -> Result<(u32, [u64; 4])> {
        let stdin = self.stdin.as_mut().context("it has ended")?;
        writeln!(stdin, "{line}")?;
        let mut answer = String::new();
        self.stdout.read_line(&mut answer)?;
        let words: Vec<u64> = answer.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [code, a, b, c, d] = words[..] else { anyhow::bail!("no answer to {line}: {answer:?}") };
        Ok((u32::try_from(code)?, [a, b, c, d]))
    }

    /// A call that works: its first result.
    pub fn ok(&mut self, line: &str) -> Result<u64> {
        let (code, [first, ..]) = self.call(line)?;
        ensure!(code == 0, "{line} failed with {code}");
        Ok(first)
    }

    /// A call that finds no memory.
    pub fn refused(&mut self, line: &str) -> Result<()> {
        let (code, _) = self.call(line)?;
        ensure!(code == 2, "{line} should have been out of memory, and returned {code}");
        Ok(())
    }

    /// What the simulated driver counted so far.
    pub fn truth(&mut self) -> Result<Value> {
        let path = self.truth.to_str().context("UTF-8")?.to_owned();
        self.ok(&format!("truth {path}"))?;
        Ok(serde_json::from_str(&fs::read_to_string(&self.truth)?)?)
    }

    /// Lets it end.
    pub fn end(mut self) -> Result<()> {
        self.stdin = None;
        let status = wait::until("the end of the load", LIMIT, || Ok(self.child.try_wait()?))?;
        ensure!(status.success(), "the load ended with {status}");
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
