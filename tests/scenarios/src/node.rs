//! The simulated GPUs of a node, as NVML tells them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use system::rig::SharedMemory;
use system::{host, jobs};

use crate::GPUS;
use crate::scenario::Clocks;

/// Bits of `nvmlClocksEventReason…`: software thermal slowdown, software power cap.
const THERMAL: u64 = 0x20;
const POWER_CAP: u64 = 4;

/// The node.
pub(crate) struct Node {
    /// Where processes find the simulated GPUs.
    pub(crate) devices: SharedMemory,
    /// The agent's configuration.
    pub(crate) config: PathBuf,
    file: PathBuf,
    models: Vec<&'static str>,
    clocks: Vec<Clocks>,
}

impl Node {
    /// One whose GPUs are of these models, the rest of the first.
    pub(crate) fn new(models: Vec<&'static str>, dir: &Path) -> Result<Self> {
        let folder = dir.join("driver");
        fs::create_dir_all(&folder)?;
        let library = folder.join("libnvidia-ml.so.1");
        fs::copy(host::libnvidia_ml()?, &library)?;
        let config = dir.join("agent.toml");
        fs::write(&config, format!("[gpu]\nnvml = \"on\"\nnvml_library = \"{}\"\n", library.display()))?;
        let clocks = vec![Clocks::Usual; models.len()];
        let node =
            Self { devices: SharedMemory::new(), config, file: folder.join("fakenvml.json"), models, clocks };
        Ok(node)
    }

    /// NVML tells it so from now on.
    pub(crate) fn tell(&self) -> Result<()> {
        let devices: Vec<Value> = (0..GPUS).map(|index| self.device(index)).collect();
        let told = json!({"driver": "580", "cuda": 13000, "fakecuda": self.devices.path, "devices": devices});
        let new = self.file.with_extension("new");
        fs::write(&new, told.to_string())?;
        fs::rename(&new, &self.file).context("the file of the simulated NVML")
    }

    /// The clocks of a GPU are like that from now on.
    pub(crate) fn set(&mut self, gpu: u32, clocks: Clocks) -> Result<()> {
        self.clocks[gpu as usize] = clocks;
        self.tell()
    }

    fn device(&self, index: u32) -> Value {
        let at = index as usize;
        let (sm_clock, throttle, temperature) = match self.clocks.get(at) {
            Some(Clocks::Hot) => (900, THERMAL, 91),
            Some(Clocks::Capped) => (1100, POWER_CAP, 70),
            Some(Clocks::Usual) | None => (1980, 0, 55),
        };
        json!({
            "uuid": jobs::uuid(index), "name": self.models.get(at).unwrap_or(&"Fake GPU"),
            "pci_bus_id": format!("00000000:{:02X}:00.0", index + 1), "utilization": 35,
            "memory": {"total": 1_u64 << 34, "reserved": 0, "used": 0}, "sm_clock": sm_clock,
            "throttle": throttle, "temperature": temperature,
        })
    }
}
