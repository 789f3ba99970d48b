//! What goes wrong in a model server while it runs: words in a file that it maps.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// What can go wrong, by its place in the file; `modelserver`'s words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
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

const WORDS: u64 = 9;

/// The file.
#[derive(Debug)]
pub struct Trouble {
    file: File,
    path: PathBuf,
}

impl Trouble {
    /// A file in which nothing is wrong.
    pub fn new(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
        file.set_len(WORDS * 8)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// For the server's `--trouble`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets it go wrong by so much from now on; 0 ends it.
    pub fn set(&self, what: Wrong, value: u64) -> Result<()> {
        Ok(self.file.write_all_at(&value.to_ne_bytes(), what as u64 * 8)?)
    }
}
