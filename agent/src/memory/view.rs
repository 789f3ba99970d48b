//! What is shown of a process's memory.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    Counts, Failure, FailureClass, Kind, Ledgers, Place, Storm,
    book::{Book, total},
    process::Process,
};

/// Memory of one process on one device. Of one that is `partial`, everything is a lower bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessMemory {
    /// Process id.
    pub pid: u32,
    /// Its name, when it is a service's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// UUID of its device, when it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Live bytes by kind; kinds of which there is nothing are absent.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub live_bytes: BTreeMap<Kind, u64>,
    /// What its pools hold beyond that, at most.
    pub pool_cached_bytes: u64,
    /// The most it held of the device: `device`, `vmm`, `array` and all that pools can hold.
    pub peak_bytes: u64,
    /// Addresses it reserved, which is no memory.
    pub reserved_address_bytes: u64,
    /// Counts of its calls.
    #[serde(flatten)]
    pub counts: Counts,
    /// Failed allocations by cause, as far as decided.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failures_by_class: BTreeMap<FailureClass, u64>,
    /// Allocations that were retried after frees.
    pub retry_storms: u64,
    /// Calls were missed: it is older than the agent, or records were lost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// It has more blocks than are kept: frees of the rest count with their mean size.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub capped: bool,
    /// The last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Failure>,
    /// The last retry storm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_storm: Option<Storm>,
}

impl ProcessMemory {
    /// Memory of the device that it holds for certain: pools without what they keep.
    pub fn held_bytes(&self) -> u64 {
        let kinds = Kind::ALL.iter().filter(|kind| kind.is_held() || **kind == Kind::Pool);
        total(kinds.filter_map(|kind| self.live_bytes.get(kind)).copied())
    }
}

impl Ledgers {
    /// Every process that made memory calls, by process id, and by device where it uses several.
    pub fn view(&self) -> Vec<ProcessMemory> {
        let all = self.processes.iter().flat_map(|(&pid, process)| {
            let places: BTreeSet<Place> = process.books.iter().filter_map(|book| book.place).collect();
            places.into_iter().map(move |place| self.of(pid, process, place))
        });
        all.collect()
    }

    fn of(&self, pid: u32, process: &Process, place: Place) -> ProcessMemory {
        let books = || process.books.iter().filter(|book| book.place == Some(place));
        let mut counts = Counts::default();
        books().for_each(|book| counts.add(&book.counts));
        let live = |kind: Kind| total(books().map(|book| book.live(kind)));
        let here = process.here.get(&place).cloned().unwrap_or_default();
        ProcessMemory {
            pid,
            comm: Some(process.comm.clone()).filter(|comm| !comm.is_empty()),
            device: self.uuid(place),
            live_bytes: Kind::ALL.into_iter().map(|k| (k, live(k))).filter(|(_, bytes)| *bytes > 0).collect(),
            pool_cached_bytes: total(books().map(Book::pool_cached)),
            peak_bytes: here.peak,
            reserved_address_bytes: total(books().map(|book| book.reserved_addresses)),
            counts,
            failures_by_class: here.failures,
            retry_storms: here.retry_storms,
            partial: process.is_partial,
            capped: process.is_capped,
            last_failure: here.last_failure,
            last_storm: here.last_storm,
        }
    }
}
