//! Loading the programs and attaching them: raw tracepoints once, uprobes once per library file.
//!
//! Every program is loaded by itself, so that a refusal costs one feature. Nothing is pinned and nothing mounted:
//! when this process ends, in whatever way, the kernel removes every program and probe.

mod detach;
mod load;
mod points;

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::AsRawFd,
};

use aya::{
    Ebpf,
    programs::{
        RawTracePoint, RawTracePointRunOptions, TestRun as _, UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope},
    },
};
use wire::names;

pub use load::{Maps, Options, load};
use points::{Point, inner_point, lacks_return, points};

use super::{
    elf,
    error::chain,
    hazards::{self, Decision, Facts, KernelVersion},
    prologue,
    table::{Program, Symbol},
    targets::{FileId, Kind, Library},
    verdict::{CostClass, Intent, Outcome, ProbeVerdict, State, judge},
};

/// A program on a raw tracepoint.
#[derive(Clone, Copy, Debug)]
pub struct Tracepoint {
    /// Program.
    pub program: Program,
    /// Tracepoint.
    pub name: &'static str,
}

/// Every raw tracepoint that is used, of both tiers.
pub const TRACEPOINTS: &[Tracepoint] = &[
    Tracepoint { program: names::PROG_SOCK_RECV, name: "sock_recv_length" },
    Tracepoint { program: names::PROG_SOCK_SEND, name: "sock_send_length" },
    Tracepoint { program: names::PROG_SOCK_EXIT, name: "sys_exit" },
    Tracepoint { program: names::PROG_SOCK_STATE, name: "inet_sock_set_state" },
    Tracepoint { program: names::PROG_SOCK_DESTROY, name: "tcp_destroy_sock" },
    Tracepoint { program: names::PROG_SEGMENT, name: "tcp_probe" },
    Tracepoint { program: names::PROG_EXEC, name: "sched_process_exec" },
    Tracepoint { program: names::PROG_FORK, name: "sched_process_fork" },
    Tracepoint { program: names::PROG_EXIT, name: "sched_process_exit" },
];

/// Every uprobe program.
pub fn uprobes() -> impl Iterator<Item = Program> {
    [Kind::Cuda, Kind::Tls].into_iter().flat_map(Kind::programs).copied()
}

/// What is not known without a program.
pub fn loses(program: Program) -> &'static str {
    match program {
        names::PROG_SOCK_RECV | names::PROG_SOCK_SEND | names::PROG_SOCK_EXIT => "requests are not seen",
        names::PROG_SOCK_DESTROY => "a socket address that is used again may continue an old connection",
        names::PROG_SOCK_STATE => "new connections count as mid_stream, and aborts are seen late",
        names::PROG_SEGMENT => {
            "the wait of requests before they are read, and the delivery of answers, are not known"
        }
        names::PROG_EXEC | names::PROG_FORK | names::PROG_EXIT => {
            "new processes are noticed only by the next scan"
        }
        names::PROG_SYNC_RETURN | names::PROG_SYNC_ENTER => "GPU steps are not seen",
        names::PROG_QUERY_RETURN | names::PROG_QUERY_ENTER => "waits by polling are no steps",
        names::PROG_BEGIN_RETURN | names::PROG_BEGIN_ENTER => {
            "captured launches count as work, and new streams as old ones"
        }
        names::PROG_END => "captures and streams seem to go on for ever",
        names::PROG_TALLY => "work that nobody waits for is counted when its process ends, and not before",
        names::PROG_MEMORY_RETURN | names::PROG_MEMORY_ENTER => "device memory calls are not seen",
        names::PROG_RESOLVE_RETURN | names::PROG_RESOLVE_ENTER => {
            "calls by addresses that are not those of exported functions are not seen"
        }
        names::PROG_RARE_RETURN | names::PROG_RARE_ENTER => "loading and compiling of kernels is not seen",
        names::PROG_EVENT_RECORD | names::PROG_WAIT_EVENT => {
            "steps that end in an event wait lack their work"
        }
        names::PROG_COPY => "copies are not counted",
        names::PROG_LAUNCH => "launches are not counted and steps lack their begin",
        names::PROG_CONTEXT_RETURN | names::PROG_CONTEXT_ENTER | names::PROG_CONTEXT_CURRENT => {
            "which device a call is for is inferred from NVML and /proc"
        }
        names::PROG_TLS_RETURN | names::PROG_TLS_ENTER => "requests over TLS are not seen",
        names::PROG_TLS_HANDSHAKE => {
            "of TLS connections that begin at the same time, some cannot be told apart"
        }
        names::PROG_TLS_FREE => "a TLS connection whose memory is used again may continue an old one",
        _ => "something is not known",
    }
}

/// The loaded programs, and what they are attached to.
#[derive(Debug)]
pub struct Attacher {
    bpf: Ebpf,
    kernel: KernelVersion,
    /// Programs that the kernel refused, with its reason.
    refused: BTreeMap<Program, String>,
    tracepoints: Vec<ProbeVerdict>,
    libraries: BTreeMap<FileId, Attached>,
}

#[derive(Debug)]
struct Attached {
    kind: Kind,
    links: Vec<UProbeLink>,
    verdicts: Vec<ProbeVerdict>,
    /// Offsets of the functions that have a probe.
    places: BTreeSet<u64>,
    /// Those among them that are no exported functions.
    inner: BTreeSet<u64>,
}

/// Places in one library that are attached to because somebody was given their address.
const MAX_INNER: usize = 256;

/// What became of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner {
    /// It has its probes, since before or from now on.
    Attached,
    /// It has none, and gets none.
    Refused,
}

impl Attacher {
    /// All verdicts: tracepoints, then programs that never attach anywhere, then libraries.
    pub fn verdicts(&self) -> Vec<ProbeVerdict> {
        let is_own = |program: Program| program == names::PROG_TALLY || uprobes().any(|one| one == program);
        let refused = self.refused.iter().filter(|(program, _)| is_own(program)).map(|(program, why)| {
            let intent = Intent { program, target: "any library".to_owned(), loses: loses(program) };
            judge(&intent, &Outcome { refused: Some(why.clone()), ..Outcome::default() })
        });
        let libraries = self.libraries.values().flat_map(|library| library.verdicts.iter().cloned());
        self.tracepoints.iter().cloned().chain(refused).chain(libraries).collect()
    }

    /// Instructions the verifier walked, by program, for those that were loaded.
    pub fn verified_instructions(&self) -> BTreeMap<String, u32> {
        let count = |program: &aya::programs::Program| program.info().ok()?.verified_instruction_count();
        self.bpf.programs().filter_map(|(name, program)| Some((name.to_owned(), count(program)?))).collect()
    }

    /// Files of a kind that it is attached to.
    pub fn libraries(&self, kind: Kind) -> usize {
        self.libraries.values().filter(|library| library.kind == kind).count()
    }

    /// It is attached to this file.
    pub fn has(&self, id: FileId) -> bool {
        self.libraries.contains_key(&id)
    }

    /// Attaches to every function that the library has, once, for all processes that map it now or later.
    pub fn attach(&mut self, library: &Library) {
        if self.has(library.id) {
            return;
        }
        let mut attached = Attached {
            kind: library.kind,
            links: Vec::new(),
            verdicts: unknown_variants(library).into_iter().collect(),
            places: library.functions.values().map(|function| function.offset).collect(),
            inner: BTreeSet::new(),
        };
        for program in library.kind.programs() {
            if self.refused.contains_key(program) || lacks_return(program, library, &attached.verdicts) {
                continue;
            }
            let (verdict, links) = self.attach_program(program, library);
            attached.links.extend(links);
            attached.verdicts.push(verdict);
        }
        self.libraries.insert(library.id, attached);
    }

    /// Whether there is a probe at that place of the file.
    pub fn has_place(&self, id: FileId, offset: u64) -> bool {
        self.libraries.get(&id).is_some_and(|library| library.places.contains(&offset))
    }

    /// Whether functions of this file may be called by others of it, all of them probed.
    pub fn has_inner(&self, id: FileId) -> bool {
        self.libraries.get(&id).is_some_and(|library| !library.inner.is_empty())
    }

    /// Places that are attached to because somebody was given their address.
    pub fn inner_places(&self) -> usize {
        self.libraries.values().map(|library| library.inner.len()).sum()
    }

    /// Attaches to a function of a library that has no name, because somebody was given its address.
    pub fn attach_inner(&mut self, library: &Library, offset: u64, row: u16, symbol: Symbol) -> Inner {
        let Some(known) = self.libraries.get(&library.id) else { return Inner::Refused };
        if known.places.contains(&offset) {
            return Inner::Attached;
        }
        if known.inner.len() >= MAX_INNER {
            return Inner::Refused;
        }
        let Ok(function) = elf::function_at(&library.file, offset) else { return Inner::Refused };
        let mut links = Vec::new();
        for program in library.kind.programs() {
            let point = inner_point(program, row, symbol, &function);
            let Some(point) = point.filter(|_| !self.refused.contains_key(program)) else { continue };
            match self.attach_point(program, library, &point) {
                Ok((link, _)) => links.push(link),
                Err(refusal) => {
                    tracing::warn!(
                        offset,
                        symbol = symbol.name,
                        ?refusal,
                        "an inner function is not attached to"
                    );
                    detach::in_background(links);
                    return Inner::Refused;
                }
            }
        }
        if let Some(known) = self.libraries.get_mut(&library.id) {
            known.links.extend(links);
            known.places.insert(offset);
            known.inner.insert(offset);
        }
        Inner::Attached
    }

    fn attach_program(&mut self, program: Program, library: &Library) -> (ProbeVerdict, Vec<UProbeLink>) {
        let (mut points, absent) = points(program, library);
        points.extend(points::without_returns(program, library, self.kernel));
        let intent =
            Intent { program, target: library.path.to_string_lossy().into_owned(), loses: loses(program) };
        let mut outcome = Outcome { absent, ..Outcome::default() };
        let mut links = Vec::new();
        for point in &points {
            match self.attach_point(program, library, point) {
                Ok((link, cost)) => {
                    links.push(link);
                    outcome.attached += 1;
                    outcome.cost = outcome.cost.max(Some(cost));
                }
                Err(Refusal::Hazard(sentence)) => outcome.hazards.push((point.name, sentence.to_owned())),
                Err(Refusal::Failed(error)) => outcome.failures.push((point.name, error)),
            }
        }
        (judge(&intent, &outcome), links)
    }

    fn attach_point(
        &mut self,
        name: Program,
        library: &Library,
        point: &Point<'_>,
    ) -> Result<(UProbeLink, CostClass), Refusal> {
        let place = prologue::place(&point.function.prologue);
        let program: &mut UProbe = self
            .bpf
            .program_mut(name)
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| Refusal::Failed("not a uprobe program of the object".to_owned()))?;
        let facts = Facts {
            kernel: self.kernel,
            x86_64: cfg!(target_arch = "x86_64"),
            returns: matches!(program.kind(), aya::programs::ProbeKind::Return),
            instruction: place.instruction,
            stack_bytes: None,
            go: library.is_go,
        };
        if let Decision::Refuse(sentence) = hazards::check(&facts) {
            return Err(Refusal::Hazard(sentence));
        }
        let at = UProbeAttachPoint {
            location: UProbeAttachLocation::AbsoluteOffset(point.function.offset + place.skip),
            cookie: Some(point.cookie),
        };
        // Through our own descriptor: the process that maps the file may be gone, its path may lead elsewhere.
        let path = format!("/proc/self/fd/{}", library.file.as_raw_fd());
        let failed = |error: aya::programs::ProgramError| Refusal::Failed(chain(&error));
        let id = program.attach(at, path, UProbeScope::AllProcesses).map_err(failed)?;
        Ok((program.take_link(id).map_err(failed)?, place.instruction.cost()))
    }

    /// Removes the probes of a library that nobody maps any more, in the background: each takes the kernel about a
    /// tenth of a second.
    pub fn detach(&mut self, id: FileId) {
        if let Some(library) = self.libraries.remove(&id) {
            detach::in_background(library.links);
        }
    }

    /// Has the kernel side tell the work that nobody has waited for.
    pub fn tally(&mut self) {
        let program: Option<&mut RawTracePoint> =
            self.bpf.program_mut(names::PROG_TALLY).and_then(|program| program.try_into().ok());
        let Some(program) = program.filter(|_| !self.refused.contains_key(names::PROG_TALLY)) else { return };
        if let Err(error) = program.test_run(RawTracePointRunOptions::new()) {
            tracing::debug!(error = chain(&error), "work that nobody waits for is counted later");
        }
    }

    fn attach_tracepoints(&mut self, options: &Options) {
        for point in TRACEPOINTS.iter().filter(|point| options.want(point)) {
            let intent =
                Intent { program: point.program, target: point.name.to_owned(), loses: loses(point.program) };
            // Without its fields it would tell wrong times.
            let is_blind = point.program == names::PROG_SEGMENT && options.offsets.rcv_nxt == 0;
            let outcome = if is_blind {
                Outcome { absent: vec!["type information on tcp_sock and tcp_skb_cb"], ..Outcome::default() }
            } else {
                self.attach_tracepoint(point)
            };
            self.tracepoints.push(judge(&intent, &outcome));
        }
    }

    fn attach_tracepoint(&mut self, point: &Tracepoint) -> Outcome {
        if let Some(why) = self.refused.get(point.program) {
            return Outcome { refused: Some(why.clone()), ..Outcome::default() };
        }
        let program: Option<&mut RawTracePoint> =
            self.bpf.program_mut(point.program).and_then(|program| program.try_into().ok());
        let Some(program) = program else {
            return Outcome {
                refused: Some("not a tracepoint program of the object".to_owned()),
                ..Outcome::default()
            };
        };
        match program.attach(point.name) {
            Ok(_stays_with_the_program) => {
                Outcome { attached: 1, cost: Some(CostClass::Tracepoint), ..Outcome::default() }
            }
            Err(error) if load::no_such_tracepoint(&error) => {
                Outcome { absent: vec![point.name], ..Outcome::default() }
            }
            Err(error) => Outcome { failures: vec![(point.name, chain(&error))], ..Outcome::default() },
        }
    }
}

impl Drop for Attacher {
    fn drop(&mut self) {
        let links = std::mem::take(&mut self.libraries).into_values().flat_map(|library| library.links);
        detach::and_wait(links.collect());
    }
}

/// Says which exported functions look as if they should be in the table and are not.
fn unknown_variants(library: &Library) -> Option<ProbeVerdict> {
    let names = library.unknown.join(", ");
    (!names.is_empty()).then(|| ProbeVerdict {
        program: "cuda".to_owned(),
        target: library.path.to_string_lossy().into_owned(),
        state: State::Unsupported,
        reason: Some(format!("unknown variants exported, not probed: {names}; calls to these are not seen")),
        cost_class: None,
        attached: 0,
    })
}

/// Why a place was not attached.
#[derive(Debug)]
enum Refusal {
    Hazard(&'static str),
    Failed(String),
}

#[cfg(test)]
#[path = "attach/tests.rs"]
mod tests;
