//! The ways that CUDA calls take: by exported names, by addresses that the driver gives out, by another library in front of
//! it, by the runtime. Each call counts once, and what is not seen is said.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use system::agent::{Agent, json as parse};
use system::caller::{Caller, Callers};
use system::{host, wait};

const LIMIT: Duration = Duration::from_mins(1);

/// A copy of a library: an inode of its own.
fn copy(of: &Path, dir: &Path, name: &str) -> Result<PathBuf> {
    let copy = dir.join(name);
    fs::copy(of, &copy)?;
    Ok(copy)
}

fn status(agent: &Agent) -> Result<Value> {
    parse(&agent.get("/api/v1/status")?)
}

/// What the agent says of the calls of a process, once it is so.
fn covered(agent: &Agent, caller: &Caller, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
    let mut last = Value::Null;
    let found = wait::until(what, LIMIT, || {
        let all = status(agent)?["coverage"].take();
        let own = all.as_array().into_iter().flatten();
        last = own.into_iter().find(|one| one["pid"] == caller.process.pid()).cloned().unwrap_or_default();
        Ok(is_so(&last).then(|| last.clone()))
    });
    found.with_context(|| format!("the last word on it was {last}"))
}

/// Calls of all callers, as the agent counted them: launches, allocations, loads and links, graphs.
fn counts(agent: &Agent) -> Result<[u64; 4]> {
    let text = agent.metrics_text()?;
    let sum = |name: &str, label: &str| {
        let is_own =
            |line: &&str| line.starts_with(name) && line.contains("\"caller") && line.contains(label);
        let values =
            text.lines().filter(is_own).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
        values.map(|value| value as u64).sum()
    };
    Ok([
        sum("cuda_launches_total{", "kind=\"kernel\""),
        sum("cuda_alloc_seconds_count{", ""),
        sum("cuda_module_load_seconds_count{", ""),
        sum("cuda_graph_instantiate_seconds_count{", ""),
    ])
}

/// Waits until at least as many were counted; more are an error, also a while later.
fn expect_counts(agent: &Agent, want: [u64; 4]) -> Result<()> {
    let mut last = [0; 4];
    let come = wait::until("the calls", LIMIT, || {
        last = counts(agent)?;
        let over = last.iter().zip(want).any(|(have, want)| *have > want);
        ensure!(!over, "counted {last:?}, there were {want:?}");
        Ok((last == want).then_some(()))
    });
    come.with_context(|| format!("counted {last:?}, there were {want:?}: {:?}", kernel_counters(agent)))?;
    // Another look at the kernel's counters comes after all that it had to tell.
    let passes = || Ok::<_, anyhow::Error>(status(agent)?["scan"]["passes"].as_u64());
    let before = passes()?;
    wait::until("another look", LIMIT, || Ok((passes()? > before).then_some(())))?;
    let last = counts(agent)?;
    ensure!(last == want, "counted {last:?} at last, there were {want:?}");
    Ok(())
}

fn kernel_counters(agent: &Agent) -> Value {
    status(agent).map(|status| status["health"]["kernel"].clone()).unwrap_or_default()
}

/// Starts an agent, and a process that has its driver attached to.
fn watched(callers: &mut Callers, dir: &Path, extra: &[&str]) -> Result<(Agent, Caller)> {
    let agent = Agent::start(dir, extra)?;
    let keeper = callers.start(&["--launches", "0"], &[])?;
    covered(&agent, &keeper, "the driver to be attached to", |one| one["state"] == "unknown")?;
    let is_attached = |probe: &Value| probe["program"] == "cuda_launch" && probe["state"] == "attached";
    wait::until("launches to be attached to", LIMIT, || {
        let probes = status(&agent)?["probes"].take();
        Ok(probes.as_array().into_iter().flatten().any(is_attached).then_some(()))
    })?;
    Ok((agent, keeper))
}

/// The driver gives out addresses that it does not export: they are attached to, and a call that goes through both
/// counts once.
pub(crate) fn inner_addresses(dir: &Path) -> Result<()> {
    let mut callers = Callers::new(dir, &copy(&host::libcuda()?, dir, "libcuda.so.1")?)?;
    let (mut agent, mut keeper) = watched(&mut callers, dir, &[])?;
    let arguments = ["--way", "both", "--launches", "1001", "--allocs", "50", "--modules", "5"];
    let mut caller = callers.start(&arguments, &[("FAKECUDA_INNER", "1")])?;
    wait::until("inner functions to be attached to", LIMIT, || {
        Ok((status(&agent)?["scan"]["inner_places"].as_u64() >= Some(3)).then_some(()))
    })?;
    let [launches, allocs, loads, graphs] = counts(&agent)?;
    caller.go()?;
    expect_counts(&agent, [launches + 1001, allocs + 50, loads + 15, graphs + 5])?;
    let one = covered(&agent, &caller, "its calls", |one| one["state"] == "seen")?;
    let paths = one["paths"].as_array().context("it has paths")?;
    ensure!(paths.contains(&json!("inner")) && paths.contains(&json!("driver")), "{one}");
    ensure!(one["rare"]["count"].as_u64() >= Some(20) && one.get("missing").is_none(), "{one}");
    let nested = kernel_counters(&agent)["nested"].as_u64();
    ensure!(nested > Some(500), "no call was within another: the test is empty ({nested:?})");
    let truth = caller.end()?;
    ensure!((truth.launches, truth.allocs) == (1001, 50), "{truth:?}");
    keeper.end()?;
    agent.stop()
}

/// Who was told addresses before the agent came may call by ways that it does not know.
pub(crate) fn unknown_until_a_call(dir: &Path) -> Result<()> {
    let mut callers = Callers::new(dir, &host::libcuda()?)?;
    let mut caller = callers.start(&["--launches", "10"], &[])?;
    let mut agent = Agent::start(dir, &[])?;
    let one = covered(&agent, &caller, "it to be found", |one| one["state"] == "unknown")?;
    ensure!(one["paths"] == json!([]), "{one}");
    caller.go()?;
    covered(&agent, &caller, "its calls", |one| one["state"] == "seen" && one["paths"] == json!(["driver"]))?;
    caller.end()?;
    agent.stop()
}

/// A driver by a name that does not tell it is found by its functions; by one that nobody would guess it is not, and NVML
/// tells.
pub(crate) fn blind(dir: &Path) -> Result<()> {
    let driver = crate::gpus::Driver::new(dir)?;
    let config = driver.config(dir)?;
    driver.write(&json!({"driver": "580.65.06", "cuda": 13000, "devices": []}))?;
    let mut agent = Agent::start(dir, &["--config", config.to_str().context("UTF-8")?])?;
    let libcuda = host::libcuda()?;
    let mut callers = Callers::new(dir, &copy(&libcuda, dir, "libnvidia-share.so.1")?)?;
    let mut known = callers.start(&["--launches", "20"], &[])?;
    covered(&agent, &known, "the driver by its functions", |one| one["state"] == "unknown")?;
    known.go()?;
    covered(&agent, &known, "its calls", |one| one["state"] == "seen")?;
    expect_counts(&agent, [20, 0, 0, 0])?;
    known.end()?;

    callers.load(&copy(&libcuda, dir, "libcompute.so.1")?);
    let mut hidden = callers.start(&["--launches", "1000"], &[])?;
    hidden.go()?;
    let gpu = json!({
        "uuid": "GPU-a", "name": "NVIDIA H200", "architecture": 9, "utilization": 87, "power": 1,
        "memory": {"total": 1000, "reserved": 0, "used": 10},
        "processes": [{"pid": hidden.process.pid(), "memory": 10}],
    });
    driver.write(&json!({"driver": "580.65.06", "cuda": 13000, "devices": [gpu]}))?;
    let since = Instant::now();
    let one = covered(&agent, &hidden, "it to be blind", |one| one["state"] == "blind")?;
    let _ = writeln!(
        io::stdout().lock(),
        "blind after {:.1} s: {}",
        since.elapsed().as_secs_f64(),
        one["missing"]
    );
    ensure!(one["missing"][0].as_str().is_some_and(|text| text.contains("GPU-a")), "{one}");
    let gpus = parse(&agent.get("/api/v1/gpus")?)?;
    ensure!(gpus["gpus"][0]["processes"][0]["coverage"]["state"] == "blind", "{gpus}");
    let is_it = |line: &str| {
        line.starts_with("stagelens_coverage_processes{") && line.ends_with("state=\"blind\"} 1.0")
    };
    wait::until("the metric", LIMIT, || Ok(agent.metrics_text()?.lines().any(is_it).then_some(())))?;
    hidden.end()?;
    agent.stop()
}

/// A new file at the driver's path: whoever maps it is seen as soon as it is attached to.
pub(crate) fn replaced(dir: &Path) -> Result<()> {
    let libcuda = copy(&host::libcuda()?, dir, "libcuda.so.1")?;
    let mut callers = Callers::new(dir, &libcuda)?;
    let (mut agent, mut keeper) = watched(&mut callers, dir, &[])?;
    fs::rename(copy(&host::libcuda()?, dir, "libcuda.so.1.new")?, &libcuda)?;
    let since = Instant::now();
    let mut new = callers.start(&["--launches", "600000"], &[("FAKECUDA_UNIT_NS", "100000")])?;
    new.go()?;
    let ready = Instant::now();
    covered(&agent, &new, "calls to the new file", |one| one["last_s"].is_number())?;
    let _ = writeln!(
        io::stdout().lock(),
        "the new file's calls were seen {:.2} s after its process began, {:.2} s after it was set up",
        since.elapsed().as_secs_f64(),
        ready.elapsed().as_secs_f64()
    );
    new.process.kill(LIMIT)?;
    keeper.end()?;
    agent.stop()
}

/// A driver whose functions cannot be told: the runtime's calls count in its place, and only there.
pub(crate) fn runtime_in_place_of_the_driver(dir: &Path) -> Result<()> {
    let libcuda = host::libcuda()?;
    let hidden = copy(&libcuda, dir, "libcuda.so.1")?;
    hide_symbols(&hidden)?;
    let runtime = copy(&host::libcudart()?, dir, "libcudart.so.12")?;
    let mut callers = Callers::new(dir, &libcuda)?;
    let (mut agent, mut keeper) = watched(&mut callers, dir, &[])?;
    let (path, runtime) = (hidden.to_str().context("UTF-8")?, runtime.to_str().context("UTF-8")?);
    let way = ["--way", "runtime", "--libcudart", runtime, "--launches", "300", "--allocs", "7"];
    let mut without = callers.start(&way, &[("FAKECUDART_DRIVER", path)])?;
    let seen_driver = libcuda.to_str().context("UTF-8")?;
    let mut with = callers.start(&way, &[("FAKECUDART_DRIVER", seen_driver)])?;
    let is_attached = |probe: &Value| probe["target"] == runtime && probe["program"] == "cuda_launch";
    wait::until("the runtime to be attached to", LIMIT, || {
        let probes = status(&agent)?["probes"].take();
        Ok(probes.as_array().into_iter().flatten().any(is_attached).then_some(()))
    })?;
    without.go()?;
    with.go()?;
    expect_counts(&agent, [600, 14, counts(&agent)?[2], 0])?;
    let one = covered(&agent, &without, "its calls", |one| one["state"] == "seen")?;
    ensure!(one["paths"] == json!(["runtime"]), "{one}");
    let other = covered(&agent, &with, "its calls", |one| one["state"] == "seen")?;
    ensure!(other["paths"] == json!(["driver"]), "{other}");
    without.end()?;
    with.end()?;
    keeper.end()?;
    agent.stop()
}

/// A library without its table of sections works as before, and does not tell its functions to who reads that.
fn hide_symbols(path: &Path) -> Result<()> {
    let mut bytes = fs::read(path)?;
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    Ok(fs::write(path, bytes)?)
}

/// An exported variant that the agent was not taught is named.
pub(crate) fn unknown_variant(dir: &Path) -> Result<()> {
    let libcuda = copy(&host::libcuda()?, dir, "libcuda.so.1")?;
    let mut bytes = fs::read(&libcuda)?;
    // A name of the same length in the table of names; nobody looks it up by the old one.
    let (old, new) = (b"\0fakecuda_dump_truth\0", b"\0cuLaunchKernel_v900\0");
    let at = bytes.windows(old.len()).position(|window| window == old).context("the name is there")?;
    bytes[at..at + new.len()].copy_from_slice(new);
    fs::write(&libcuda, bytes)?;
    let mut callers = Callers::new(dir, &libcuda)?;
    let (mut agent, mut keeper) = watched(&mut callers, dir, &[])?;
    let one = covered(&agent, &keeper, "it to be named", |one| one["missing"][0].is_string())?;
    ensure!(one["missing"][0].as_str().is_some_and(|text| text.contains("cuLaunchKernel_v900")), "{one}");
    keeper.end()?;
    agent.stop()
}
