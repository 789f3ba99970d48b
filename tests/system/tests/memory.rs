//! The memory ledger against the simulated driver's own truth.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use system::agent::Agent;
use system::cudaload::{DEVICE, Load, Node};

const MIB: u64 = 1 << 20;
const PROGRAM: &str = env!("CARGO_BIN_EXE_memory-load");

fn node(dir: &Path, mib: u64) -> Result<Node> {
    Node::start(dir, PROGRAM, mib * MIB)
}

fn alloc(load: &mut Load, mib: u64) -> Result<u64> {
    load.ok(&format!("cuMemAlloc_v2 @0 {}", mib * MIB))
}

fn fail(load: &mut Load, mib: u64) -> Result<()> {
    load.refused(&format!("cuMemAlloc_v2 @0 {}", mib * MIB))
}

fn free(load: &mut Load, address: u64) -> Result<()> {
    load.ok(&format!("cuMemFree_v2 {address}")).map(drop)
}

/// Every field of `want` is in `got`, and the same.
fn has(got: &Value, want: &Value) -> Result<()> {
    for (name, value) in want.as_object().context("an object")? {
        ensure!(&got[name] == value, "{name} should be {value}: {got:#}");
    }
    Ok(())
}

/// Failures are decided.
fn decided(n: u64) -> impl Fn(&Value) -> bool {
    move |memory| {
        let by_class = memory["failures_by_class"].as_object();
        by_class.is_some_and(|all| all.values().filter_map(Value::as_u64).sum::<u64>() == n)
    }
}

fn metric(node: &Node, line: &str) -> Result<f64> {
    let text = node.agent.metrics_text()?;
    let found = text
        .lines()
        .filter(|l| l.starts_with(line))
        .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(found.sum())
}

/// All variants, many threads: allocations, frees, failures and bytes are the driver's, to the last one.
pub(crate) fn counts(dir: &Path) -> Result<()> {
    let mut node = node(dir, 2048)?;
    let mut load = node.ready("load")?;
    load.ok("threads 8 100")?;
    let truth = load.truth()?;
    let (allocs, frees) = (&truth["allocs"], &truth["frees"]);
    ensure!(allocs.as_u64() > Some(8000), "the run made too few calls to tell: {truth}");
    let memory = node.memory(load.pid(), "the last call", |memory| {
        &memory["frees"] == frees && &memory["allocations"] == allocs
    })?;
    let refused: u64 = ["cuMemAlloc_v2", "cuMemAllocAsync", "cuMemCreate"]
        .iter()
        .filter_map(|name| truth["failures"][name]["CUDA_ERROR_OUT_OF_MEMORY"].as_u64())
        .sum();
    ensure!(refused == 8 * 100 * 3, "{truth}");
    has(
        &memory,
        &json!({
            "failures": refused, "failed_frees": truth["failures"]["cuMemFree_v2"]["CUDA_ERROR_INVALID_VALUE"],
            "unknown_frees": 0, "reserved_address_bytes": 0, "device": DEVICE,
        }),
    )?;
    ensure!(memory.get("partial").is_none() && memory.get("capped").is_none(), "{memory:#}");
    for kind in ["device", "pool", "vmm", "array", "managed", "host"] {
        let account = &truth["memory"][kind];
        let bytes = |name: &str| account[name].as_u64().unwrap_or_default();
        let live = bytes("alloc_bytes") - bytes("freed_bytes");
        let seen = memory["live_bytes"][kind].as_u64().unwrap_or_default();
        ensure!(seen == live, "{kind}: {live} are live: {memory:#}");
    }
    node.memory(load.pid(), "the causes", decided(refused))?;
    let calls = (allocs.as_u64().unwrap_or_default() + refused) as f64;
    let counted = metric(&node, "cuda_alloc_seconds_count{")?;
    // The programs that showed the agent the driver made a few as well.
    ensure!((calls..calls + 50.0).contains(&counted), "{counted} of {calls} allocations were timed");
    let failed = metric(&node, "cuda_alloc_failures_total{")?;
    ensure!((failed - refused as f64).abs() < 0.5, "{failed} of {refused} failures were counted");
    // 2^40 bytes are more than there are; where nothing was free of other calls for a look, that is not known.
    let by_class = memory_of(&node, &load)?["failures_by_class"].clone();
    let is_told = |class: &str| ["exhausted_self", "unknown"].contains(&class);
    let classes = by_class.as_object().context("classes")?;
    ensure!(classes.keys().all(|class| is_told(class)), "{by_class}");
    load.end()
}

fn memory_of(node: &Node, load: &Load) -> Result<Value> {
    node.memory(load.pid(), "the ledger", Value::is_object)
}

/// Half of the memory is free, in pieces that are too small.
pub(crate) fn fragmented(dir: &Path) -> Result<()> {
    let mut node = node(dir, 64)?;
    let mut load = node.ready("load")?;
    let blocks: Vec<u64> = (0..8).map(|_| alloc(&mut load, 8)).collect::<Result<_>>()?;
    for &block in blocks.iter().step_by(2) {
        free(&mut load, block)?;
    }
    fail(&mut load, 16)?;
    check_failure(
        &node,
        &mut load,
        1,
        "fragmented",
        &json!({
            "function": "cuMemAlloc", "kind": "device", "own_bytes": 32 * MIB, "others_bytes": 0,
            "largest_success_bytes": 8 * MIB, "smallest_failure_bytes": 16 * MIB,
        }),
    )?;
    // With another look at the free memory, the process's own.
    fail(&mut load, 10)?;
    load.ok("cuMemGetInfo_v2 @0 @1")?;
    check_failure(
        &node,
        &mut load,
        2,
        "fragmented",
        &json!({
            "free_source": "process", "smallest_failure_bytes": 10 * MIB,
        }),
    )?;
    let classed = metric(&node, "cuda_alloc_failures_total{workload=\"memory-load\",class=\"fragmented\"}")?;
    ensure!((classed - 2.0).abs() < 0.1, "{}", node.agent.metrics_text()?);
    load.end()
}

/// The n-th failure: classed so, with what the driver knows to have been free.
fn check_failure(node: &Node, load: &mut Load, n: u64, class: &str, want: &Value) -> Result<()> {
    let memory = node.memory(load.pid(), "the cause", decided(n))?;
    let truth = load.truth()?;
    let true_one = &truth["no_room"][usize::try_from(n - 1)?];
    let failure = &memory["last_failure"];
    has(
        failure,
        &json!({
            "class": class, "requested_bytes": true_one["bytes"], "free_bytes": true_one["free"], "result": 2,
            "device": DEVICE,
        }),
    )?;
    has(failure, want)?;
    ensure!(memory["failures_by_class"][class].as_u64() >= Some(1), "{memory:#}");
    ensure!(failure["free_age_s"].as_f64().is_some_and(|age| age <= 5.0), "{failure:#}");
    Ok(())
}

/// The process holds too much itself; another on the device holds little.
pub(crate) fn exhausted_self(dir: &Path) -> Result<()> {
    let mut node = node(dir, 64)?;
    let mut other = node.ready("other")?;
    alloc(&mut other, 2)?;
    let mut load = node.ready("load")?;
    for _ in 0..5 {
        alloc(&mut load, 10)?;
    }
    fail(&mut load, 20)?;
    check_failure(
        &node,
        &mut load,
        1,
        "exhausted_self",
        &json!({
            "own_bytes": 50 * MIB, "others_bytes": 2 * MIB, "total_bytes": 64 * MIB,
        }),
    )?;
    load.end()?;
    other.end()
}

/// Another process holds what is missing, and is named.
pub(crate) fn exhausted_others(dir: &Path) -> Result<()> {
    let mut node = node(dir, 64)?;
    let mut other = node.ready("other")?;
    alloc(&mut other, 50)?;
    let mut load = node.ready("load")?;
    alloc(&mut load, 4)?;
    fail(&mut load, 20)?;
    check_failure(
        &node,
        &mut load,
        1,
        "exhausted_others",
        &json!({
            "own_bytes": 4 * MIB, "others_bytes": 50 * MIB,
            "holders": [{"pid": other.pid(), "bytes": 50 * MIB, "comm": "memory-load"}],
        }),
    )?;
    shared(&node, &mut other, &mut load)?;
    // It goes, and there is room.
    other.end()?;
    alloc(&mut load, 20)?;
    load.end()
}

/// What the other lets it reach is as large as the other made it, and the other's; of a handle that nobody was seen to
/// make the size is not known.
fn shared(node: &Node, other: &mut Load, load: &mut Load) -> Result<()> {
    let own = alloc(other, 3)?;
    let (code, [address, process, ..]) = other.call(&format!("cuIpcGetMemHandle @0 {own}"))?;
    ensure!(code == 0, "the handle was refused with {code}");
    let open = |address: u64| format!("cuIpcOpenMemHandle_v2 @0 1 0 0 0 0 {address} {process}");
    let (mine, strange) = (load.ok(&open(address))?, load.ok(&open(address + 1))?);
    let memory = node.memory(load.pid(), "the import", |memory| memory["unsized_imports"] == 1)?;
    let is_held = json!({"live_bytes": {"device": 4 * MIB, "imported": 3 * MIB}, "peak_bytes": 4 * MIB});
    has(&memory, &is_held)?;
    load.ok(&format!("cuIpcCloseMemHandle {mine}"))?;
    load.ok(&format!("cuIpcCloseMemHandle {strange}"))?;
    node.memory(load.pid(), "the end of it", |memory| memory["live_bytes"]["imported"].is_null())?;
    free(other, own)
}

/// An allocator runs out of memory, gives back what it kept, and tries again: once in vain, once with success.
pub(crate) fn retry_storm(dir: &Path) -> Result<()> {
    let mut node = node(dir, 64)?;
    let mut load = node.ready("load")?;
    let blocks: Vec<u64> = (0..16).map(|_| alloc(&mut load, 4)).collect::<Result<_>>()?;
    fail(&mut load, 20)?;
    for &block in &blocks[0..3] {
        free(&mut load, block)?;
    }
    fail(&mut load, 20)?;
    for &block in &blocks[3..7] {
        free(&mut load, block)?;
    }
    alloc(&mut load, 20)?;
    let memory = node.memory(load.pid(), "the storm", |memory| memory["retry_storms"] == 1)?;
    has(
        &memory["last_storm"],
        &json!({
            "requested_bytes": 20 * MIB, "retries": 2, "frees": 7, "freed_bytes": 28 * MIB, "succeeded": true,
            "pid": load.pid(),
        }),
    )?;
    let truth = load.truth()?;
    let [first, second] = [&truth["no_room"][0], &truth["no_room"][1]];
    ensure!((&first["free"], &second["free"]) == (&json!(0), &json!(12 * MIB)), "{truth}");
    let memory = node.memory(load.pid(), "the causes", decided(2))?;
    has(&memory["last_failure"], &json!({"free_bytes": 12 * MIB, "class": "exhausted_self"}))?;
    let storms =
        metric(&node, "cuda_alloc_retry_storms_total{workload=\"memory-load\",outcome=\"succeeded\"}")?;
    ensure!((storms - 1.0).abs() < 0.1, "{storms}");
    load.end()
}

/// A terabyte of addresses is no memory; what is mapped there is.
pub(crate) fn reservation(dir: &Path) -> Result<()> {
    let mut node = node(dir, 64)?;
    let mut load = node.ready("load")?;
    let range = load.ok(&format!("cuMemAddressReserve @0 {} 0 0 0", 1_u64 << 40))?;
    let memory =
        node.memory(load.pid(), "the range", |memory| memory["reserved_address_bytes"] == 1_u64 << 40)?;
    ensure!(memory.get("live_bytes").is_none() && memory["peak_bytes"] == 0, "{memory:#}");
    let handle = load.ok(&format!("cuMemCreate @0 {} *1,1 0", 20 * MIB))?;
    load.ok(&format!("cuMemMap {range} {} 0 {handle} 0", 20 * MIB))?;
    load.ok(&format!("cuMemRetainAllocationHandle @0 {}", range + 5))?;
    load.ok(&format!("cuMemRelease {handle}"))?;
    load.ok(&format!("cuMemRelease {handle}"))?;
    // What goes into a graph is none.
    let stream = load.ok("cuStreamCreate @0 1")?;
    load.ok(&format!("cuStreamBeginCapture_v2 {stream} 0"))?;
    let captured = load.ok(&format!("cuMemAllocAsync @0 {} {stream}", 30 * MIB))?;
    load.ok(&format!("cuMemFreeAsync {captured} {stream}"))?;
    load.ok(&format!("cuStreamEndCapture {stream} @0"))?;
    // What a pool keeps is memory too, and known as the most that it can be.
    let block = load.ok(&format!("cuMemAllocAsync @0 {} 0", 10 * MIB))?;
    load.ok(&format!("cuMemFreeAsync {block} 0"))?;
    let memory = node.memory(load.pid(), "the mapping", |memory| memory["frees"] == 3)?;
    has(
        &memory,
        &json!({
            "live_bytes": {"vmm": 20 * MIB}, "pool_cached_bytes": 10 * MIB, "peak_bytes": 30 * MIB, "allocations": 2,
            "captured": 2,
        }),
    )?;
    load.ok(&format!("cuMemUnmap {range} {}", 20 * MIB))?;
    let pool = load.ok("cuDeviceGetDefaultMemPool @0 0")?;
    load.ok(&format!("cuMemPoolTrimTo {pool} 0"))?;
    let memory = node.memory(load.pid(), "the end of it", |memory| memory.get("live_bytes").is_none())?;
    has(&memory, &json!({"pool_cached_bytes": 0, "peak_bytes": 30 * MIB}))?;
    ensure!(memory.get("last_failure").is_none(), "{memory:#}");
    load.end()
}

/// A process that was there before: what it frees was not seen, and it says so. Gone, it holds nothing.
pub(crate) fn late(dir: &Path) -> Result<()> {
    let mut node = node(dir, 64)?;
    let mut load = node.ready("load")?;
    let early = alloc(&mut load, 30)?;
    node.agent.stop()?;
    node.agent = Agent::start(dir, &["--config", &config(dir)?])?;
    let pid = load.pid();
    // The agent is ready before it has found everybody.
    node.watched(pid)?;
    alloc(&mut load, 5)?;
    free(&mut load, early)?;
    let memory = node.memory(pid, "the free", |memory| memory["unknown_frees"] == 1)?;
    has(&memory, &json!({"partial": true, "live_bytes": {"device": 5 * MIB}}))?;
    let shown = node.agent.metrics_text()?;
    ensure!(shown.contains("gpu_process_memory_bytes{device=\"GPU-a\",role=\"unknown\",workload=\"memory-load\",kind=\"device\"} 5242880.0"), "{shown}");
    load.end()?;
    node.memory(pid, "its end", Value::is_null).map(drop)
}

fn config(dir: &Path) -> Result<String> {
    Ok(dir.join("gpus.toml").to_str().context("UTF-8")?.to_owned())
}

/// What every server does all day raises nothing.
pub(crate) fn quiet(dir: &Path) -> Result<()> {
    quiet_runs(dir, 20)
}

/// The same, for long.
pub(crate) fn quiet_long(dir: &Path) -> Result<()> {
    quiet_runs(dir, 200)
}

fn quiet_runs(dir: &Path, runs: u64) -> Result<()> {
    let mut node = node(dir, 64)?;
    let mut load = node.ready("load")?;
    let mut kept = Vec::new();
    for run in 0..runs {
        for n in 0..20 {
            kept.push(alloc(&mut load, 1 + (run + n) % 3)?);
            if kept.len() > 10 {
                free(&mut load, kept.remove(usize::try_from((run + n) % 10)?))?;
            }
        }
        load.ok("cuMemGetInfo_v2 @0 @1")?;
    }
    let truth = load.truth()?;
    ensure!(truth["no_room_total"] == 0, "it was not quiet: {truth}");
    let memory = node.memory(load.pid(), "the last run", |memory| {
        memory["allocations"] == truth["allocs"] && memory["frees"] == truth["frees"]
    })?;
    let quiet = memory.get("last_failure").is_none() && memory.get("last_storm").is_none();
    ensure!(quiet && memory["failures"] == 0 && memory["retry_storms"] == 0, "{memory:#}");
    let raised =
        metric(&node, "cuda_alloc_failures_total{")? + metric(&node, "cuda_alloc_retry_storms_total{")?;
    ensure!(raised.abs() < 0.1, "{raised} failures or storms");
    load.end()
}
