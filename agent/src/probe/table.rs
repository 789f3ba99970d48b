//! The one table of CUDA driver functions that are probed.
//!
//! A function with a known shape is one more row here and no new kernel code: the row's cookie tells the program
//! what the function does and where its arguments are (System V x86-64). The row number is what records carry.

mod arrays;
mod copy;
mod described;
mod launch;
mod life;
mod memory;
mod memset;
mod order;
mod query;
mod sync;

use wire::{
    cookie::{Class, Cookie, FLAG_BLOCKING, FLAG_PER_THREAD, Loc},
    names,
};

/// Symbol that tells a CUDA driver library from a file that merely has its name.
pub const DRIVER_MARK: &str = "cuLaunchKernel";

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
    /// The call returns only when the copy is done, so it is a result marker too.
    pub blocking: bool,
    /// Every driver of the last ten years has it: its absence is worth a warning.
    pub required: bool,
    /// Prototype in `cuda.h`.
    pub prototype: &'static str,
}

/// One exported variant of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Name in the dynamic symbol table.
    pub name: &'static str,
    /// Handle 0 is the calling thread's own stream (`_ptds`, `_ptsz`), not the legacy one.
    pub per_thread: bool,
}

const fn legacy(name: &'static str) -> Symbol {
    Symbol { name, per_thread: false }
}

const fn per_thread(name: &'static str) -> Symbol {
    Symbol { name, per_thread: true }
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
            | Class::Memset => &[names::PROG_COPY],
            Class::QueryEvent | Class::QueryStream => &[names::PROG_QUERY_ENTER, names::PROG_QUERY_RETURN],
            Class::CaptureBegin | Class::StreamCreate => &[names::PROG_BEGIN_ENTER, names::PROG_BEGIN_RETURN],
            Class::CaptureEnd | Class::Destroy => &[names::PROG_END],
            Class::SyncStream | Class::SyncEvent | Class::SyncContext => {
                &[names::PROG_SYNC_ENTER, names::PROG_SYNC_RETURN]
            }
            Class::EventRecord => &[names::PROG_EVENT_RECORD],
            Class::WaitEvent => &[names::PROG_WAIT_EVENT],
            Class::Alloc | Class::Free => &[names::PROG_MEMORY_ENTER, names::PROG_MEMORY_RETURN],
        }
    }

    /// The number that the program finds when it fires at `symbol`; `row` is the row's place in [`TABLE`].
    pub const fn cookie(&self, row: u16, symbol: Symbol) -> Cookie {
        let per_thread = if symbol.per_thread { FLAG_PER_THREAD } else { 0 };
        let blocking = if self.blocking { FLAG_BLOCKING } else { 0 };
        Cookie {
            row,
            stream: self.stream,
            bytes: self.bytes,
            object: self.object,
            class: self.class,
            flags: per_thread | blocking,
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
        blocking: false,
        required: true,
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

#[cfg(test)]
#[path = "table/tests.rs"]
mod tests;
