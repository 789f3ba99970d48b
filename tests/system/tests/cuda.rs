//! GPU work against the truth of a program that makes the calls, and of the simulated driver: counted to the last one,
//! and each step with its own work and time.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::agent::Agent;
use system::program::{Counts, Program, Report, Step};
use system::recording::GpuWork;
use system::wait;
use wire::cuda::{CountedStep, STEP_FIRST_BOUNDED, STEP_POLLED, STEP_STREAM_UNKNOWN, STEP_WORK_MISSED};

const LIMIT: Duration = Duration::from_mins(3);
/// How long a count may take to be told: a few seconds, and more where the machine is busy.
const COUNTED: Duration = Duration::from_mins(1);

pub(crate) fn variants(dir: &Path) -> Result<()> {
    let run = Run::play("variants", dir)?;
    let calls = run.truth.memsets
        + run.truth.launches
        + run.truth.copies.values().map(|kind| kind.count).sum::<u64>();
    ensure!(calls > 10_000, "the run made too few calls to tell: {:?}", run.truth);
    // Loading, graphs and memory, by their own metrics; the module of before the agent came is not among them.
    let called = |names: &[&str]| names.iter().filter_map(|name| run.truth.calls.get(*name)).sum::<u64>();
    let loads = called(&[
        "cuModuleLoad",
        "cuModuleLoadDataEx",
        "cuModuleLoadFatBinary",
        "cuLibraryLoadData",
        "cuLinkCreate_v2",
        "cuLinkAddData_v2",
        "cuLinkComplete",
    ]);
    let graphs = called(&[
        "cuGraphInstantiate_v2",
        "cuGraphInstantiateWithFlags",
        "cuGraphInstantiateWithParams",
        "cuGraphInstantiateWithParams_ptsz",
    ]);
    let want = [loads, graphs, run.truth.allocs];
    ensure!(run.rare == want, "loads, graphs and allocations {:?}, true {want:?}", run.rare);
    Ok(())
}

/// Loads and links, graphs made executable, and allocations, as exported.
fn rare_in_metrics(text: &str) -> [u64; 3] {
    let names = [
        "cuda_module_load_seconds_count{",
        "cuda_graph_instantiate_seconds_count{",
        "cuda_alloc_seconds_count{",
    ];
    names.map(|name| {
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    })
}

pub(crate) fn million(dir: &Path) -> Result<()> {
    let run = Run::play("million", dir)?;
    ensure!(run.truth.launches == 1_000_000, "{:?}", run.truth);
    Ok(())
}

/// Counts do not wait for the end of the process, nor for anybody who waits for the work.
pub(crate) fn unwaited(dir: &Path) -> Result<()> {
    let mut program = Program::start(env!("CARGO_BIN_EXE_cudacalls"), "unwaited", dir)?;
    let agent = program.watched(dir)?;
    program.go(LIMIT)?;
    let want = Seen { kernel: 1000, h2d: 64_000, ..Seen::default() };
    await_counts(&agent, &want)?;
    program.end(LIMIT).map(drop)
}

/// Beyond what is followed, work is still counted, and steps that may lack some say so.
pub(crate) fn streams(dir: &Path) -> Result<()> {
    let run = Run::play("streams", dir)?;
    ensure!(run.gpu.steps.iter().any(|step| step.step.flags & STEP_WORK_MISSED != 0), "{:#?}", run.gpu.steps);
    Ok(())
}

pub(crate) fn in_flight(dir: &Path) -> Result<()> {
    let run = Run::play("in_flight", dir)?;
    run.compare_steps(STEP_FIRST_BOUNDED | STEP_WORK_MISSED | STEP_POLLED)
}

/// What each wait proves, and no more; and streams of threads that are gone are forgotten.
pub(crate) fn waits(dir: &Path) -> Result<()> {
    /// Streams that the script leaves.
    const LEFT: usize = 16;
    let run = Run::look("waits", dir, |agent| {
        wait::until("the streams of threads to go", COUNTED, || {
            let streams = crate::churn::entries(agent.process.pid())?["STREAMS"];
            ensure!(streams > 0, "the program's own streams are gone too");
            Ok((streams <= LEFT).then_some(()))
        })
    })?;
    run.compare_steps(STEP_WORK_MISSED | STEP_POLLED | STEP_STREAM_UNKNOWN)
}

pub(crate) fn graphs(dir: &Path) -> Result<()> {
    let run = Run::play("graphs", dir)?;
    run.compare_steps(STEP_WORK_MISSED | STEP_POLLED)?;
    ensure!(run.truth.captured_launches > 0 && run.truth.captured_graphs > 0, "{:?}", run.truth);
    for (seen, truth) in run.gpu.steps.iter().zip(&run.report.steps) {
        ensure!(seen.step.graph == truth.graph, "graph {:#x}, true {:#x}", seen.step.graph, truth.graph);
    }
    Ok(())
}

pub(crate) fn legacy(dir: &Path) -> Result<()> {
    Run::play("legacy", dir)?.compare_steps(STEP_STREAM_UNKNOWN | STEP_WORK_MISSED | STEP_POLLED)
}

pub(crate) fn polls(dir: &Path) -> Result<()> {
    let run = Run::play("polls", dir)?;
    run.compare_steps(STEP_WORK_MISSED)?;
    let polled = run.gpu.steps.iter().filter(|step| step.step.flags & STEP_POLLED != 0).count();
    ensure!(polled == run.gpu.steps.len(), "{polled} of {} steps are polls", run.gpu.steps.len());
    Ok(())
}

/// A run of a script that was watched from before its first call until after its end.
struct Run {
    report: Report,
    truth: Counts,
    gpu: GpuWork,
    /// See [`rare_in_metrics`].
    rare: [u64; 3],
}

impl Run {
    /// Every count must be the driver's.
    fn play(script: &str, dir: &Path) -> Result<Self> {
        Self::look(script, dir, |_| Ok(()))
    }

    /// The same, with a look at the agent while the program has not ended.
    fn look(script: &str, dir: &Path, look: impl FnOnce(&Agent) -> Result<()>) -> Result<Self> {
        let mut program = Program::start(env!("CARGO_BIN_EXE_cudacalls"), script, dir)?;
        let mut agent = program.watched(dir)?;
        let report = program.go(LIMIT)?;
        look(&agent)?;
        let truth = program.end(LIMIT)?;
        let want = Seen::of(&truth, &report);
        await_counts(&agent, &want)?;
        let rare = rare_in_metrics(&agent.metrics_text()?);
        let dropped = agent.status()?.health.dropped();
        ensure!(dropped == 0, "{dropped} events dropped");
        agent.stop()?;
        let gpu = GpuWork::read(agent.recording(), program.process.pid())?;
        // Also nothing that came later: a count that is right for a moment may be on its way up.
        let (work, captured) = gpu.counted();
        let seen = Seen {
            kernel: work.launches,
            graph: work.graphs,
            captured,
            h2d: work.h2d_bytes,
            d2h: work.d2h_bytes,
            other: work.other_bytes,
        };
        ensure!(seen == want, "recorded {seen:?}, true {want:?}");
        let copies = truth.memsets + truth.copies.values().map(|kind| kind.count).sum::<u64>();
        ensure!(work.copies == copies, "{} copies and memsets recorded, true {copies}", work.copies);
        Ok(Self { report, truth, gpu, rare })
    }

    /// Every step has its own work and time, and none has one of these flags.
    fn compare_steps(&self, forbidden: u16) -> Result<()> {
        let (seen, truth) = (&self.gpu.steps, &self.report.steps);
        let first_wrong = seen.iter().zip(truth).position(|(seen, truth)| !is_work(seen, truth));
        if let Some(at) = first_wrong {
            anyhow::bail!("step {at} is {:#?}, true {:#?}", seen[at], truth[at]);
        }
        ensure!(seen.len() == truth.len(), "{} steps, true {}", seen.len(), truth.len());
        let flagged = seen.iter().find(|step| step.step.flags & forbidden != 0);
        ensure!(flagged.is_none(), "{flagged:#?}");
        let errors = |of: fn((&CountedStep, &Step)) -> u64| -> u64 {
            let mut errors: Vec<u64> = seen.iter().zip(truth).map(of).collect();
            errors.sort_unstable();
            errors.get(errors.len() * 99 / 100).copied().unwrap_or(u64::MAX)
        };
        let result = errors(|(seen, truth)| distance(seen.step.header.time_ns, truth.result));
        ensure!(result <= 100_000, "results are {result} ns off at p99");
        let first = errors(|(seen, truth)| distance(seen.step.first_ns, truth.first));
        ensure!(first <= 100_000, "first launches are {first} ns off at p99");
        Ok(())
    }
}

fn is_work(seen: &CountedStep, truth: &Step) -> bool {
    let (seen, truth) = (seen.step.work, truth.work);
    (seen.launches, seen.graphs, seen.copies) == (truth.launches, truth.graphs, truth.copies)
        && (seen.h2d_bytes, seen.d2h_bytes, seen.other_bytes) == (truth.h2d, truth.d2h, truth.other)
}

/// How far a moment is from the two that the true one lies between.
fn distance(seen: u64, [before, after]: [u64; 2]) -> u64 {
    before.saturating_sub(seen).max(seen.saturating_sub(after))
}

/// Counts as exported.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    kernel: u64,
    graph: u64,
    captured: u64,
    h2d: u64,
    d2h: u64,
    other: u64,
}

impl Seen {
    /// What should be seen. Where a call does not tell its direction, `other` has it.
    fn of(truth: &Counts, report: &Report) -> Self {
        let bytes = |kind: &str| truth.copies.get(kind).map_or(0, |copies| copies.bytes);
        let [to_device, to_host] = report.untold;
        Self {
            kernel: truth.launches,
            graph: truth.graph_launches,
            captured: truth.captured_launches + truth.captured_graphs,
            h2d: bytes("h2d") - to_device,
            d2h: bytes("d2h") - to_host,
            other: bytes("d2d") + bytes("h2h") + to_device + to_host,
        }
    }

    fn in_metrics(text: &str) -> Self {
        let sum = |name: &str, kind: &str| -> u64 {
            let kind = format!("kind=\"{kind}\"");
            let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(&kind));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
        };
        Self {
            kernel: sum("cuda_launches_total{", "kernel"),
            graph: sum("cuda_launches_total{", "graph"),
            captured: sum("cuda_launches_total{", "captured"),
            h2d: sum("cuda_copy_bytes_total{", "h2d"),
            d2h: sum("cuda_copy_bytes_total{", "d2h"),
            other: sum("cuda_copy_bytes_total{", "other"),
        }
    }
}

fn await_counts(agent: &Agent, want: &Seen) -> Result<()> {
    let mut last = Seen::default();
    let reached = wait::until("the counts", COUNTED, || {
        last = Seen::in_metrics(&agent.metrics_text()?);
        Ok((last == *want).then_some(()))
    });
    reached.with_context(|| format!("seen {last:?}, true {want:?}"))
}
