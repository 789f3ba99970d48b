//! Calls of a process that are rare and take long: kernels loaded or compiled, graphs made executable.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use wire::{cookie::Class, rare::Rare};

/// Calls that are kept of one process.
const KEPT: usize = 8;
/// Loads of which the time is kept of one process: a framework loads some hundred modules when it starts.
const LOADS: usize = 1024;

/// What a rare call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RareKind {
    /// Loads a module.
    ModuleLoad,
    /// Loads a library of kernels.
    LibraryLoad,
    /// Compiles and links kernels.
    Link,
    /// Makes a graph executable.
    GraphInstantiate,
    /// Initialises the driver.
    Init,
}

impl RareKind {
    /// The kind of a row's class; `None` for a class of another sort.
    pub fn of(class: u8) -> Option<Self> {
        const KINDS: [(Class, RareKind); 5] = [
            (Class::ModuleLoad, RareKind::ModuleLoad),
            (Class::LibraryLoad, RareKind::LibraryLoad),
            (Class::Link, RareKind::Link),
            (Class::GraphInstantiate, RareKind::GraphInstantiate),
            (Class::Init, RareKind::Init),
        ];
        KINDS.iter().find(|(of, _)| *of as u8 == class).map(|(_, kind)| *kind)
    }
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RareCall {
    /// What it did.
    pub kind: RareKind,
    /// When it began, `CLOCK_MONOTONIC` ns.
    pub begin_ns: u64,
    /// When it returned.
    pub end_ns: u64,
    /// Its return code (`CUresult`).
    pub result: u32,
}

/// The calls of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RareCalls {
    /// How many there were.
    pub count: u64,
    /// Time in them, ns; those of several threads at once count each.
    pub total_ns: u64,
    /// The last ones, oldest first.
    pub last: VecDeque<RareCall>,
    /// Begin and end of the last loads and compilations, by their ends.
    loads: VecDeque<(u64, u64)>,
}

impl RareCalls {
    pub(super) fn add(&mut self, rare: &Rare) {
        let Some(kind) = RareKind::of(rare.class) else { return };
        let end_ns = rare.header.time_ns;
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(end_ns.saturating_sub(rare.enter_ns));
        if matches!(kind, RareKind::ModuleLoad | RareKind::LibraryLoad | RareKind::Link) {
            if self.loads.len() == LOADS {
                self.loads.pop_front();
            }
            self.loads.push_back((rare.enter_ns, end_ns));
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(RareCall { kind, begin_ns: rare.enter_ns, end_ns, result: rare.result });
    }
    /// Loads and compilations that went on within `[from, to]`: begin and end of each, within that.
    pub fn loads(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let all = self.loads.iter().filter(move |(begin, end)| *begin < to && *end > from);
        all.map(move |(begin, end)| ((*begin).max(from), (*end).min(to)))
    }
}
