//! The CUDA driver files in use: opened once, attached once, let go when nobody has mapped them for a while.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{
    super::{
        attach::Attacher,
        error::chain,
        targets::{FileId, Mapping, open_driver},
        verdict::{ProbeVerdict, State},
    },
    scan::Scanner,
};

/// A server that is restarted maps the same file again: probes stay this long, since removing them is slow.
const KEEP_UNUSED: Duration = Duration::from_secs(30);
/// A file that could not be opened is tried again after this time.
const RETRY: Duration = Duration::from_secs(10);

#[derive(Debug)]
enum Found {
    /// A driver; attached.
    Driver,
    /// Has the name of a driver but none of its functions.
    Other,
    /// Could not be opened or read.
    Failed { path: PathBuf, reason: String },
}

#[derive(Debug)]
struct Entry {
    found: Found,
    /// When it was opened, or tried to.
    at: Instant,
    /// When some process was last seen to map it.
    used: Instant,
}

/// Every file with a driver's name that some process maps.
#[derive(Debug, Default)]
pub(super) struct Drivers {
    files: BTreeMap<FileId, Entry>,
}

impl Drivers {
    /// The file is a driver and attached.
    pub(super) fn is_driver(&self, id: FileId) -> bool {
        self.files.get(&id).is_some_and(|entry| matches!(entry.found, Found::Driver))
    }

    /// Attaches to new files, and detaches from those unused for long.
    pub(super) fn update(&mut self, scanner: &Scanner, attacher: &mut Attacher, now: Instant) {
        for (id, users) in scanner.driver_files() {
            if let Some(entry) = self.files.get_mut(&id) {
                entry.used = now;
                if !matches!(entry.found, Found::Failed { .. }) || now < entry.at + RETRY {
                    continue;
                }
            }
            let found = open(scanner, attacher, &users);
            self.files.insert(id, Entry { found, at: now, used: now });
        }
        self.files.retain(|id, entry| {
            let keep = now < entry.used + KEEP_UNUSED;
            if !keep {
                attacher.detach(*id);
            }
            keep
        });
    }

    /// Verdicts on files that could not be used.
    pub(super) fn failures(&self) -> impl Iterator<Item = ProbeVerdict> + '_ {
        self.files.values().filter_map(|entry| {
            let Found::Failed { path, reason } = &entry.found else { return None };
            Some(ProbeVerdict {
                program: "cuda".to_owned(),
                target: path.to_string_lossy().into_owned(),
                state: State::Broken,
                reason: Some(format!("{reason}; without it this process's GPU work is not seen")),
                cost_class: None,
                attached: 0,
            })
        })
    }
}

/// Opens the file through the first of its users that is still there.
fn open(scanner: &Scanner, attacher: &mut Attacher, users: &[(u32, &Mapping)]) -> Found {
    let mut failure = None;
    for (pid, mapping) in users {
        match open_driver(scanner.procfs(), *pid, mapping) {
            Ok(Some(driver)) => {
                attacher.attach(&driver);
                return Found::Driver;
            }
            Ok(None) => return Found::Other,
            Err(error) => failure = Some(Found::Failed { path: mapping.path.clone(), reason: chain(&error) }),
        }
    }
    failure.unwrap_or(Found::Other)
}
