//! What `/proc` tells of a process that uses a GPU: nothing of its command line or environment but words of closed sets.

use serde::{Deserialize, Serialize};

/// A sign of what a process is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "sign", rename_all = "snake_case")]
pub enum Sign {
    /// Its command line has this word of a launcher or script of training, as `torchrun`.
    TrainingCommand {
        /// The word, one of a closed set.
        word: String,
    },
    /// Its command line has this word of an inference server, as `vllm`.
    ServingCommand {
        /// The word, one of a closed set.
        word: String,
    },
    /// It maps NCCL, which GPUs exchange data with.
    Nccl,
    /// It was started as one of so many (`WORLD_SIZE` above 1).
    Distributed {
        /// How many.
        processes: u32,
    },
    /// Children that run the same program and share memory with it, as data loaders do.
    DataLoaders {
        /// How many.
        workers: u32,
    },
    /// It has a file open for writing that is named as a checkpoint.
    Checkpoint {
        /// The ending of its name, as `pt`.
        ending: String,
    },
}

/// A process that uses a GPU, or a change of what is known of it. The last word counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcessSeen {
    /// Process id in the agent's PID namespace.
    pub pid: u32,
    /// Its start time (clock ticks).
    pub start_ticks: u64,
    /// `CUDA_VISIBLE_DEVICES` as it was started with: numbers or UUIDs, whatever else is in it left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_devices: Option<Vec<String>>,
    /// `CUDA_DEVICE_ORDER` says that CUDA counts in the order of the PCI bus, as NVML does.
    #[serde(default)]
    pub pci_order: bool,
    /// PCI addresses of the GPUs whose device files it has open.
    #[serde(default)]
    pub open_devices: Vec<String>,
    /// UID of its pod, when in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Signs of what it is for.
    #[serde(default)]
    pub signs: Vec<Sign>,
}
