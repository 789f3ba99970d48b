//! On which device the work of a process is: told by its driver however it counts, inferred where the agent came late,
//! and on an instance of a divided GPU.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::jobs::{self, Job, Plan, process, until, uuid};

const WORK: [&str; 6] = ["--kernels", "2", "--units", "200", "--pause-us", "2000"];

/// Its first device is the node's second: CUDA's numbers are the process's own.
pub(crate) fn reordered(dir: &Path) -> Result<()> {
    let arguments = [&["--device", "0", "--uuid"], &WORK[..]].concat();
    let plan = Plan { name: "reordered", arguments: &arguments, devices: 2, visible: Some("1,0") };
    found(&plan, false, &jobs::devices(&[&[], &[]]), &uuid(1), "driver", false, dir)
}

/// It never asks which device it has: its environment says so, and that is a guess.
pub(crate) fn reordered_silently(dir: &Path) -> Result<()> {
    let arguments = [&["--device", "0"], &WORK[..]].concat();
    let plan = Plan { name: "silent", arguments: &arguments, devices: 2, visible: Some("1,0") };
    found(&plan, false, &jobs::devices(&[&[], &[]]), &uuid(1), "environment", true, dir)
}

/// The agent comes when its contexts are long made.
pub(crate) fn late(dir: &Path) -> Result<()> {
    let arguments = [&["--device", "0", "--uuid"], &WORK[..]].concat();
    let plan = Plan { name: "late", arguments: &arguments, devices: 2, visible: Some("1") };
    found(&plan, true, &jobs::devices(&[&[], &[]]), &uuid(1), "environment", true, dir)
}

pub(crate) fn instance(dir: &Path) -> Result<()> {
    let mig = "MIG-66616b65-6375-6461-0000-000000000002";
    let arguments = [&["--device", "0", "--uuid"], &WORK[..]].concat();
    let plan = Plan { name: "instance", arguments: &arguments, devices: 3, visible: Some(mig) };
    let memory = json!({"total": 1_u64 << 34, "reserved": 0, "used": 0});
    let place =
        |last: u32| json!({"uuid": format!("MIG-66616b65-6375-6461-0000-{last:012}"), "memory": memory});
    let gpu = json!({
        "uuid": uuid(7), "name": "Fake GPU", "memory": memory,
        "mig": {"enabled": true, "pending": true, "instances": [place(1), place(2)]},
    });
    let devices = json!({"driver": "580", "cuda": 13000, "devices": [gpu]});
    found(&plan, false, &devices, mig, "driver", false, dir)
}

/// Late, with NVML that has the process on one device.
pub(crate) fn late_by_nvml(dir: &Path) -> Result<()> {
    let arguments = [&["--device", "1"], &WORK[..]].concat();
    let plan = Plan { name: "listed", arguments: &arguments, devices: 2, visible: None };
    let mut job = Job::start(&plan, dir)?;
    job.begin()?;
    let devices = jobs::devices(&[&[], &[job.pid()]]);
    check(&mut job, &devices, &uuid(1), "nvml", false, dir)
}

fn found(
    plan: &Plan<'_>,
    late: bool,
    devices: &Value,
    device: &str,
    known: &str,
    inferred: bool,
    dir: &Path,
) -> Result<()> {
    let mut job = Job::start(plan, dir)?;
    if late {
        job.begin()?;
        // It works already: nothing of its beginning is seen.
        job.wait_working()?;
    }
    check(&mut job, devices, device, known, inferred, dir)
}

fn check(
    job: &mut Job,
    devices: &Value,
    device: &str,
    known: &str,
    inferred: bool,
    dir: &Path,
) -> Result<()> {
    let mut agent = jobs::watch(&[job], devices, dir)?;
    job.begin()?;
    let pid = job.pid();
    let activity = until(&mut agent, "work on the device", |gpus| {
        let activity = &process(gpus, device, pid)?["activity"];
        (activity["waits"].as_u64()? > 20).then(|| activity.clone())
    })?;
    ensure!(activity["known"] == known && activity["inferred"] == inferred, "{activity}");
    let gpus: Value = serde_json::from_str(&agent.get("/api/v1/gpus")?)?;
    let others = gpus["gpus"].as_array().into_iter().flatten().filter(|gpu| gpu["uuid"] != device);
    for other in others {
        let is_there =
            other["processes"].as_array().into_iter().flatten().any(|process| process["pid"] == pid);
        ensure!(!is_there, "it is on one device only: {gpus}");
    }
    job.finish()?;
    agent.stop()
}
