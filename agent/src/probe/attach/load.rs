//! Loading: constants set, maps taken, each program loaded by itself.

use std::{collections::BTreeMap, io};

use aya::{
    Ebpf, EbpfLoader, VerifierLogLevel,
    maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, RingBuf},
    programs::{Program as AyaProgram, ProgramError},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wire::{names, socket::Offsets};
use zerocopy::IntoBytes;

use super::{
    super::{error::ProbeError, error::chain, hazards::KernelVersion, table::Program, tier::Tier},
    Attacher, TRACEPOINTS, Tracepoint,
    multi::Multi,
    older, uprobes,
};

/// The kernel that has `bpf_loop`.
const LOOPS: KernelVersion = KernelVersion::new(5, 17, 0);
/// Lines of the verifier's log that are kept as the reason of a refusal.
const LOG_LINES: usize = 3;

/// What the kernel side is told when it is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Size of the ring buffer.
    pub ring_bytes: u32,
    /// Fields of kernel structures; all zero where they are not known.
    pub offsets: Offsets,
    /// Running kernel.
    pub kernel: KernelVersion,
    /// Arrival and delivery are wanted.
    pub network_timing: bool,
    /// How socket calls are seen.
    pub tier: Tier,
    /// Every process that calls CUDA is watched.
    pub watch_all: bool,
}

impl Options {
    /// A tracepoint is to be attached.
    pub(super) fn want(&self, point: &Tracepoint) -> bool {
        let is_timing = point.program == names::PROG_SEGMENT;
        !self.tier.excludes(point.program) && (self.network_timing || !is_timing)
    }
}

/// The maps that the agent reads and writes.
pub struct Maps {
    /// Records.
    pub ring: RingBuf<MapData>,
    /// Process to `SCOPE_*` bits.
    pub scope: HashMap<MapData, u32, u32>,
    /// [`names::listen_key`] to an ignored value.
    pub listen: HashMap<MapData, u64, u32>,
    /// Bit of each port in `listen`, see [`names::LISTEN_PORTS`].
    pub ports: Array<MapData, u64>,
    /// Counters of the kernel side.
    pub counters: PerCpuArray<MapData, u64>,
    /// Birth of sockets whose long calls are wanted whole.
    pub whole_calls: HashMap<MapData, u64, u64>,
    /// Processes whose calls of the CUDA runtime count.
    pub fallback: HashMap<MapData, u32, u32>,
    /// Processes in which one probed function may call another, and where their drivers' code is.
    pub nesting: HashMap<MapData, u32, names::Ranges>,
    /// How many those are.
    pub nesting_count: Array<MapData, u64>,
}

/// Loads the object and every program in it, and attaches the tracepoints.
pub fn load(object: &[u8], options: &Options) -> Result<(Attacher, Maps), ProbeError> {
    if object.is_empty() {
        return Err(ProbeError::NoObject);
    }
    raise_memory_limit();
    raise_file_limit();
    let own = std::process::id();
    let mut bpf = EbpfLoader::new()
        .override_global(names::OWN_TGID, &own, true)
        .override_global(names::WATCH_ALL, &u32::from(options.watch_all), true)
        .override_global(names::HAS_LOOP, &u32::from(options.kernel >= LOOPS), true)
        .override_global(names::OFFSETS, options.offsets.as_bytes(), true)
        .map_max_entries(names::EVENTS, options.ring_bytes)
        // Without the trace of every instruction: what the verifier objected to stands in the log all the same, and a
        // refused program is not verified again and again until a huge trace fits its buffer.
        .verifier_log_level(VerifierLogLevel::STATS)
        .load(object)
        .map_err(ProbeError::from_load)?;
    let (multi, mut refused) = load_uprobes(&mut bpf, object);
    let maps = take_maps(&mut bpf)?;
    refused.extend(load_tracepoints(&mut bpf, options));
    let older = older::verdict(refused.get(names::PROG_SOCK_OLDER), options);
    let mut attacher = Attacher {
        bpf,
        multi,
        kernel: options.kernel,
        refused,
        tracepoints: Vec::new(),
        older,
        libraries: BTreeMap::new(),
    };
    attacher.attach_tracepoints(options);
    Ok((attacher, maps))
}

/// Each place that is attached to is a file descriptor; a service manager's usual limit of 1024 is some twenty drivers.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "limit of open files not raised; some probes may fail");
    }
}

/// Kernels before 5.11 count maps against the locked-memory limit. Newer ones do not, so failing here is no news.
fn raise_memory_limit() {
    let unlimited = Rlimit { current: None, maximum: None };
    if let Err(error) = setrlimit(Resource::Memlock, unlimited) {
        tracing::debug!(%error, "locked-memory limit not raised; only kernels before 5.11 need it");
    }
}

fn take_maps(bpf: &mut Ebpf) -> Result<Maps, ProbeError> {
    Ok(Maps {
        ring: take(bpf, names::EVENTS)?,
        scope: take(bpf, names::SCOPE)?,
        listen: take(bpf, names::LISTEN)?,
        ports: take(bpf, names::LISTEN_PORTS)?,
        counters: take(bpf, names::COUNTERS)?,
        whole_calls: take(bpf, names::WHOLE_CALLS)?,
        fallback: take(bpf, names::FALLBACK)?,
        nesting: take(bpf, names::NESTING)?,
        nesting_count: take(bpf, names::NESTING_COUNT)?,
    })
}

fn take<M: TryFrom<Map, Error = MapError>>(bpf: &mut Ebpf, name: &'static str) -> Result<M, ProbeError> {
    let map = bpf.take_map(name).ok_or(ProbeError::NoMap(name))?;
    M::try_from(map).map_err(|source| ProbeError::Map { name, source })
}

fn load_tracepoints(bpf: &mut Ebpf, options: &Options) -> BTreeMap<Program, String> {
    let points = TRACEPOINTS.iter().filter(|point| options.want(point));
    let programs = points.map(|point| point.program).chain([names::PROG_TALLY, names::PROG_SOCK_OLDER]);
    load_each(bpf, programs)
}

/// For links to many places, or, where the kernel has none, for one place a link.
fn load_uprobes(bpf: &mut Ebpf, object: &[u8]) -> (Option<Multi>, BTreeMap<Program, String>) {
    match Multi::load(object, bpf, uprobes()) {
        Ok((multi, refused)) => (Some(multi), refused),
        Err(error) => {
            tracing::info!(reason = chain(&error), "each probe is a link of its own; to end takes longer");
            (None, load_each(bpf, uprobes()))
        }
    }
}

/// Those that were refused, each with the reason.
fn load_each(bpf: &mut Ebpf, programs: impl Iterator<Item = Program>) -> BTreeMap<Program, String> {
    programs.filter_map(|name| Some((name, load_program(bpf, name).err()?))).collect()
}

fn load_program(bpf: &mut Ebpf, name: Program) -> Result<(), String> {
    match bpf.program_mut(name) {
        Some(AyaProgram::UProbe(program)) => program.load(),
        Some(AyaProgram::RawTracePoint(program)) => program.load(),
        Some(AyaProgram::Iter(program)) => older::load(program),
        Some(_) => {
            return Err("it has an unexpected type: agent and object are of different versions".to_owned());
        }
        None => return Err("it is not in the object: agent and object are of different versions".to_owned()),
    }
    .map_err(|error| refusal(&error))
}

/// The error and the end of the verifier's log, which says what it objected to.
fn refusal(error: &ProgramError) -> String {
    let ProgramError::LoadError { io_error, verifier_log } = error else { return chain(error) };
    reason(io_error, &verifier_log.to_string())
}

/// What the kernel answered and the end of the verifier's log.
pub(super) fn reason(io_error: &io::Error, log: &str) -> String {
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("processed "))
        .collect();
    let end = &lines[lines.len().saturating_sub(LOG_LINES)..];
    if end.is_empty() { io_error.to_string() } else { format!("{io_error}: {}", end.join(" | ")) }
}

/// The kernel answers ENOENT for a raw tracepoint that it does not have.
pub(super) fn no_such_tracepoint(error: &ProgramError) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if error.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::NotFound) {
            return true;
        }
        source = error.source();
    }
    false
}
