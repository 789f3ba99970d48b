//! What else has the server's GPU.

use std::path::Path;

use anyhow::Result;
use system::jobs::{Job, Plan};
use system::rig::{Running, Server, ServerOptions, Shape};

use crate::GPUS;
use crate::scenario::{Beside, Demand, USUAL};

/// A neighbour, which does nothing yet.
pub(crate) enum Neighbour {
    Job(Job),
    Server(Server, Option<Running>),
}

/// Blocks that fill a GPU of 16 GiB, and their size.
const BLOCKS: &str = "128";
const BLOCK_MIB: &str = "128";

fn arguments(beside: Beside) -> &'static [&'static str] {
    match beside {
        // Six milliseconds of work and hardly any rest.
        Beside::Training => {
            &["train_model.py", "--kernels", "3", "--units", "2000", "--pause-us", "200", "--blocks", "1"]
        }
        Beside::Fragments => &[
            "leaver",
            "--units",
            "1",
            "--pause-us",
            "1000000",
            "--blocks",
            BLOCKS,
            "--block-mib",
            BLOCK_MIB,
            "--hole-every",
            "8",
        ],
        Beside::Hog => {
            &["hog", "--units", "1", "--pause-us", "1000000", "--blocks", BLOCKS, "--block-mib", BLOCK_MIB]
        }
        Beside::Idle | Beside::Nothing | Beside::Server => {
            &["idle", "--units", "1", "--pause-us", "5000000", "--blocks", "4"]
        }
    }
}

impl Neighbour {
    /// Starts it on a GPU, if there is to be one.
    pub(crate) fn start(beside: Beside, gpu: u32, devices: &Path, dir: &Path) -> Result<Option<Self>> {
        if beside == Beside::Nothing {
            return Ok(None);
        }
        let dir = dir.join("beside");
        std::fs::create_dir_all(&dir)?;
        if beside == Beside::Server {
            let mut options = ServerOptions::new(Shape::Single).with("device", gpu);
            options.devices = Some(devices.to_owned());
            options.environment.push(("FAKECUDA_DEVICES", GPUS.to_string()));
            return Ok(Some(Self::Server(Server::start(&options, &dir)?, None)));
        }
        std::os::unix::fs::symlink(devices, dir.join("devices"))?;
        let device = gpu.to_string();
        let mut arguments = arguments(beside).to_vec();
        arguments.extend(["--uuid", "--device", &device]);
        let name = format!("{}-{gpu}", arguments[0].trim_end_matches("_model.py"));
        let plan = Plan { name: &name, arguments: &arguments, devices: GPUS, visible: None };
        let job = Job::start(&plan, &dir)?;
        if beside == Beside::Idle {
            job.begin()?;
        }
        Ok(Some(Self::Job(job)))
    }

    /// Lets it work for so long.
    pub(crate) fn begin(&mut self, seconds: f64, dir: &Path) -> Result<()> {
        match self {
            Self::Job(job) => job.begin(),
            Self::Server(server, load) => {
                *load = Some(Demand::new(2, USUAL).load(seconds).start(server.port, &dir.join("beside"))?);
                Ok(())
            }
        }
    }

    /// Ends what it does.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match self {
            Self::Job(job) => job.finish(),
            Self::Server(_, load) => {
                *load = None;
                Ok(())
            }
        }
    }
}
