//! The recording of a live run: when it cannot go on it stops, is counted and said, and the agent goes on.

use std::{
    fs::File,
    io::{self, BufWriter},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::failure::chain;
use crate::{
    export::snapshot::{Recording, RecordingState},
    source::recording::{RecordingError, Writer},
};

/// Bytes gathered before they go to the file; at most one interval of the clock's worth is lost to `kill -9`.
const BUFFER: usize = 256 * 1024;

/// Writes what it is given, or nothing.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    writer: Option<Writer<BufWriter<File>>>,
    state: Recording,
}

impl Recorder {
    /// Creates the file, replacing what is there.
    pub(super) fn create(path: PathBuf, max_bytes: u64) -> Result<Self, RecordingError> {
        // Without text of prompts, but with paths, addresses and names of models: not for everybody.
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        let file = BufWriter::with_capacity(BUFFER, file);
        let mut writer = Writer::new(file, max_bytes)?;
        writer.flush()?;
        let state = Recording { state: RecordingState::Recording, path: Some(path), ..Recording::default() };
        Ok(Self { writer: Some(writer), state })
    }

    /// Appends one record.
    pub(super) fn write(&mut self, record: &[u8]) {
        self.try_with(|writer| writer.write(record));
    }

    /// Hands what is buffered to the operating system.
    pub(super) fn flush(&mut self) {
        self.try_with(Writer::flush);
    }

    /// How it stands.
    pub(super) fn state(&self) -> Recording {
        let mut state = self.state.clone();
        if let Some(writer) = &self.writer {
            (state.bytes, state.records) = (writer.bytes(), writer.records());
        }
        state
    }

    fn try_with(&mut self, work: impl FnOnce(&mut Writer<BufWriter<File>>) -> Result<(), RecordingError>) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = work(writer)
        {
            self.stop(error);
        }
    }

    fn stop(&mut self, error: RecordingError) {
        self.state = self.state();
        let full = matches!(error, RecordingError::Full { .. });
        self.state.state = if full { RecordingState::Full } else { RecordingState::Failed };
        self.state.errors += u64::from(!full);
        let reason = chain(&anyhow::Error::new(error));
        let path = self.state.path.as_deref().unwrap_or(Path::new("")).display();
        tracing::error!(%path, "the recording has stopped, the agent goes on: {reason}");
        self.state.reason = Some(reason);
        // What is buffered is worth keeping when the file is merely full; on an error this can only fail again.
        if let Some(mut writer) = self.writer.take() {
            let _: Result<(), RecordingError> = writer.flush();
        }
    }
}

/// The file could not be made.
pub(super) fn cannot_create(path: &Path, error: RecordingError) -> anyhow::Error {
    let error = match error {
        RecordingError::Io(source) => anyhow::Error::new::<io::Error>(source),
        other => other.into(),
    };
    error.context(format!("cannot write the recording {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_stops_the_recording_and_nothing_else() {
        let file = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        // The header fits the buffer; the error comes with the first flush.
        let writer = Writer::new(BufWriter::new(file), u64::MAX).unwrap();
        let mut recorder = Recorder { writer: Some(writer), state: Recording::default() };
        recorder.write(b"record");
        recorder.flush();
        recorder.write(b"record");
        let state = recorder.state();
        assert_eq!((state.state, state.errors, state.records), (RecordingState::Failed, 1, 1));
        assert!(state.reason.unwrap().contains("No space left"));
    }

    #[test]
    fn the_size_limit_stops_it_with_a_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.slrec");
        let mut recorder = Recorder::create(path.clone(), 40).unwrap();
        for _ in 0..3 {
            recorder.write(b"0123456789");
        }
        let state = recorder.state();
        assert_eq!((state.state, state.errors, state.records, state.bytes), (RecordingState::Full, 0, 1, 30));
        assert_eq!(std::fs::metadata(path).unwrap().len(), 30);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_named() {
        let path = Path::new("/nonexistent/r.slrec");
        let error = Recorder::create(path.into(), 40).unwrap_err();
        let message = format!("{:#}", cannot_create(path, error));
        assert!(
            message.starts_with("cannot write the recording /nonexistent/r.slrec: No such file"),
            "{message}"
        );
    }
}
