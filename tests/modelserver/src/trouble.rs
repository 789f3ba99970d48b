//! What goes wrong while the server runs: words in a file that whoever acts an incident writes, and all processes of the
//! server map (`--trouble FILE`). All are 0 while nothing is wrong.

use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// A word, by its place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Word {
    /// The event loop is blocked by each request before its hand-off, microseconds.
    BlockUs,
    /// The event loop is blocked by each token between its arrival from the engine and its write, microseconds.
    DetokUs,
    /// The engine is blocked before each step, microseconds.
    GapUs,
    /// A step's work on the GPU takes so many percent longer.
    SlowerPercent,
    /// The same on the second GPU of several only.
    RankSlowerPercent,
    /// Each step allocates so many bytes, and frees them.
    AllocBytes,
    /// Each step loads a module.
    Modules,
    /// So many percent of the requests are answered with 500.
    FailPercent,
    /// Running requests hold at most so many tokens together; the one that came last is preempted when they need more.
    KvTokens,
}

/// Words in the file.
const WORDS: usize = 9;

/// The mapped words; they live as long as the process.
struct Words(NonNull<[AtomicU64; WORDS]>);

// SAFETY: the words are atomic and the mapping is never taken away.
unsafe impl Send for Words {}
// SAFETY: likewise.
unsafe impl Sync for Words {}

static MAPPED: OnceLock<Words> = OnceLock::new();

/// Maps the file. Without one, nothing goes wrong.
pub(crate) fn open(path: Option<&Path>) -> io::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let file = File::open(path)?;
    let length = size_of::<[AtomicU64; WORDS]>();
    if file.metadata()?.len() < length as u64 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file of troubles is too short"));
    }
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let base = unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
    let words = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
    drop(MAPPED.set(Words(words)));
    Ok(())
}

/// What the word says now.
pub(crate) fn now(word: Word) -> u64 {
    // SAFETY: mapped for the life of the process, and only read.
    MAPPED.get().map_or(0, |words| unsafe { words.0.as_ref() }[word as usize].load(Ordering::Relaxed))
}

/// Most tokens that running requests hold together; 0 is no limit.
pub(crate) fn held() -> u32 {
    u32::try_from(now(Word::KvTokens)).unwrap_or(u32::MAX)
}

/// Waits as long as the word says, microseconds.
pub(crate) fn block(word: Word) {
    let us = now(word);
    if us > 0 {
        std::thread::sleep(Duration::from_micros(us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_every_word() {
        assert_eq!(Word::value_variants().len(), WORDS);
    }
}
