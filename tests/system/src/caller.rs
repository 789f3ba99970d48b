//! Programs that make a given number of CUDA calls in a given way, and what the simulated driver counted of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::Process;
use crate::rig::{CudaTruth, SharedMemory};
use crate::{host, wait};

/// How long such a program may take for anything.
const LIMIT: Duration = Duration::from_secs(100);

/// The devices that several of them share, and a folder for their files.
#[derive(Debug)]
pub struct Callers {
    shared_memory: SharedMemory,
    dir: PathBuf,
    libcuda: PathBuf,
    started: u32,
}

/// One of them.
#[derive(Debug)]
pub struct Caller {
    /// The process.
    pub process: Process,
    ready: PathBuf,
    go: PathBuf,
    stay: PathBuf,
    truth: PathBuf,
}

impl Callers {
    /// They load this driver.
    pub fn new(dir: &Path, libcuda: &Path) -> Result<Self> {
        let dir = dir.join("callers");
        fs::create_dir_all(&dir)?;
        Ok(Self { shared_memory: SharedMemory::new(), dir, libcuda: libcuda.to_path_buf(), started: 0 })
    }

    /// The next ones load this driver.
    pub fn load(&mut self, libcuda: &Path) {
        self.libcuda = libcuda.to_path_buf();
    }

    /// A command that makes its calls at once and ends; its truth goes to `<dir>/truth-<pid>.json`.
    pub fn command(&self, arguments: &[&str]) -> Result<Command> {
        self.command_of(&host::binary("caller")?, arguments)
    }

    /// The same, of a copy of the program.
    pub fn command_of(&self, program: &Path, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(program);
        command
            .arg("--libcuda")
            .arg(&self.libcuda)
            .args(arguments)
            .env("FAKECUDA_SHM", &self.shared_memory.path)
            .env("FAKECUDA_TRUTH", self.dir.join("truth-%p.json"));
        Ok(command)
    }

    /// Starts one that waits to be told to go, with more environment.
    pub fn start(&mut self, arguments: &[&str], env: &[(&str, &str)]) -> Result<Caller> {
        self.started += 1;
        let name = format!("caller-{}", self.started);
        let file = |what: &str| self.dir.join(format!("{name}.{what}"));
        let (ready, go, stay) = (file("ready"), file("go"), file("stay"));
        let mut command = self.command(arguments)?;
        command.arg("--ready").arg(&ready).arg("--go").arg(&go).arg("--stay").arg(&stay);
        command.envs(env.iter().copied());
        let mut process = Process::start(&name, command, &self.dir)?;
        let truth = self.dir.join(format!("truth-{}.json", process.pid()));
        wait::until("a caller to be set up", LIMIT, || {
            process.check_alive()?;
            Ok(ready.exists().then_some(()))
        })?;
        Ok(Caller { process, ready, go, stay, truth })
    }

    /// What all that have ended did, where no two had the same number.
    pub fn truth(&self) -> Result<CudaTruth> {
        let mut sum = CudaTruth::default();
        for one in self.truths()?.values() {
            sum.launches += one.launches;
            sum.allocs += one.allocs;
        }
        Ok(sum)
    }

    /// What each that has ended did, by its number.
    pub fn truths(&self) -> Result<BTreeMap<u32, CudaTruth>> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let number = name.strip_prefix("truth-").and_then(|rest| rest.strip_suffix(".json"));
            if let Some(number) = number.and_then(|number| number.parse().ok()) {
                all.insert(number, read(&path)?);
            }
        }
        Ok(all)
    }
}

impl Caller {
    /// Lets it make its calls.
    pub fn go(&self) -> Result<()> {
        Ok(fs::write(&self.go, "")?)
    }

    /// Lets it end, and waits for that; what it did.
    pub fn end(&mut self) -> Result<CudaTruth> {
        self.go()?;
        fs::write(&self.stay, "")?;
        let status = self.process.wait(LIMIT)?;
        anyhow::ensure!(status.success(), "a caller ended with {status}: {}", self.process.log());
        let _ = fs::remove_file(&self.ready);
        read(&self.truth)
    }
}

fn read(path: &Path) -> Result<CudaTruth> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).context("the simulated driver's counts have an unexpected form")
}
