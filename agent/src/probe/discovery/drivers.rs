//! The CUDA driver files in use: opened once, attached to once a watched process maps them, let go when none has for
//! a while. A file that only unwatched processes map costs them nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{
    super::{
        attach::Attacher,
        error::chain,
        targets::{Driver, FileId, Mapping, open_driver},
        verdict::{ProbeVerdict, State},
    },
    scan::Scanner,
};
use crate::source::procfs::ProcFs;

/// A server that is restarted maps the same file again: probes stay this long, since removing them is slow.
const KEEP_UNUSED: Duration = Duration::from_secs(30);
/// A file that could not be opened is tried again after this time.
const RETRY: Duration = Duration::from_secs(10);

#[derive(Debug)]
enum Found {
    /// A driver.
    Driver(Box<Driver>),
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
    mapped: Instant,
    /// When some watched process was.
    watched: Instant,
}

/// Every file with a driver's name that some process maps.
#[derive(Debug, Default)]
pub(super) struct Drivers {
    files: BTreeMap<FileId, Entry>,
}

impl Drivers {
    /// The file is a CUDA driver.
    pub(super) fn is_driver(&self, id: FileId) -> bool {
        self.files.get(&id).is_some_and(|entry| matches!(entry.found, Found::Driver(_)))
    }

    /// Opens files not seen before, and forgets those that nobody maps.
    pub(super) fn identify(&mut self, scanner: &Scanner, now: Instant) {
        for (id, users) in scanner.driver_files() {
            if let Some(entry) = self.files.get_mut(&id) {
                entry.mapped = now;
                if !matches!(entry.found, Found::Failed { .. }) || now < entry.at + RETRY {
                    continue;
                }
            }
            let found = open(scanner.procfs(), &users);
            self.files.insert(id, Entry { found, at: now, mapped: now, watched: now });
        }
    }

    /// Attaches to the drivers that these processes map, and detaches from what none has mapped for long.
    pub(super) fn attach(
        &mut self,
        scanner: &Scanner,
        watched: &BTreeSet<u32>,
        attacher: &mut Attacher,
        now: Instant,
    ) {
        for (id, users) in scanner.driver_files() {
            if !users.iter().any(|(pid, _)| watched.contains(pid)) {
                continue;
            }
            if let Some(Entry { found: Found::Driver(driver), watched, .. }) = self.files.get_mut(&id) {
                *watched = now;
                attacher.attach(driver);
            }
        }
        self.files.retain(|id, entry| {
            if now >= entry.watched + KEEP_UNUSED {
                attacher.detach(*id);
            }
            now < entry.mapped + KEEP_UNUSED
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
fn open(procfs: &ProcFs, users: &[(u32, &Mapping)]) -> Found {
    let mut failure = None;
    for (pid, mapping) in users {
        match open_driver(procfs, *pid, mapping) {
            Ok(Some(driver)) => return Found::Driver(Box::new(driver)),
            Ok(None) => return Found::Other,
            Err(error) => failure = Some(Found::Failed { path: mapping.path.clone(), reason: chain(&error) }),
        }
    }
    failure.unwrap_or(Found::Other)
}
