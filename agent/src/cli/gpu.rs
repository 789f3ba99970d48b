//! `gpu`: the GPUs that a running daemon sees.

mod contention;
mod memory;

use std::{fmt::Write as _, process::ExitCode};

use anyhow::Context as _;

use super::{Outcome, client, failure::Failure, output::Output};
use crate::{
    decode::{NvmlState, Refusal},
    export::{
        gpus::{Gpu, GpuProcess, Gpus, Nvml},
        json,
    },
};

/// Flags of the command.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The JSON of `/api/v1/gpus`.
    #[arg(long)]
    json: bool,
    /// The daemon's API.
    #[arg(long, value_name = "URL", default_value = client::DEFAULT_URL)]
    url: String,
}

pub(super) fn gpu(args: &Args) -> Outcome {
    let text = client::text(&args.url, "/api/v1/gpus")?;
    let mut out = Output::new();
    if args.json {
        out.line(text)?;
    } else {
        let gpus: Gpus = serde_json::from_str(&text)
            .context("the agent's answer is not a list of GPUs; is it of another version?")
            .map_err(Failure::failed)?;
        lines(&gpus).into_iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn lines(gpus: &Gpus) -> Vec<String> {
    let mut lines = vec![source(&gpus.nvml)];
    if gpus.nvml.source.state == NvmlState::On && gpus.gpus.is_empty() {
        lines.push("no GPUs".into());
    }
    for gpu in &gpus.gpus {
        lines.extend(device(gpu));
    }
    if !gpus.unplaced.is_empty() {
        lines.push("on a GPU that is not known".into());
        lines.extend(gpus.unplaced.iter().map(|each| format!("  {}", process(each))));
    }
    lines.extend(gpus.neighbours.iter().map(contention::neighbour));
    lines.extend(memory::lines(&gpus.memory));
    lines
}

/// Where the numbers are from, or why there are none.
fn source(nvml: &Nvml) -> String {
    let source = &nvml.source;
    let mut line = format!("NVML {}", json::name(source.state));
    for (name, value) in [("driver", &source.driver_version), ("CUDA", &source.cuda_version)] {
        add(&mut line, value.as_ref().map(|value| format!("{name} {value}")));
    }
    add(&mut line, source.reason.clone());
    let hanging = nvml.hanging_function.as_ref().zip(nvml.hanging_s);
    add(&mut line, hanging.map(|(call, s)| format!("{call} has not returned for {s:.0} s")));
    line
}

fn device(gpu: &Gpu) -> Vec<String> {
    let indent = if gpu.parent.is_some() { "  " } else { "" };
    let mut lines = vec![format!("{indent}{}", identity(gpu))];
    let numbers = numbers(gpu);
    lines.extend((!numbers.is_empty()).then(|| format!("{indent}  {numbers}")));
    lines.extend(refused(gpu).map(|refused| format!("{indent}  {refused}")));
    let processes = gpu.processes.iter().flatten();
    for each in processes {
        lines.push(format!("{indent}  {}", process(each)));
        let missing = each.coverage.iter().flat_map(|covered| &covered.missing);
        lines.extend(missing.map(|sentence| format!("{indent}    not seen: {sentence}")));
    }
    lines.extend(gpu.contention.iter().map(|pair| format!("{indent}  {}", contention::line(pair))));
    lines
}

fn identity(gpu: &Gpu) -> String {
    let number = match gpu.instance_index {
        Some(at) => format!("MIG {}.{at}", gpu.index),
        None if gpu.unlisted => "GPU ?".to_owned(),
        None => format!("GPU {}", gpu.index),
    };
    let mut line = format!("{number} {}", gpu.uuid);
    add(&mut line, gpu.name.clone());
    add(&mut line, gpu.architecture.clone());
    let instances = gpu.gpu_instance.zip(gpu.compute_instance);
    add(&mut line, instances.map(|(gi, ci)| format!("GPU instance {gi}, compute instance {ci}")));
    add(&mut line, (gpu.mig_enabled == Some(true)).then(|| "divided".into()));
    let will = gpu.mig_pending.filter(|_| gpu.mig_pending != gpu.mig_enabled);
    add(&mut line, will.map(|on| format!("{} after its next reset", if on { "divided" } else { "whole" })));
    add(&mut line, gpu.lost.as_ref().map(|why| format!("LOST: {why}")));
    line
}

/// What is known of its use and how it fares.
fn numbers(gpu: &Gpu) -> String {
    let mut line = String::new();
    add(&mut line, gpu.utilization_ratio.map(|ratio| format!("{:.0} % busy", ratio * 100.0)));
    let memory = gpu.memory_used_bytes.zip(gpu.memory_total_bytes);
    add(&mut line, memory.map(|(used, total)| format!("{} of {}", gib(used), gib(total))));
    add(&mut line, gpu.temperature_celsius.map(|celsius| format!("{celsius:.0} °C")));
    let limit = gpu.power_limit_watts.map_or(String::new(), |watts| format!(" of {watts:.0}"));
    add(&mut line, gpu.power_watts.map(|watts| format!("{watts:.0}{limit} W")));
    add(&mut line, gpu.sm_clock_hertz.map(|hertz| format!("SM {:.0} MHz", hertz / 1e6)));
    add(&mut line, gpu.memory_clock_hertz.map(|hertz| format!("memory {:.0} MHz", hertz / 1e6)));
    let throttle: Vec<String> = gpu.throttle.iter().flatten().map(json::name).collect();
    add(&mut line, (!throttle.is_empty()).then(|| format!("held back by {}", throttle.join(" and "))));
    for (xid, n) in &gpu.xids {
        add(&mut line, Some(format!("XID {xid} x{n}")));
    }
    line
}

fn refused(gpu: &Gpu) -> Option<String> {
    let of = |why| {
        let names: Vec<&str> =
            gpu.refused.iter().filter(|(_, refusal)| **refusal == why).map(|(name, _)| &**name).collect();
        names.join(", ")
    };
    let mut line = String::new();
    for (why, names) in
        [("not supported", of(Refusal::NotSupported)), ("no permission", of(Refusal::NoPermission))]
    {
        add(&mut line, (!names.is_empty()).then(|| format!("{why}: {names}")));
    }
    (!line.is_empty()).then_some(line)
}

fn process(process: &GpuProcess) -> String {
    let memory = process.memory_used_bytes.map_or("-".into(), gib);
    let mut line = format!("{:>9} {:>9} {:<8}", process.pid, memory, json::name(process.does));
    for text in [&process.comm, &process.service, &process.container].into_iter().flatten() {
        let _ = write!(line, "  {text}");
    }
    if let Some(covered) = &process.coverage {
        let paths: Vec<String> = covered.paths.iter().map(json::name).collect();
        let by = if paths.is_empty() { String::new() } else { format!(" by {}", paths.join(" and ")) };
        let _ = write!(line, "  calls {}{by}", json::name(covered.state));
    }
    let mut line = line.trim_end().to_owned();
    if let Some(activity) = &process.activity {
        let _ = write!(line, "  {}", contention::activity(activity));
    }
    line
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

fn add(line: &mut String, text: Option<String>) {
    let Some(text) = text else { return };
    // Writing to a string does not fail.
    let _ = write!(line, "{}{text}", if line.is_empty() { "" } else { ", " });
}

#[cfg(test)]
mod tests;
