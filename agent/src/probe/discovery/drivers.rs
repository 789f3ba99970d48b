//! The CUDA driver files in use: opened once, attached to once a watched process maps them, let go when none has for
//! a while. A file that only unwatched processes map costs them nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
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

/// Most files that are attached to. Each takes some fifty probes, each probe a file descriptor and a while to remove,
/// and a process can map as many copies as it likes.
const MAX_ATTACHED: usize = 16;

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
    /// Drivers that are one too many.
    left_out: BTreeSet<FileId>,
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
        let mapped = scanner.driver_files();
        let used = |id: &FileId| mapped[id].iter().any(|(pid, _)| watched.contains(pid));
        let mut wanted: Vec<FileId> = mapped.keys().copied().filter(used).collect();
        wanted.retain(|id| self.is_driver(*id));
        self.left_out = too_many(&wanted, |id| attacher.has(id), attacher.libraries());
        for id in wanted {
            if let Some(Entry { found: Found::Driver(driver), watched, .. }) = self.files.get_mut(&id) {
                *watched = now;
                if !self.left_out.contains(&id) {
                    attacher.attach(driver);
                }
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
        self.files.iter().filter_map(|(id, entry)| match &entry.found {
            Found::Failed { path, reason } => Some(unused(path, State::Broken, reason)),
            Found::Driver(driver) if self.left_out.contains(id) => {
                let reason =
                    format!("{MAX_ATTACHED} other driver files are attached to, and that is the limit");
                Some(unused(&driver.path, State::Skipped, &reason))
            }
            _ => None,
        })
    }
}

/// Which of these would be more than can be attached to, where some are attached to already.
fn too_many(wanted: &[FileId], attached: impl Fn(FileId) -> bool, mut count: usize) -> BTreeSet<FileId> {
    let mut is_one_too_many = |id: &FileId| {
        let is_new = !attached(*id);
        count += usize::from(is_new);
        is_new && count > MAX_ATTACHED
    };
    wanted.iter().copied().filter(|id| is_one_too_many(id)).collect()
}

fn unused(path: &Path, state: State, reason: &str) -> ProbeVerdict {
    ProbeVerdict {
        program: "cuda".to_owned(),
        target: path.to_string_lossy().into_owned(),
        state,
        reason: Some(format!("{reason}; without it this process's GPU work is not seen")),
        cost_class: None,
        attached: 0,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_attached_to_stays_and_new_files_have_what_room_is_left() {
        let id = |inode| FileId { device: 1, inode };
        let all: Vec<FileId> = (0..20).map(id).collect();
        let last_two = |id: FileId| id.inode >= 18;
        assert_eq!(too_many(&all, |_| false, 0), all[MAX_ATTACHED..].iter().copied().collect());
        // Room for as many as there is with the two, however they are ordered.
        assert_eq!(too_many(&all, last_two, 2), all[MAX_ATTACHED - 2..18].iter().copied().collect());
        // Others, which nobody maps just now, count until they are let go.
        assert_eq!(too_many(&all[..1], |_| false, MAX_ATTACHED), [id(0)].into());
        assert!(too_many(&all[..MAX_ATTACHED], |_| false, 0).is_empty());
    }
}
