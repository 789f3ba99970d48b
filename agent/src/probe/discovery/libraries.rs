//! The library files of one kind that are in use: opened once, attached to once a watched process maps them, let go when none has for
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
        targets::{FileId, Kind, Library, Mapping, is_driver_name, open_library},
        verdict::{ProbeVerdict, State},
    },
    scan::Scanner,
};

/// A server that is restarted maps the same file again: probes stay this long, since removing them is slow.
const KEEP_UNUSED: Duration = Duration::from_secs(30);
/// A file that could not be opened is tried again after this time.
const RETRY: Duration = Duration::from_secs(10);

/// Most files that are attached to. Each takes some fifty probes, each probe a file descriptor and a while to remove,
/// and a process can map as many copies as it likes.
const MAX_ATTACHED: usize = 16;

/// Most files that are opened on account of one process, each a file descriptor for as long as it is mapped.
const MAX_OF_PROCESS: usize = 64;

#[derive(Debug)]
enum Found {
    /// One of the kind.
    Library(Box<Library>),
    /// Has the name of one but none of its functions.
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

/// Every file with such a name that some process maps.
#[derive(Debug)]
pub(super) struct Libraries {
    kind: Kind,
    files: BTreeMap<FileId, Entry>,
    /// Files that are one too many.
    left_out: BTreeSet<FileId>,
    /// Of processes that map too many, one file that was not opened.
    unopened: BTreeMap<u32, PathBuf>,
}

/// How many files each process maps.
#[derive(Debug, Default)]
struct Shares(BTreeMap<u32, usize>);

impl Shares {
    /// One more; whether that is within the process's share.
    fn take(&mut self, pid: u32) -> bool {
        let taken = self.0.entry(pid).or_default();
        *taken += 1;
        *taken <= MAX_OF_PROCESS
    }
}

impl Libraries {
    /// None yet.
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, files: BTreeMap::new(), left_out: BTreeSet::new(), unopened: BTreeMap::new() }
    }

    /// The file is one of the kind.
    pub(super) fn is_one(&self, id: FileId) -> bool {
        self.files.get(&id).is_some_and(|entry| matches!(entry.found, Found::Library(_)))
    }

    /// The library behind a file.
    pub(super) fn get(&self, id: FileId) -> Option<&Library> {
        match &self.files.get(&id)?.found {
            Found::Library(library) => Some(library),
            _ => None,
        }
    }

    /// Opens files not seen before, as far as one of these processes maps them.
    pub(super) fn identify(&mut self, scanner: &Scanner, of: impl Fn(u32) -> bool, now: Instant) {
        self.unopened.clear();
        let mut shares = Shares::default();
        for (id, mut users) in scanner.files(self.kind) {
            let is_known = self.files.contains_key(&id);
            users.retain(|(pid, _)| of(*pid));
            users.retain(|(pid, mapping)| {
                let is_within = shares.take(*pid) || is_known;
                if !is_within {
                    self.unopened.entry(*pid).or_insert_with(|| mapping.path.clone());
                }
                is_within
            });
            if users.is_empty() {
                continue;
            }
            if let Some(entry) = self.files.get_mut(&id) {
                entry.mapped = now;
                if !matches!(entry.found, Found::Failed { .. }) || now < entry.at + RETRY {
                    continue;
                }
            }
            let found = open(self.kind, scanner, &users);
            self.files.insert(id, Entry { found, at: now, mapped: now, watched: now });
        }
    }

    /// Attaches to the files that these processes map, and detaches from what none has mapped for long.
    pub(super) fn attach(
        &mut self,
        scanner: &Scanner,
        watched: &BTreeSet<u32>,
        attacher: &mut Attacher,
        now: Instant,
    ) {
        let mapped = scanner.files(self.kind);
        let used = |id: &FileId| mapped[id].iter().any(|(pid, _)| watched.contains(pid));
        let mut wanted: Vec<FileId> = mapped.keys().copied().filter(used).collect();
        wanted.retain(|id| self.is_one(*id));
        self.left_out = too_many(&wanted, |id| attacher.has(id), attacher.libraries(self.kind));
        for id in wanted {
            if let Some(Entry { found: Found::Library(library), watched, .. }) = self.files.get_mut(&id) {
                *watched = now;
                if !self.left_out.contains(&id) {
                    attacher.attach(library);
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
        let unopened = self.unopened.iter().map(|(pid, path)| {
            let reason = format!("process {pid} maps more than {MAX_OF_PROCESS} files of its kind");
            unused(self.kind, path, State::Skipped, &reason)
        });
        let failed = self.files.iter().filter_map(|(id, entry)| match &entry.found {
            Found::Failed { path, reason } => Some(unused(self.kind, path, State::Broken, reason)),
            Found::Library(library) if self.left_out.contains(id) => {
                let reason =
                    format!("{MAX_ATTACHED} other files of its kind are attached to, and that is the limit");
                Some(unused(self.kind, &library.path, State::Skipped, &reason))
            }
            _ => None,
        });
        failed.chain(unopened)
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

fn unused(kind: Kind, path: &Path, state: State, reason: &str) -> ProbeVerdict {
    let (program, loses) = match kind {
        Kind::Cuda => ("cuda", "this process's GPU work is not seen"),
        Kind::Runtime => ("cuda", "GPU work of processes whose driver cannot be attached to is not seen"),
        Kind::Tls => ("tls", "requests over TLS that go through it are not seen"),
    };
    ProbeVerdict {
        program: program.to_owned(),
        target: path.to_string_lossy().into_owned(),
        state,
        reason: Some(format!("{reason}; without it {loses}")),
        cost_class: None,
        attached: 0,
    }
}

/// Opens the file through the first of its users that is still there.
fn open(kind: Kind, scanner: &Scanner, users: &[(u32, &Mapping)]) -> Found {
    let mut failure = None;
    for (pid, mapping) in users {
        match open_library(kind, scanner.procfs(), scanner.view(*pid), mapping) {
            Ok(Some(library)) => return Found::Library(Box::new(library)),
            Ok(None) => return Found::Other,
            // Nobody said that it is one.
            Err(_) if kind == Kind::Cuda && !is_driver_name(&mapping.path) => return Found::Other,
            Err(error) => failure = Some(Found::Failed { path: mapping.path.clone(), reason: chain(&error) }),
        }
    }
    failure.unwrap_or(Found::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_share_and_takes_none_of_others() {
        let mut shares = Shares::default();
        let of_one = (0..100).filter(|_| shares.take(7)).count();
        assert_eq!((of_one, shares.take(8)), (MAX_OF_PROCESS, true));
    }

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
