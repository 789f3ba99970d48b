//! Loading the programs and attaching them: raw tracepoints once, uprobes once per library file.
//!
//! Every program is loaded by itself, so that a refusal costs one feature. Nothing is pinned and nothing mounted:
//! when this process ends, in whatever way, the kernel removes every program and probe.

mod detach;
mod load;
mod multi;
mod older;
mod points;
mod programs;

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::{AsRawFd, OwnedFd},
};

use aya::{
    Ebpf,
    programs::{
        ProbeKind, RawTracePoint, RawTracePointRunOptions, TestRun as _, UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope},
    },
};
use wire::names;

pub use load::{Maps, Options, load};
use multi::Multi;
use points::{Point, inner_point, lacks_return, points};
pub use programs::{TRACEPOINTS, Tracepoint, loses, uprobes};

use super::{
    elf,
    error::chain,
    hazards::{self, Decision, Facts, KernelVersion},
    prologue,
    table::{Program, Symbol},
    targets::{FileId, Kind, Library},
    verdict::{CostClass, Intent, Outcome, ProbeVerdict, State, judge},
};

/// The loaded programs, and what they are attached to.
#[derive(Debug)]
pub struct Attacher {
    bpf: Ebpf,
    /// The uprobe programs, where one link can be at many places.
    multi: Option<Multi>,
    kernel: KernelVersion,
    /// Programs that the kernel refused, with its reason.
    refused: BTreeMap<Program, String>,
    tracepoints: Vec<ProbeVerdict>,
    /// Of the iterator over open files.
    older: ProbeVerdict,
    libraries: BTreeMap<FileId, Attached>,
}

#[derive(Debug)]
struct Attached {
    kind: Kind,
    links: Vec<Link>,
    verdicts: Vec<ProbeVerdict>,
    /// Offsets of the functions that have a probe.
    places: BTreeSet<u64>,
    /// Those among them that are no exported functions.
    inner: BTreeSet<u64>,
}

/// What keeps a program at its places: once it is dropped, the program is gone from there.
#[derive(Debug)]
enum Link {
    /// One place.
    Perf(#[expect(dead_code, reason = "held for its end")] UProbeLink),
    /// All places of a program in a file.
    Multi(#[expect(dead_code, reason = "held for its end")] OwnedFd),
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
        let older = std::iter::once(self.older.clone());
        self.tracepoints.iter().cloned().chain(older).chain(refused).chain(libraries).collect()
    }

    /// Instructions the verifier walked, by program, for those that were loaded.
    pub fn verified_instructions(&self) -> BTreeMap<String, u32> {
        let count = |program: &aya::programs::Program| program.info().ok()?.verified_instruction_count();
        let loaded =
            self.bpf.programs().filter_map(|(name, program)| Some((name.to_owned(), count(program)?)));
        loaded.chain(self.multi.iter().flat_map(Multi::verified_instructions)).collect()
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
                Ok(link) => links.push(link),
                Err(reason) => {
                    tracing::warn!(
                        offset,
                        symbol = symbol.name,
                        reason,
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

    fn attach_program(&mut self, program: Program, library: &Library) -> (ProbeVerdict, Vec<Link>) {
        let (mut points, absent) = points(program, library);
        points.extend(points::without_returns(program, library, self.kernel));
        let intent =
            Intent { program, target: library.path.to_string_lossy().into_owned(), loses: loses(program) };
        let mut outcome = Outcome { absent, ..Outcome::default() };
        let (mut safe, mut cost) = (Vec::new(), None);
        for point in &points {
            match self.check(program, library, point) {
                Ok(class) => {
                    cost = cost.max(Some(class));
                    safe.push(point);
                }
                Err(sentence) => outcome.hazards.push((point.name, sentence.to_owned())),
            }
        }
        let links = self.link_all(program, library, &safe, &mut outcome);
        outcome.cost = cost.filter(|_| outcome.attached > 0);
        (judge(&intent, &outcome), links)
    }

    /// One link for all places, or, where that cannot be had, one each.
    fn link_all(
        &mut self,
        program: Program,
        library: &Library,
        points: &[&Point<'_>],
        outcome: &mut Outcome,
    ) -> Vec<Link> {
        if let (Some(multi), true) = (&self.multi, points.len() > 1) {
            let places: Vec<_> = points.iter().map(|point| (place(point), point.cookie)).collect();
            match multi.attach(program, self.returns(program), library.file.as_raw_fd(), &places) {
                Ok(link) => {
                    outcome.attached += points.len();
                    return vec![Link::Multi(link)];
                }
                // One place that the kernel does not take is all of them refused.
                Err(error) => tracing::debug!(program, %error, "attached place by place"),
            }
        }
        let mut links = Vec::new();
        for point in points {
            match self.link(program, library, point) {
                Ok(link) => {
                    links.push(link);
                    outcome.attached += 1;
                }
                Err(error) => outcome.failures.push((point.name, error)),
            }
        }
        links
    }

    fn attach_point(
        &mut self,
        program: Program,
        library: &Library,
        point: &Point<'_>,
    ) -> Result<Link, String> {
        self.check(program, library, point)?;
        self.link(program, library, point)
    }

    /// The program runs at returns.
    fn returns(&self, program: Program) -> bool {
        let program = self.bpf.program(program);
        let Some(aya::programs::Program::UProbe(program)) = program else { return false };
        matches!(program.kind(), ProbeKind::Return)
    }

    /// What a probe at this place costs, or why it must not be there.
    fn check(
        &self,
        program: Program,
        library: &Library,
        point: &Point<'_>,
    ) -> Result<CostClass, &'static str> {
        let instruction = prologue::place(&point.function.prologue).instruction;
        let facts = Facts {
            kernel: self.kernel,
            x86_64: cfg!(target_arch = "x86_64"),
            returns: self.returns(program),
            instruction,
            stack_bytes: None,
            go: library.is_go,
        };
        match hazards::check(&facts) {
            Decision::Refuse(sentence) => Err(sentence),
            Decision::Attach => Ok(instruction.cost()),
        }
    }

    fn link(&mut self, name: Program, library: &Library, point: &Point<'_>) -> Result<Link, String> {
        let offset = place(point);
        let file = library.file.as_raw_fd();
        if let Some(multi) = &self.multi {
            let link = multi.attach(name, self.returns(name), file, &[(offset, point.cookie)]);
            return link.map(Link::Multi).map_err(|error| error.to_string());
        }
        let program: &mut UProbe = self
            .bpf
            .program_mut(name)
            .and_then(|program| program.try_into().ok())
            .ok_or("not a uprobe program of the object")?;
        let at = UProbeAttachPoint {
            location: UProbeAttachLocation::AbsoluteOffset(offset),
            cookie: Some(point.cookie),
        };
        // Through our own descriptor: the process that maps the file may be gone, its path may lead elsewhere.
        let path = format!("/proc/self/fd/{file}");
        let failed = |error: aya::programs::ProgramError| chain(&error);
        let id = program.attach(at, path, UProbeScope::AllProcesses).map_err(failed)?;
        program.take_link(id).map(Link::Perf).map_err(failed)
    }

    /// Removes the probes of a library that nobody maps any more, in the background: each link takes the kernel up to a
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

/// Where in the file the probe of a function goes.
fn place(point: &Point<'_>) -> u64 {
    point.function.offset + prologue::place(&point.function.prologue).skip
}

#[cfg(test)]
#[path = "attach/tests.rs"]
mod tests;
