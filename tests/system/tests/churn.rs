//! Processes that come and go, many a second: what each did is counted, and nothing of it stays.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use system::agent::{Agent, json};
use system::caller::Callers;
use system::process::die_with_parent;
use system::recording::GpuWork;
use system::{host, wait};

const LIMIT: Duration = Duration::from_mins(1);
/// Processes started per second, as far as the machine can.
const RATE: u32 = 100;
/// How long, unless `CHURN_SECONDS` says otherwise.
const SECONDS: u64 = 10;
/// Processes at the same time; more would only wait for each other.
const AT_ONCE: usize = 16;
/// Entries that may be left in a map of the kernel, and file descriptors and bytes that may be more.
const LEFT: usize = 64;
const GROWTH: u64 = 8 << 20;

pub(crate) fn come_and_go(dir: &Path) -> Result<()> {
    let mut callers = Callers::new(dir, &host::libcuda()?)?;
    let mut agent = Agent::start(dir, &[])?;
    // Has the driver attached to.
    let mut keeper = callers.start(&["--launches", "0"], &[])?;
    wait::until("the driver to be attached to", LIMIT, || {
        let status = json(&agent.get("/api/v1/status")?)?;
        let mut probes = status["probes"].as_array().into_iter().flatten();
        Ok(probes
            .any(|probe| probe["program"] == "cuda_launch" && probe["state"] == "attached")
            .then_some(()))
    })?;
    // What the first ones cost stays.
    let warm = storm(&callers, Duration::from_secs(2))?;
    let before = Stock::of(&agent)?;
    let seconds = std::env::var("CHURN_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let started = storm(&callers, Duration::from_secs(seconds))?;
    keeper.end()?;

    let all = callers.truths()?;
    let truth = callers.truth()?.launches;
    ensure!(all.len() > (warm + started) as usize, "{} processes left a truth", all.len());
    let counted = wait::until("all launches", LIMIT, || {
        let counted = launches_of(&agent, "caller")?;
        ensure!(counted <= truth, "counted {counted} of {truth}");
        Ok((counted == truth).then_some(counted))
    })
    .with_context(|| format!("{:?} of {truth}: {}", launches_of(&agent, "caller"), health(&agent)))?;
    number_again(&callers, &agent, dir)?;
    let health = health(&agent);
    for lost in ["step_without_service", "memory_without_service", "rare_without_service"] {
        ensure!(health["ignored"].get(lost).is_none(), "{lost}: {health}");
    }
    let rate = f64::from(started) / Duration::from_secs(seconds).as_secs_f64();
    let after = leftovers_gone(&agent)?;
    let _ = writeln!(
        io::stdout().lock(),
        "{started} processes, {rate:.0} a second, {counted} launches; before {before:?}, after {after:?}"
    );
    ensure!(after.descriptors <= before.descriptors + LEFT, "descriptors: {before:?}, {after:?}");
    ensure!(after.bytes <= before.bytes + GROWTH, "memory: {before:?}, {after:?}");
    agent.stop()?;
    let recorded = GpuWork::read_all(agent.recording())?;
    for (pid, truth) in &all {
        let launches = recorded.get(pid).map_or(0, |work| work.counted().0.launches);
        ensure!(launches == truth.launches, "process {pid}: {launches} launches, true {}", truth.launches);
    }
    Ok(())
}

/// A process gets the number of one that has just ended, under another name: each has its own launches.
fn number_again(callers: &Callers, agent: &Agent, dir: &Path) -> Result<()> {
    const FIRST: u64 = 7;
    const SECOND: u64 = 9;
    const TRIES: u64 = 200;
    let program = dir.join("again");
    fs::copy(host::binary("caller")?, &program)?;
    let before = launches_of(agent, "caller")?;
    for tries in 1..=TRIES {
        let number = run(callers.command(&["--launches", &FIRST.to_string()])?)?;
        // Whoever comes next gets the number after this one, if it is free; others may be faster.
        fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string())?;
        let second = run(callers.command_of(&program, &["--launches", &SECOND.to_string()])?)?;
        if second != number {
            continue;
        }
        return wait::until("the launches of both", LIMIT, || {
            let counted = [launches_of(agent, "caller")?, launches_of(agent, "again")?];
            let want = [before + FIRST * tries, SECOND * tries];
            ensure!(counted.iter().zip(want).all(|(have, want)| *have <= want), "{counted:?}, true {want:?}");
            Ok((counted == want).then_some(()))
        });
    }
    anyhow::bail!("no process got the number of the one before in {TRIES} tries")
}

/// Runs it to its end; its number.
fn run(mut command: Command) -> Result<u32> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    die_with_parent(&mut command);
    let mut child = command.spawn().context("cannot start a caller")?;
    let status = child.wait()?;
    ensure!(status.success(), "a caller ended with {status}");
    Ok(child.id())
}

/// Starts processes for a while, each of which makes some twenty launches and an allocation; how many.
fn storm(callers: &Callers, length: Duration) -> Result<u32> {
    let (begin, mut started) = (Instant::now(), 0);
    let mut running: Vec<Child> = Vec::new();
    while begin.elapsed() < length {
        collect(&mut running, AT_ONCE - 1)?;
        // So that two of them are not alike.
        let launches = (10 + started % 21).to_string();
        let mut command: Command = callers.command(&["--launches", &launches, "--allocs", "1"])?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        die_with_parent(&mut command);
        running.push(command.spawn().context("cannot start a caller")?);
        started += 1;
        let due = Duration::from_secs(1) * started / RATE;
        // A pace, not a wait for something.
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
    }
    collect(&mut running, 0)?;
    Ok(started)
}

/// Waits until no more than so many run.
fn collect(running: &mut Vec<Child>, most: usize) -> Result<()> {
    while running.len() > most {
        let status = running.remove(0).wait()?;
        ensure!(status.success(), "a caller ended with {status}");
    }
    Ok(())
}

fn launches_of(agent: &Agent, workload: &str) -> Result<u64> {
    let text = agent.metrics_text()?;
    let is_its = |line: &&str| {
        line.starts_with(&format!("cuda_launches_total{{workload=\"{workload}\",kind=\"kernel\""))
    };
    let line = text.lines().find(is_its);
    Ok(line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0))
}

fn health(agent: &Agent) -> Value {
    let status = agent.get("/api/v1/status").and_then(|text| json(&text)).unwrap_or_default();
    status["health"].clone()
}

/// What the agent holds.
#[derive(Debug)]
struct Stock {
    descriptors: usize,
    bytes: u64,
    /// Entries by map of the kernel, of those that are kept by process or thread.
    entries: BTreeMap<String, usize>,
}

impl Stock {
    fn of(agent: &Agent) -> Result<Self> {
        let pid = agent.process.pid();
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        Ok(Self { descriptors, bytes: agent.process.anonymous_bytes()?, entries: entries(pid)? })
    }
}

/// Nothing of the processes is left in the kernel.
fn leftovers_gone(agent: &Agent) -> Result<Stock> {
    let mut last = None;
    let gone = wait::until("the kernel's maps to be empty", LIMIT, || {
        let stock = Stock::of(agent)?;
        let is_clean = stock.entries.values().all(|entries| *entries <= LEFT);
        Ok(if is_clean {
            Some(stock)
        } else {
            last = Some(stock);
            None
        })
    });
    gone.with_context(|| format!("left: {last:?}"))
}

/// Maps of processes and threads that are emptied by hand, not by age.
const MAPS: [&str; 8] = [
    "SCOPE",
    "STREAMS",
    "STREAM_LISTS",
    "SYNC_CALLS",
    "MEMORY_CALLS",
    "RARE_CALLS",
    "RESOLVE_CALLS",
    "DEPTHS",
];

pub(crate) fn entries(pid: u32) -> Result<BTreeMap<String, usize>> {
    let mut entries = BTreeMap::new();
    for id in map_ids(pid)? {
        let show = bpftool(&["-j", "map", "show", "id", &id.to_string()])?;
        let map: Value = serde_json::from_str(&show).unwrap_or_default();
        let name = map["name"].as_str().unwrap_or_default().to_owned();
        if MAPS.contains(&&*name) {
            let dump: Value = serde_json::from_str(&bpftool(&["-j", "map", "dump", "id", &id.to_string()])?)?;
            entries.insert(name, dump.as_array().map_or(0, Vec::len));
        }
    }
    ensure!(entries.len() >= MAPS.len() - 1, "not all maps were found: {entries:?}");
    Ok(entries)
}

fn map_ids(pid: u32) -> Result<Vec<u64>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // Closed meanwhile: no map.
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        ids.extend(text.lines().find_map(|line| line.strip_prefix("map_id:")?.trim().parse::<u64>().ok()));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

fn bpftool(arguments: &[&str]) -> Result<String> {
    let output = Command::new(host::tool("bpftool")?).args(arguments).output()?;
    Ok(String::from_utf8(output.stdout)?)
}
