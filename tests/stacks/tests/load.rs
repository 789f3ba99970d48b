//! Two hundred streams at fifty events a second each: nothing is lost, memory stays as it is, and what is lost while
//! the agent stands still is known to the last event.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use stacks::compare::Report;
use stacks::machine::Need;
use stacks::peer::Peer;
use stacks::truth::Truth;
use stacks::watch::Watch;
use system::agent::{Record, Status};
use system::process::Process;
use system::rig::Load;

use crate::{Test, judge};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("r36_streams_200", Need::Nothing, r36_streams_200),
    ("r3_streams_200_agent_stopped", Need::Nothing, r3_streams_200_agent_stopped),
];

const STREAMS: u32 = 200;
/// Between two events of a stream.
const INTERVAL_MS: &str = "20";
const LIMIT: Duration = Duration::from_mins(3);

fn peer(dir: &Path) -> Result<Peer> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stacks-hyper"));
    command.env("TOKEN_INTERVAL_MS", INTERVAL_MS);
    Peer::start("hyper", command, dir)
}

/// A process's use of CPU since `start`.
struct Cpu {
    start: Instant,
    seconds: f64,
    before: [f64; 2],
    now: [f64; 2],
}

impl Cpu {
    fn start(process: &Process) -> Result<Self> {
        let before = process.cpu_split()?;
        Ok(Self { start: Instant::now(), seconds: 0.0, before, now: before })
    }

    fn stop(mut self, process: &Process) -> Result<Self> {
        self.now = process.cpu_split()?;
        self.seconds = self.start.elapsed().as_secs_f64();
        Ok(self)
    }

    /// In the program and in the kernel, percent of a core.
    fn split(&self) -> [f64; 2] {
        [0, 1].map(|i| 100.0 * (self.now[i] - self.before[i]) / self.seconds)
    }

    fn percent(&self) -> f64 {
        self.split().iter().sum()
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([user, system], all, seconds) = (self.split(), self.percent(), self.seconds);
        write!(f, "{all:.1} % of a core (user {user:.1}, system {system:.1}) over {seconds:.0} s")
    }
}

/// How long they stream in all, if it was asked for; then the agent's use of CPU is judged too.
const SECONDS: &str = "STREAMS_SECONDS";
/// The same where nobody asked.
const FEW_SECONDS: u32 = 10;
/// Most of a core that the agent may take, percent.
const MOST_PERCENT: f64 = 15.0;

/// For as long as it is asked for, each stream five answers long: every event is seen, and the agent's memory is the same
/// after the fifth answer as after the first.
///
/// Its CPU time is judged where a time was asked for: a few seconds tell little, and what else runs then more.
fn r36_streams_200(dir: &Path) -> Result<()> {
    const ROUNDS: u32 = 5;
    /// Events of one stream in a second.
    const RATE: u32 = 50;
    /// The lines of 800 finished requests, which are kept for `requests`, at 1.5 KiB each, and as much again for what
    /// the allocator holds between them.
    const GROWTH: u64 = 800 * 2 * 1536;
    let mut peer = peer(dir)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    let asked: Option<u32> = std::env::var(SECONDS).ok().and_then(|seconds| seconds.parse().ok());
    let tokens = asked.unwrap_or(FEW_SECONDS) * RATE / ROUNDS;
    let load = Load::requests(STREAMS, ROUNDS * STREAMS).with("output-tokens", tokens);
    let cpu = Cpu::start(&watch.agent.process)?;
    let mut load = load.start(peer.port, dir)?;
    let warm = |records: &[Record]| records.len() >= STREAMS as usize;
    watch.follower.wait("the first answers", peer.port, LIMIT, warm)?;
    let before = watch.agent.process.anonymous_bytes()?;
    let clients = load.finish(LIMIT)?;
    let after = watch.agent.process.anonymous_bytes()?;
    let cpu = cpu.stop(&watch.agent.process)?;
    let status = watch.agent.status()?;
    writeln!(
        io::stdout().lock(),
        "r36_streams_200: {cpu}; memory {} to {} KiB",
        before / 1024,
        after / 1024
    )?;
    watch.records(peer.port, clients.len())?;
    let records = watch.finish(peer.port)?;
    peer.stop()?;
    let truths = peer.truth()?;
    judge(&Report::new(&truths, &clients, &records), clients.len(), dir)?;
    let lost = lost_events(&truths, &records)?;
    ensure!(
        lost == 0 && status.health.dropped() == 0,
        "{lost} events lost, {} said",
        status.health.dropped()
    );
    ensure!(after < before + GROWTH, "the agent grew from {before} to {after} bytes");
    ensure!(asked.is_none() || cpu.percent() < MOST_PERCENT, "the agent took {cpu}");
    Ok(())
}

/// Events that the server wrote and the agent does not count. An answer with more events than were written is wrong,
/// and one with bytes that were not, or without some that were, as well.
fn lost_events(truths: &[Truth], records: &[Record]) -> Result<u64> {
    let by_id: HashMap<&str, &Record> =
        records.iter().filter_map(|record| Some((record.request_id.as_deref()?, record))).collect();
    let mut lost = 0;
    for truth in truths {
        let id = truth.request_id.as_deref().unwrap_or_default();
        let record = by_id.get(id).with_context(|| format!("{id}: missed"))?;
        let (written, seen) = (truth.content_write_ns.len() as u64, record.chunks.unwrap_or_default());
        lost += written.checked_sub(seen).with_context(|| format!("{id}: {written} events became {seen}"))?;
        let (written, seen) = (truth.bytes_out, record.bytes_out);
        ensure!(written == seen, "{id}: {written} bytes became {seen}");
    }
    Ok(lost)
}

/// The agent gets no CPU for two seconds, and its ring holds a fraction of that: each event that did not fit is
/// counted, all answers say that they have a gap, their sizes are exact, and the answers after that are whole. No time
/// is told that what was lost makes wrong.
fn r3_streams_200_agent_stopped(dir: &Path) -> Result<()> {
    let mut peer = peer(dir)?;
    let mut watch = small_ring(peer.port, dir)?;
    let mut load = Load::requests(STREAMS, STREAMS).with("output-tokens", 400).start(peer.port, dir)?;
    // A hundred records of each stream: all of them are running, and none is near its end.
    let running = |status: &Status| status.health.seen > u64::from(STREAMS) * 100;
    watch.wait_status("all streams to run", running)?;
    watch.agent.process.signal(Signal::STOP)?;
    std::thread::sleep(Duration::from_secs(2));
    watch.agent.process.signal(Signal::CONT)?;
    load.finish(LIMIT)?;
    watch.records(peer.port, STREAMS as usize)?;
    let clients = Load::requests(STREAMS, STREAMS).with("seed", 2).start(peer.port, dir)?.finish(LIMIT)?;
    watch.records(peer.port, 2 * STREAMS as usize)?;
    let dropped = |status: &Status| status.health.kernel.get("drop_socket_ring_full").copied();
    watch.wait_status("the losses to be counted", |status| dropped(status) > Some(0))?;
    let dropped = dropped(&watch.agent.status()?).unwrap_or_default();
    let records = watch.finish(peer.port)?;
    peer.stop()?;
    let truths = peer.truth()?;
    let lost = lost_events(&truths, &records)?;
    writeln!(io::stdout().lock(), "r3_streams_200_agent_stopped: {lost} events lost")?;
    ensure!(lost == dropped, "{lost} events were lost, the agent says {dropped}");
    let is_later = |id: Option<&str>| clients.iter().any(|client| Some(client.request_id.as_str()) == id);
    let (later, during): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| is_later(record.request_id.as_deref()));
    let silent = during.iter().find(|record| record.flags != ["gap"]);
    ensure!(silent.is_none(), "an answer does not say that a part of it was not seen: {silent:#?}");
    no_wrong_times(&truths, &during)?;
    let truths: Vec<_> = truths.into_iter().filter(|truth| is_later(truth.request_id.as_deref())).collect();
    judge(&Report::new(&truths, &clients, &later), STREAMS as usize, dir)
}

/// Gaps across what was lost are none between tokens; the first token and the last byte are right, or not told.
fn no_wrong_times(truths: &[Truth], records: &[Record]) -> Result<()> {
    let by_id: HashMap<&str, &Truth> =
        truths.iter().filter_map(|truth| Some((truth.request_id.as_deref()?, truth))).collect();
    for record in records {
        let truth = by_id[record.request_id.as_deref().unwrap_or_default()];
        let pairs = [
            (record.t_first_token_ns, truth.t_first_token_write_ns),
            (record.t_last_byte_out_ns, truth.t_last_write_ns),
        ];
        for (says, is) in pairs.into_iter().filter_map(|(says, is)| says.zip(is)) {
            // The write, and a scheduling slice of a busy machine.
            let is_right = (is[0]..=is[1] + 5_000_000).contains(&says);
            ensure!(is_right, "{says} is not within {is:?}: {record:#?}");
        }
        ensure!(record.tbt_max_s.is_none(), "a gap that is not one of tokens: {record:#?}");
    }
    Ok(())
}

/// An agent with a ring for a twentieth of a second or so. Without acknowledgements, so that the records of running
/// answers are those of their events and no others.
fn small_ring(port: u16, dir: &Path) -> Result<Watch> {
    let config = dir.join("agent.toml");
    fs::write(&config, "[ring]\nsize_bytes = 1_048_576\n[socket]\nnetwork_timing = \"off\"\n")?;
    let config = config.to_str().context("a path that is not UTF-8")?;
    let mut watch =
        Watch::launch(&["--config", config, "--port", &port.to_string()].map(str::to_owned), dir)?;
    watch.wait_ports(&[port])?;
    Ok(watch)
}
