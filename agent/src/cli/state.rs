//! The file that keeps what is usual over a restart: replaced whole or not at all.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

use thiserror::Error;

use super::failure::chain;
use crate::diagnose::SavedState;

/// Why a state cannot be read or written.
#[derive(Debug, Error)]
pub(super) enum StateError {
    /// The file, or the folder, does not allow it.
    #[error("cannot access {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no state.
    #[error("{path} is not a state file")]
    Json {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

/// What an earlier run left; `None` when there was none. One that cannot be read is put aside, so that the next write
/// does not destroy it.
pub(super) fn read(path: &Path) -> Result<Option<SavedState>, StateError> {
    let io = |source| StateError::Io { path: path.to_owned(), source };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    serde_json::from_str(&text).map(Some).map_err(|source| {
        // The reading has failed already: that is what is told.
        let _ = put_aside(path);
        StateError::Json { path: path.to_owned(), source }
    })
}

/// Keeps a file that cannot be used under another name.
pub(super) fn put_aside(path: &Path) -> io::Result<()> {
    fs::rename(path, beside(path, "unreadable"))
}

/// Writes it beside the file, and puts it in the file's place.
pub(super) fn write(path: &Path, state: &SavedState) -> Result<(), StateError> {
    let whole = beside(path, "new");
    let io = |source| StateError::Io { path: path.to_owned(), source };
    // Names of services and models: not for everybody.
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&whole).map_err(io)?;
    let mut out = BufWriter::new(file);
    serde_json::to_writer(&mut out, state).map_err(|source| io(source.into()))?;
    out.flush().map_err(io)?;
    out.get_ref().sync_all().map_err(io)?;
    fs::rename(&whole, path).map_err(io)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// Time between two writes.
const EVERY_NS: u64 = 300_000_000_000;

/// Keeps the file of a run up to date.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    path: Option<PathBuf>,
    next_ns: u64,
    writer: Option<JoinHandle<()>>,
}

impl Keeper {
    /// For this file, if any, and what is in it. What cannot be used of it is said, and no reason not to start.
    pub(super) fn open(path: Option<&Path>) -> (Self, Option<SavedState>) {
        let state = path.and_then(|path| {
            read(path)
                .inspect_err(|error| tracing::warn!(%error, "the baselines of earlier runs are not used"))
                .ok()
                .flatten()
        });
        (Self { path: path.map(Path::to_owned), ..Self::default() }, state)
    }

    /// What was in the file is of another version: it stays under another name.
    pub(super) fn refuse(&self) {
        let Some(path) = &self.path else { return };
        tracing::warn!(path = %path.display(), "the baselines there are of another version and are not used");
        if let Err(error) = put_aside(path) {
            tracing::warn!(%error, "cannot put them aside");
        }
    }

    /// Writes it when it is time, on a thread of its own: nothing waits for a disk.
    pub(super) fn keep(&mut self, now_ns: u64, state: impl FnOnce() -> SavedState) {
        let Some(path) = self.path.clone() else { return };
        if self.next_ns == 0 {
            self.next_ns = now_ns.saturating_add(EVERY_NS);
        }
        let is_writing = self.writer.as_ref().is_some_and(|writer| !writer.is_finished());
        if now_ns < self.next_ns || is_writing {
            return;
        }
        self.next_ns = now_ns.saturating_add(EVERY_NS);
        let state = state();
        let written = thread::Builder::new().name("state".into()).spawn(move || say(write(&path, &state)));
        self.writer = written.inspect_err(|error| tracing::warn!(%error, "cannot write baselines")).ok();
    }

    /// Writes it for the last time.
    pub(super) fn finish(mut self, state: impl FnOnce() -> SavedState) {
        // Both write to one file.
        let _ = self.writer.take().map(JoinHandle::join);
        if let Some(path) = &self.path {
            say(write(path, &state()));
        }
    }
}

fn say(written: Result<(), StateError>) {
    if let Err(error) = written {
        let error = chain(&anyhow::Error::new(error));
        tracing::warn!(error, "baselines are not kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_replaced_whole_and_what_cannot_be_read_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        assert_eq!(read(&path).unwrap(), None);
        let state = SavedState { version: 1, subjects: vec![("svc".into(), None, [].into())] };
        write(&path, &state).unwrap();
        assert_eq!(read(&path).unwrap(), Some(state));
        fs::write(&path, "{half").unwrap();
        assert!(matches!(read(&path), Err(StateError::Json { .. })));
        assert_eq!(fs::read_to_string(folder.path().join("state.json.unreadable")).unwrap(), "{half");
        assert_eq!(read(&path).unwrap(), None);
    }
}
