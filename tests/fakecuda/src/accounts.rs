//! Truth about memory: calls by kind, and for each failure what was free and the largest hole at that instant.

use std::fmt::Write as _;
use std::sync::Mutex;

use crate::clock;
use crate::error::Error;
use crate::functions::Func;
use crate::handles::lock;

/// Failures that are kept with their numbers; beyond, they are only counted.
const KEPT: usize = 1024;

/// Kinds of memory, as an observer of the calls tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Device,
    /// Stream-ordered allocations.
    Pool,
    /// `cuMemCreate`.
    Vmm,
    /// Arrays.
    Array,
    /// `cuMemAllocManaged`.
    Managed,
    /// Host memory.
    Host,
}

impl Kind {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Device, "device"),
        (Self::Pool, "pool"),
        (Self::Vmm, "vmm"),
        (Self::Array, "array"),
        (Self::Managed, "managed"),
        (Self::Host, "host"),
    ];
}

#[derive(Clone, Copy, Default)]
struct Account {
    allocs: u64,
    alloc_bytes: u64,
    frees: u64,
    freed_bytes: u64,
}

struct Failure {
    func: Func,
    bytes: u64,
    free: u64,
    hole: u64,
    at_ns: u64,
}

struct Accounts {
    by_kind: [Account; Kind::ALL.len()],
    failures: Vec<Failure>,
    failed: u64,
}

static ACCOUNTS: Mutex<Accounts> = Mutex::new(Accounts {
    by_kind: [Account { allocs: 0, alloc_bytes: 0, frees: 0, freed_bytes: 0 }; Kind::ALL.len()],
    failures: Vec::new(),
    failed: 0,
});

/// A call allocated so much.
pub(crate) fn allocated(kind: Kind, bytes: u64) {
    let account = &mut lock(&ACCOUNTS).by_kind[kind as usize];
    account.allocs += 1;
    account.alloc_bytes += bytes;
}

/// A call gave memory back.
pub(crate) fn freed(kind: Kind, bytes: u64) {
    let account = &mut lock(&ACCOUNTS).by_kind[kind as usize];
    account.frees += 1;
    account.freed_bytes += bytes;
}

/// A call gave up a handle, and with it nothing.
pub(crate) fn let_go(kind: Kind) {
    lock(&ACCOUNTS).by_kind[kind as usize].frees += 1;
}

/// Memory went back without a call of its own.
pub(crate) fn vanished(kind: Kind, bytes: u64) {
    lock(&ACCOUNTS).by_kind[kind as usize].freed_bytes += bytes;
}

/// There was no hole for it: what was free, and the largest hole. The caller holds the heap lock.
pub(crate) fn no_room(func: Func, bytes: u64, (free, hole): (u64, u64)) -> Error {
    let mut accounts = lock(&ACCOUNTS);
    accounts.failed += 1;
    if accounts.failures.len() < KEPT {
        accounts.failures.push(Failure { func, bytes, free, hole, at_ns: clock::now() });
    }
    Error::OUT_OF_MEMORY
}

/// Allocations and their bytes, and frees, of all kinds.
pub(crate) fn totals() -> [(&'static str, u64); 3] {
    let by_kind = lock(&ACCOUNTS).by_kind;
    let sum = |of: fn(&Account) -> u64| by_kind.iter().map(of).sum();
    [("allocs", sum(|a| a.allocs)), ("alloc_bytes", sum(|a| a.alloc_bytes)), ("frees", sum(|a| a.frees))]
}

/// Two JSON fields: `memory` by kind, and `no_room`, a list of failures.
pub(crate) fn to_json() -> String {
    let accounts = lock(&ACCOUNTS);
    let kinds: Vec<String> = Kind::ALL
        .iter()
        .map(|&(kind, name)| {
            let Account { allocs, alloc_bytes, frees, freed_bytes } = accounts.by_kind[kind as usize];
            format!(
                "\"{name}\":{{\"allocs\":{allocs},\"alloc_bytes\":{alloc_bytes},\"frees\":{frees},\
                 \"freed_bytes\":{freed_bytes}}}"
            )
        })
        .collect();
    let mut out =
        format!("\"memory\":{{{}}},\"no_room_total\":{},\"no_room\":[", kinds.join(","), accounts.failed);
    for (n, Failure { func, bytes, free, hole, at_ns }) in accounts.failures.iter().enumerate() {
        let comma = if n > 0 { "," } else { "" };
        let name = func.name();
        let _ = write!(
            out,
            "{comma}{{\"function\":\"{name}\",\"bytes\":{bytes},\"free\":{free},\"hole\":{hole},\"t_ns\":{at_ns}}}"
        );
    }
    out.push(']');
    out
}
