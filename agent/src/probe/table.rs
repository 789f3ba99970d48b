//! The one table of CUDA driver functions that are probed.
//!
//! A function with a known shape is one more row here and no new kernel code: the row's cookie tells the program
//! what the function does and where its arguments are (System V x86-64). The row number is what records carry.

mod arrays;
mod context;
mod copy;
mod described;
mod launch;
mod life;
mod memory;
mod memory_other;
mod memory_range;
mod memset;
mod order;
mod query;
mod rare;
mod resolve;
mod runtime;
mod runtime_memory;
mod sync;

use wire::{
    cookie::{Class, Cookie, FLAG_BLOCKING, FLAG_NARROW, FLAG_PER_THREAD, FLAG_RUNTIME, Loc},
    names,
};

/// Symbol that tells a CUDA driver library from a file that merely has its name.
pub const DRIVER_MARK: &str = "cuLaunchKernel";

/// The same for the runtime.
pub const RUNTIME_MARK: &str = "cudaLaunchKernel";

/// One function of the driver API.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name in the API and in everything the agent prints.
    pub name: &'static str,
    /// What it does.
    pub class: Class,
    /// Exported symbols of it; each that exists is attached.
    pub symbols: &'static [Symbol],
    /// Where the stream handle is.
    pub stream: Loc,
    /// Where the number of bytes is, or what [`Class`] says.
    pub bytes: Loc,
    /// Where the event, graph or address is, or what [`Class`] says.
    pub object: Loc,
    /// Where the other thing is of which a memory row's class tells; takes the place of the stream in the cookie.
    pub other: Loc,
    /// The call returns only when the copy is done, so it is a result marker too.
    pub blocking: bool,
    /// Every driver of the last ten years has it: its absence is worth a warning.
    pub required: bool,
    /// It is of the runtime (`libcudart`), whose calls count where no driver is attached to.
    pub runtime: bool,
    /// Prototype in `cuda.h`, or in `cuda_runtime_api.h`.
    pub prototype: &'static str,
}

/// One exported variant of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Name in the dynamic symbol table.
    pub name: &'static str,
    /// Handle 0 is the calling thread's own stream (`_ptds`, `_ptsz`), not the legacy one.
    pub per_thread: bool,
    /// Sizes and device addresses are of 32 bits: the first form of functions that got others in CUDA 3.2.
    pub narrow: bool,
}

const fn legacy(name: &'static str) -> Symbol {
    Symbol { name, per_thread: false, narrow: false }
}

const fn per_thread(name: &'static str) -> Symbol {
    Symbol { name, per_thread: true, narrow: false }
}

const fn narrow(name: &'static str) -> Symbol {
    Symbol { name, per_thread: false, narrow: true }
}

/// A program to attach for a row: at the entry, or at the return of the function (the kind is the program's own).
pub type Program = &'static str;

impl Row {
    /// Programs that the row needs, entry first.
    pub const fn programs(&self) -> &'static [Program] {
        match self.class {
            Class::Launch | Class::GraphLaunch => &[names::PROG_LAUNCH],
            _ if self.blocking => &[names::PROG_SYNC_ENTER, names::PROG_SYNC_RETURN],
            Class::CopyH2D
            | Class::CopyD2H
            | Class::CopyD2D
            | Class::CopyAny
            | Class::Copy2D
            | Class::Copy3D
            | Class::CopyBatch
            | Class::CopyRows
            | Class::CopyExtent
            | Class::Memset => &[names::PROG_COPY],
            Class::QueryEvent | Class::QueryStream => &[names::PROG_QUERY_ENTER, names::PROG_QUERY_RETURN],
            Class::CaptureBegin | Class::StreamCreate => &[names::PROG_BEGIN_ENTER, names::PROG_BEGIN_RETURN],
            Class::CaptureEnd | Class::Destroy => &[names::PROG_END],
            Class::SyncStream | Class::SyncEvent | Class::SyncContext => {
                &[names::PROG_SYNC_ENTER, names::PROG_SYNC_RETURN]
            }
            Class::EventRecord => &[names::PROG_EVENT_RECORD],
            Class::WaitEvent => &[names::PROG_WAIT_EVENT],
            Class::ContextSet | Class::ContextPush | Class::ContextPop => &[names::PROG_CONTEXT_CURRENT],
            Class::ContextCreate
            | Class::ContextRetain
            | Class::ContextDestroy
            | Class::ContextReset
            | Class::DeviceGet
            | Class::DeviceUuid
            | Class::DeviceBus
            | Class::DeviceByBus => &[names::PROG_CONTEXT_ENTER, names::PROG_CONTEXT_RETURN],
            Class::Resolve => &[names::PROG_RESOLVE_ENTER, names::PROG_RESOLVE_RETURN],
            Class::ModuleLoad | Class::LibraryLoad | Class::Link | Class::GraphInstantiate | Class::Init => {
                &[names::PROG_RARE_ENTER, names::PROG_RARE_RETURN]
            }
            class => {
                assert!(class.is_memory(), "each class has its programs");
                &[names::PROG_MEMORY_ENTER, names::PROG_MEMORY_RETURN]
            }
        }
    }

    /// The number that the program finds when it fires at `symbol`; `row` is the row's place in [`TABLE`].
    pub const fn cookie(&self, row: u16, symbol: Symbol) -> Cookie {
        let per_thread = if symbol.per_thread { FLAG_PER_THREAD } else { 0 };
        let blocking = if self.blocking { FLAG_BLOCKING } else { 0 };
        let narrow = if symbol.narrow { FLAG_NARROW } else { 0 };
        let runtime = if self.runtime { FLAG_RUNTIME } else { 0 };
        Cookie {
            row,
            stream: if self.class.is_memory() { self.other } else { self.stream },
            bytes: self.bytes,
            object: self.object,
            class: self.class,
            flags: per_thread | blocking | narrow | runtime,
        }
    }
}

/// A row without arguments; the table below overrides what a function has.
const fn row(name: &'static str, class: Class, symbols: &'static [Symbol], prototype: &'static str) -> Row {
    Row {
        name,
        class,
        symbols,
        stream: Loc::None,
        bytes: Loc::None,
        object: Loc::None,
        other: Loc::None,
        blocking: false,
        required: true,
        runtime: false,
        prototype,
    }
}

/// Names of the rows by row number, as [`crate::decode::Observation::Start`] keeps them.
pub fn row_names() -> Vec<String> {
    TABLE.iter().map(|row| row.name.to_owned()).collect()
}

/// The rows by subject.
const GROUPS: &[&[Row]] = &[
    launch::ROWS,
    sync::ROWS,
    order::ROWS,
    query::ROWS,
    life::ROWS,
    copy::ROWS,
    arrays::ROWS,
    described::ROWS,
    memset::ROWS,
    memory::ROWS,
    memory_range::ROWS,
    memory_other::ROWS,
    context::ROWS,
    resolve::ROWS,
    rare::ROWS,
    runtime::ROWS,
    runtime_memory::ROWS,
];

const LEN: usize = {
    let (mut len, mut group) = (0, 0);
    while group < GROUPS.len() {
        len += GROUPS[group].len();
        group += 1;
    }
    len
};

/// Every function that is probed. The place in the table is the row number: it holds within one run of the agent, and a
/// recording brings the names of its own.
pub const TABLE: &[Row] = &concatenated();

const fn concatenated() -> [Row; LEN] {
    let mut rows = [launch::ROWS[0]; LEN];
    let (mut group, mut place) = (0, 0);
    while group < GROUPS.len() {
        let mut index = 0;
        while index < GROUPS[group].len() {
            rows[place] = GROUPS[group][index];
            place += 1;
            index += 1;
        }
        group += 1;
    }
    rows
}

/// Functions whose plain name means another row from a version of CUDA on (`PFN_…_vNNNNN` of `cudaTypedefs.h`), later
/// ones first: that row takes other arguments.
const LATER: &[(&str, u32, &str)] = &[
    ("cuCtxCreate", 12_050, "cuCtxCreate_v4"),
    ("cuCtxCreate", 11_040, "cuCtxCreate_v3"),
    ("cuCtxSynchronize", 13_000, "cuCtxSynchronize_v2"),
    ("cuGetProcAddress", 12_000, "cuGetProcAddress_v2"),
    ("cuMemPrefetchAsync", 12_020, "cuMemPrefetchAsync_v2"),
    ("cuMemcpyBatchAsync", 13_000, "cuMemcpyBatchAsync_v2"),
];

/// The row and symbol of that name; or of the name without what tells variants apart, as it is asked for at run time,
/// with a version of CUDA: then a symbol that takes the same arguments, for the calling thread's own default stream or
/// not.
pub fn find(name: &str, own_stream: bool, version: u32) -> Option<(u16, Symbol)> {
    let later = LATER.iter().find(|(plain, since, _)| *plain == name && *since <= version);
    let name = later.map_or(name, |(.., row)| *row);
    let rows = || (0u16..).zip(TABLE);
    let exact =
        rows().find_map(|(number, row)| Some((number, *row.symbols.iter().find(|s| s.name == name)?)));
    let base = || {
        let (number, row) = rows().find(|(_, row)| row.name == name)?;
        let fits = row.symbols.iter().find(|symbol| symbol.per_thread == own_stream);
        Some((number, *fits.or(row.symbols.first())?))
    };
    // A name with an ending says itself which one is meant.
    if rows().any(|(_, row)| row.name == name) { base() } else { exact }
}

/// The name is one of a row with an ending that only tells variants apart, and no symbol of the row: a later version
/// of the function, or one that this agent was not taught.
pub fn is_unknown_variant(name: &str) -> bool {
    let is_of = |row: &Row| {
        let ending = name.strip_prefix(row.name);
        ending.is_some_and(is_variant_ending) && !is_first_form(name, row)
    };
    let is_known = TABLE.iter().any(|row| row.symbols.iter().any(|symbol| symbol.name == name));
    !is_known && TABLE.iter().any(is_of)
}

/// The form of a function from before CUDA 3.2, which every driver still exports and nothing is built against: a plain
/// name, where the row has its second version.
fn is_first_form(name: &str, row: &Row) -> bool {
    name == row.name && row.symbols.iter().any(|symbol| symbol.name.strip_prefix(name) == Some("_v2"))
}

/// Nothing, `_v2`, `_ptsz`, `_v2_ptds` and the like.
fn is_variant_ending(ending: &str) -> bool {
    let ending = ending.strip_suffix("_ptsz").or_else(|| ending.strip_suffix("_ptds")).unwrap_or(ending);
    let digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    ending.is_empty() || ending.strip_prefix("_v").is_some_and(digits)
}

#[cfg(test)]
#[path = "table/tests.rs"]
mod tests;
