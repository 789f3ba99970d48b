//! Truth: exact counts of what the process asked for, to compare an observer with.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::accounts;
use crate::error::Error;
use crate::functions::Func;
use crate::handles::lock;
use crate::history;
use crate::timeline::{CopyKind, Op};

/// Counters of one process.
struct Truth {
    calls: [AtomicU64; Func::ALL.len()],
    threads: AtomicU64,
    launches: AtomicU64,
    captured_launches: AtomicU64,
    graph_launches: AtomicU64,
    graph_kernels: AtomicU64,
    copies: [AtomicU64; CopyKind::ALL.len()],
    copy_bytes: [AtomicU64; CopyKind::ALL.len()],
    captured_copies: AtomicU64,
    captured_graphs: AtomicU64,
    memsets: AtomicU64,
    syncs: AtomicU64,
    event_records: AtomicU64,
    failures: Mutex<BTreeMap<(Func, Error), u64>>,
}

static TRUTH: Truth = Truth {
    calls: [const { AtomicU64::new(0) }; _],
    threads: AtomicU64::new(0),
    launches: AtomicU64::new(0),
    captured_launches: AtomicU64::new(0),
    graph_launches: AtomicU64::new(0),
    graph_kernels: AtomicU64::new(0),
    copies: [const { AtomicU64::new(0) }; _],
    copy_bytes: [const { AtomicU64::new(0) }; _],
    captured_copies: AtomicU64::new(0),
    captured_graphs: AtomicU64::new(0),
    memsets: AtomicU64::new(0),
    syncs: AtomicU64::new(0),
    event_records: AtomicU64::new(0),
    failures: Mutex::new(BTreeMap::new()),
};

/// A call came in, whatever becomes of it.
#[inline]
pub(crate) fn called(func: Func) {
    thread_local!(static COUNTED: Cell<bool> = const { Cell::new(false) });
    TRUTH.calls[func.index()].fetch_add(1, Relaxed);
    if !COUNTED.replace(true) {
        TRUTH.threads.fetch_add(1, Relaxed);
    }
}

/// The call returns an error; "not ready" is an answer and not a failure.
#[cold]
pub(crate) fn failed(func: Func, error: Error) {
    if error != Error::NOT_READY {
        *lock(&TRUTH.failures).entry((func, error)).or_insert(0) += 1;
    }
}

/// The operation was given to the device.
pub(crate) fn executed(op: Op) {
    match op {
        Op::Kernel { .. } => TRUTH.launches.fetch_add(1, Relaxed),
        Op::Graph { kernels, .. } => {
            TRUTH.graph_kernels.fetch_add(kernels, Relaxed);
            TRUTH.graph_launches.fetch_add(1, Relaxed)
        }
        Op::Memset { .. } => TRUTH.memsets.fetch_add(1, Relaxed),
        Op::Copy { kind, bytes } => {
            TRUTH.copy_bytes[kind as usize].fetch_add(bytes, Relaxed);
            TRUTH.copies[kind as usize].fetch_add(1, Relaxed)
        }
    };
}

/// The operation became part of a graph and was not run.
pub(crate) fn captured(op: Op) {
    match op {
        Op::Kernel { .. } => TRUTH.captured_launches.fetch_add(1, Relaxed),
        Op::Copy { .. } => TRUTH.captured_copies.fetch_add(1, Relaxed),
        // A graph within a graph: its kernels are counted each time the outer one runs.
        Op::Graph { .. } => TRUTH.captured_graphs.fetch_add(1, Relaxed),
        Op::Memset { .. } => 0,
    };
}

/// A wait for a stream, an event or a context ended.
pub(crate) fn synchronized() {
    TRUTH.syncs.fetch_add(1, Relaxed);
    history::waited();
}

pub(crate) fn recorded_event() {
    TRUTH.event_records.fetch_add(1, Relaxed);
}

/// Writes the counters to the file that `FAKECUDA_TRUTH` names, if it names one.
pub(crate) fn write_at_exit() {
    use std::io::Write as _;
    let Ok(path) = std::env::var("FAKECUDA_TRUTH") else { return };
    let path = path.replace("%p", &std::process::id().to_string());
    if let Err(e) = write(Path::new(&path)) {
        let _ = writeln!(io::stderr(), "fakecuda: cannot write the truth to {path}: {e}");
    }
}

/// Writes the counters so far as JSON to `path`; null means the file that `FAKECUDA_TRUTH` names. Returns 0, or 1
/// when it cannot.
///
/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fakecuda_dump_truth(path: *const c_char) -> u32 {
    if path.is_null() {
        write_at_exit();
        return 0;
    }
    // SAFETY: the caller promises a C string.
    let path = unsafe { CStr::from_ptr(path) };
    path.to_str().map_err(io::Error::other).and_then(|p| write(Path::new(p))).is_err().into()
}

/// Readers never see half a file.
fn write(path: &Path) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}", std::process::id()));
    std::fs::write(&part, TRUTH.to_json())?;
    std::fs::rename(&part, path)
}

impl Truth {
    fn to_json(&self) -> String {
        let mut out = format!("{{\"pid\":{}", std::process::id());
        for (name, value) in self.scalars() {
            let _ = write!(out, ",\"{name}\":{}", value.load(Relaxed));
        }
        for (name, value) in accounts::totals() {
            let _ = write!(out, ",\"{name}\":{value}");
        }
        let copies = CopyKind::ALL.iter().map(|&kind| {
            let (count, bytes) = (&self.copies[kind as usize], &self.copy_bytes[kind as usize]);
            let (count, bytes) = (count.load(Relaxed), bytes.load(Relaxed));
            (kind.name(), format!("{{\"count\":{count},\"bytes\":{bytes}}}"))
        });
        let called = Func::ALL.iter().map(|f| (f.name(), self.calls[f.index()].load(Relaxed)));
        let called = called.filter(|&(_, n)| n > 0).map(|(name, n)| (name, n.to_string()));
        let _ = write!(out, ",\"copies\":{},\"calls\":{}", object(copies), object(called));
        let _ = write!(out, ",{},\"failures\":{}}}", accounts::to_json(), self.failures_json());
        out.push('\n');
        out
    }

    fn scalars(&self) -> [(&'static str, &AtomicU64); 10] {
        [
            ("threads", &self.threads),
            ("launches", &self.launches),
            ("captured_launches", &self.captured_launches),
            ("graph_launches", &self.graph_launches),
            ("graph_kernels", &self.graph_kernels),
            ("captured_copies", &self.captured_copies),
            ("captured_graphs", &self.captured_graphs),
            ("memsets", &self.memsets),
            ("syncs", &self.syncs),
            ("event_records", &self.event_records),
        ]
    }

    fn failures_json(&self) -> String {
        let mut by_function: BTreeMap<Func, Vec<(String, String)>> = BTreeMap::new();
        for (&(func, error), n) in &*lock(&self.failures) {
            by_function.entry(func).or_default().push((error.name(), n.to_string()));
        }
        object(by_function.into_iter().map(|(func, errors)| (func.name(), object(errors))))
    }
}

/// A JSON object. Names here are identifiers and values are JSON already, so nothing needs escaping.
fn object<N: std::fmt::Display>(fields: impl IntoIterator<Item = (N, String)>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}
