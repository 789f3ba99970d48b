//! Which way the CUDA calls of each process take: by exported functions of an attached driver, by addresses that the
//! driver gave out, or, where no driver can be attached to, by the runtime. And that each call counts once.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use aya::maps::{Array, HashMap, MapData};
use wire::names::{RANGES, Ranges, SCOPE_PATH_DRIVER, SCOPE_PATH_INNER, SCOPE_PATH_RUNTIME};

use super::{
    super::{
        attach::{Attacher, Inner},
        status::{Path, Reach},
        targets::{FileId, Mapped, Mapping, locate},
    },
    hints::Resolved,
    libraries::Libraries,
    output::Output,
    scan::Scanner,
};

/// A process that maps the runtime has mapped its driver by this time, if it is going to use it: the runtime does so when it
/// is first called.
const FALLBACK_AFTER: Duration = Duration::from_secs(2);
/// Most processes that are followed in either way: the size of the kernel's maps.
const MAX_PROCESSES: usize = 1024;
/// Sentences kept of one process.
const MAX_SENTENCES: usize = 8;

/// The kernel's maps of this.
pub struct WayMaps {
    /// Processes whose calls of the runtime count.
    pub fallback: HashMap<MapData, u32, u32>,
    /// Where the code of drivers is in processes in which one probed function may call another.
    pub nesting: HashMap<MapData, u32, Ranges>,
    /// How many those are.
    pub nesting_count: Array<MapData, u64>,
}

/// What is known of the ways.
pub(super) struct Ways {
    maps: WayMaps,
    nesting: BTreeMap<u32, Ranges>,
    /// Processes that map a runtime and no driver that is attached to, and since when.
    without_driver: BTreeMap<u32, Instant>,
    fallback: BTreeSet<u32>,
    /// What was said of addresses given to processes.
    sentences: BTreeMap<u32, BTreeSet<String>>,
    /// Addresses that are not attached to.
    refused: u64,
}

impl Ways {
    /// Nothing known yet.
    pub(super) fn new(maps: WayMaps) -> Self {
        Self {
            maps,
            nesting: BTreeMap::new(),
            without_driver: BTreeMap::new(),
            fallback: BTreeSet::new(),
            sentences: BTreeMap::new(),
            refused: 0,
        }
    }

    /// Processes whose calls of the runtime count.
    pub(super) fn fallback(&self) -> &BTreeSet<u32> {
        &self.fallback
    }

    /// Places that could not be attached to.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// The process uses a GPU, as far as one can tell: it maps a driver, or calls a runtime without one.
    pub(super) fn uses_gpu(&self, pid: u32, mapped: &Mapped, drivers: &Libraries, output: &Output) -> bool {
        let has_driver = drivers_of(mapped).any(|mapping| drivers.is_one(mapping.file));
        has_driver || (self.fallback.contains(&pid) && (!mapped.cuda.is_empty() || output.noted(pid) != 0))
    }

    /// Finds the processes that the runtime has to stand in for the driver of.
    pub(super) fn find_fallbacks(&mut self, scanner: &Scanner, drivers: &Libraries, now: Instant) {
        let lacks_driver = |mapped: &Mapped| {
            !mapped.runtime.is_empty() && !drivers_of(mapped).any(|mapping| drivers.is_one(mapping.file))
        };
        let without: BTreeSet<u32> =
            scanner.mapped().filter(|(_, mapped)| lacks_driver(mapped)).map(|(pid, _)| pid).collect();
        self.without_driver.retain(|pid, _| without.contains(pid));
        for &pid in without.iter().take(MAX_PROCESSES) {
            self.without_driver.entry(pid).or_insert(now);
        }
        let is_due = |since: &Instant| now >= *since + FALLBACK_AFTER;
        let mut wanted: BTreeSet<u32> =
            self.without_driver.iter().filter(|(_, since)| is_due(since)).map(|(pid, _)| *pid).collect();
        for pid in self.fallback.difference(&wanted) {
            let _absent = self.maps.fallback.remove(pid);
        }
        let fresh: Vec<u32> = wanted.difference(&self.fallback).copied().collect();
        for pid in fresh {
            if let Err(error) = self.maps.fallback.insert(pid, 1, 0) {
                tracing::warn!(pid, %error, "calls of its CUDA runtime are not seen yet");
                // It is tried again when it is due again.
                self.without_driver.insert(pid, now);
                wanted.remove(&pid);
            }
        }
        self.fallback = wanted;
    }

    /// Tells the kernel in which processes one probed function may call another.
    pub(super) fn nest(&mut self, scanner: &Scanner, attacher: &Attacher) {
        self.nest_with(scanner, attacher, &BTreeSet::new());
    }

    /// The same, with files that are about to have places of their own: told only after those are attached to, calls in
    /// between would count twice.
    fn nest_with(&mut self, scanner: &Scanner, attacher: &Attacher, coming: &BTreeSet<FileId>) {
        let has_inner = |id| attacher.has_inner(id) || coming.contains(&id);
        let nesting: BTreeMap<u32, Ranges> = scanner
            .mapped()
            .filter_map(|(pid, mapped)| Some((pid, ranges(mapped, |id| attacher.has(id), has_inner)?)))
            .take(MAX_PROCESSES)
            .collect();
        if nesting == self.nesting {
            return;
        }
        for pid in self.nesting.keys().filter(|pid| !nesting.contains_key(pid)) {
            let _absent = self.maps.nesting.remove(pid);
        }
        for (pid, ranges) in nesting.iter().filter(|(pid, ranges)| self.nesting.get(pid) != Some(ranges)) {
            if let Err(error) = self.maps.nesting.insert(pid, ranges, 0) {
                tracing::warn!(pid, %error, "calls of its CUDA driver may count twice");
            }
        }
        // Last, so that whoever is asked for is there.
        let _always_there = self.maps.nesting_count.set(0, nesting.len() as u64, 0);
        self.nesting = nesting;
    }

    /// Compares addresses that processes were given with what is attached to, and attaches to what is missing.
    pub(super) fn resolved(
        &mut self,
        found: &[Resolved],
        scanner: &Scanner,
        drivers: &Libraries,
        attacher: &mut Attacher,
    ) {
        let located = locate_all(found, scanner);
        let is_new = |mapping: &Mapping, offset: u64| {
            attacher.has(mapping.file) && !attacher.has_place(mapping.file, offset)
        };
        let coming = located.iter().filter(|(_, mapping, offset)| is_new(mapping, *offset));
        let coming: BTreeSet<FileId> = coming.map(|(_, mapping, _)| mapping.file).collect();
        self.nest_with(scanner, attacher, &coming);
        for (one, mapping, offset) in &located {
            self.compare(one, mapping, *offset, drivers, attacher);
        }
        self.nest(scanner, attacher);
    }

    fn compare(
        &mut self,
        one: &Resolved,
        mapping: &Mapping,
        offset: u64,
        drivers: &Libraries,
        attacher: &mut Attacher,
    ) {
        if attacher.has_place(mapping.file, offset) {
            return;
        }
        let name = one.symbol.name;
        // A layer between the program and the driver: what it passes on is seen at the driver.
        let Some(library) = drivers.get(mapping.file) else {
            return self.say(
                one.pid,
                format!(
                    "{name} leads to {}, seen only as far as it calls the driver",
                    mapping.path.display()
                ),
            );
        };
        if !attacher.has(library.id) {
            return;
        }
        if attacher.attach_inner(library, offset, one.row, one.symbol) == Inner::Refused {
            self.refused += 1;
            self.say(
                one.pid,
                format!(
                    "{name} leads to {offset:#x} of {}, which is not attached to",
                    mapping.path.display()
                ),
            );
        }
    }

    fn say(&mut self, pid: u32, sentence: String) {
        if self.sentences.len() < MAX_PROCESSES || self.sentences.contains_key(&pid) {
            let known = self.sentences.entry(pid).or_default();
            if known.len() < MAX_SENTENCES {
                known.insert(sentence);
            }
        }
    }

    /// How far the calls of each process that may use a GPU are within reach.
    pub(super) fn reach(
        &mut self,
        scanner: &Scanner,
        drivers: &Libraries,
        attacher: &Attacher,
        output: &Output,
    ) -> Vec<Reach> {
        self.sentences.retain(|pid, _| scanner.is_alive(*pid));
        let of = |(pid, mapped): (u32, &Mapped)| {
            if !self.uses_gpu(pid, mapped, drivers, output) && mapped.cuda.is_empty() {
                return None;
            }
            let mut missing: Vec<String> = self.sentences.get(&pid).into_iter().flatten().cloned().collect();
            missing.extend(drivers_of(mapped).filter_map(|mapping| lacks(mapping, drivers, attacher)));
            Some(Reach { pid, paths: paths(output.noted(pid)), missing })
        };
        scanner.mapped().filter_map(of).take(MAX_PROCESSES).collect()
    }
}

/// Where each of the addresses is, in the process that was given it.
fn locate_all<'a>(found: &'a [Resolved], scanner: &Scanner) -> Vec<(&'a Resolved, Mapping, u64)> {
    let pids: BTreeSet<u32> = found.iter().map(|one| one.pid).collect();
    let mut located = Vec::new();
    for pid in pids {
        let of_it = || found.iter().filter(|one| one.pid == pid);
        let addresses: Vec<u64> = of_it().map(|one| one.address).collect();
        let places = locate(scanner.procfs(), pid, &addresses);
        let place = |one: &'a Resolved| {
            let (mapping, offset) = places.get(&one.address)?;
            Some((one, mapping.clone(), *offset))
        };
        located.extend(of_it().filter_map(place));
    }
    located
}

fn drivers_of(mapped: &Mapped) -> impl Iterator<Item = &Mapping> {
    mapped.cuda.iter().chain(&mapped.maybe_cuda)
}

/// What is not seen of calls of this driver.
fn lacks(mapping: &Mapping, drivers: &Libraries, attacher: &Attacher) -> Option<String> {
    let path = mapping.path.display();
    let Some(library) = drivers.get(mapping.file) else {
        let is_named = super::super::targets::is_driver_name(&mapping.path);
        return is_named.then(|| format!("{path} is not attached to: see probes"));
    };
    if !attacher.has(mapping.file) {
        return Some(format!("{path} is not attached to: see probes"));
    }
    let names = library.unknown.join(", ");
    (!names.is_empty()).then(|| format!("unknown variants exported by {path}, not probed: {names}"))
}

fn paths(noted: u32) -> Vec<Path> {
    [(SCOPE_PATH_DRIVER, Path::Driver), (SCOPE_PATH_INNER, Path::Inner), (SCOPE_PATH_RUNTIME, Path::Runtime)]
        .into_iter()
        .filter(|(bit, _)| noted & bit != 0)
        .map(|(_, path)| path)
        .collect()
}

/// Where the code of the drivers is, if one probed function may call another: there are two of them, or one with places
/// of its own.
fn ranges(
    mapped: &Mapped,
    is_attached: impl Fn(FileId) -> bool,
    has_inner: impl Fn(FileId) -> bool,
) -> Option<Ranges> {
    let attached: Vec<&Mapping> = drivers_of(mapped).filter(|mapping| is_attached(mapping.file)).collect();
    if attached.len() < 2 && !attached.iter().any(|mapping| has_inner(mapping.file)) {
        return None;
    }
    let mut ranges = [0; 2 * RANGES];
    for (pair, mapping) in ranges.chunks_exact_mut(2).zip(attached) {
        pair.copy_from_slice(&[mapping.start, mapping.end]);
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(inode: u64) -> Mapping {
        let file = FileId { device: 1, inode };
        Mapping {
            start: inode << 12,
            end: (inode + 1) << 12,
            offset: 0,
            file,
            path: "/lib/libcuda.so.1".into(),
        }
    }

    #[test]
    fn only_where_one_probed_function_may_call_another_are_calls_told_apart() {
        let mapped = |cuda: &[u64], maybe: &[u64]| Mapped {
            cuda: cuda.iter().map(|inode| mapping(*inode)).collect(),
            maybe_cuda: maybe.iter().map(|inode| mapping(*inode)).collect(),
            ..Mapped::default()
        };
        let of = |mapped: &Mapped, attached: &[u64], inner: &[u64]| {
            ranges(mapped, |id| attached.contains(&id.inode), |id| inner.contains(&id.inode))
        };
        let (one, two) = (mapped(&[1], &[]), mapped(&[1], &[2]));
        assert_eq!(of(&one, &[1], &[]), None);
        assert_eq!(of(&one, &[1], &[1]).map(|ranges| ranges[..3].to_vec()), Some(vec![1 << 12, 2 << 12, 0]));
        assert_eq!(of(&two, &[1], &[]), None);
        assert_eq!(of(&two, &[1, 2], &[]).map(|ranges| ranges[2..4].to_vec()), Some(vec![2 << 12, 3 << 12]));
        let many = mapped(&(1..=20).collect::<Vec<_>>(), &[]);
        assert!(of(&many, &(1..=20).collect::<Vec<_>>(), &[]).is_some(), "more than fit");
    }

    #[test]
    fn paths_are_those_that_were_noted() {
        assert_eq!(paths(3), []);
        assert_eq!(paths(SCOPE_PATH_DRIVER | SCOPE_PATH_RUNTIME | 3), [Path::Driver, Path::Runtime]);
    }
}
