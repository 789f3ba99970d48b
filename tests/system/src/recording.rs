//! What a recording holds of one process's GPU work.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use wire::cuda::{CountedStep, Tally, Work};
use wire::{Header, Kind};
use zerocopy::FromBytes;

/// Magic, version, ABI, reserved.
const HEADER: usize = 16;

/// Steps and counts, in the order in which they were recorded.
#[derive(Debug, Default)]
pub struct GpuWork {
    /// Steps.
    pub steps: Vec<CountedStep>,
    /// Work that was told apart from steps.
    pub tallies: Vec<Tally>,
}

impl GpuWork {
    /// Reads those of one process. What is not whole yet is left out.
    pub fn read(path: &Path, pid: u32) -> Result<Self> {
        Ok(Self::read_all(path)?.remove(&pid).unwrap_or_default())
    }

    /// Those of every process.
    pub fn read_all(path: &Path) -> Result<BTreeMap<u32, Self>> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut rest = bytes.get(HEADER..).context("a recording has a header")?;
        let mut all = BTreeMap::<u32, Self>::new();
        while let Some((record, after)) = next(rest) {
            if let Ok((header, _)) = Header::read_from_prefix(record) {
                all.entry(header.tgid).or_default().take(&header, record);
            }
            rest = after;
        }
        Ok(all)
    }

    fn take(&mut self, header: &Header, record: &[u8]) {
        if header.kind == Kind::Step as u16 {
            self.steps.extend(CountedStep::read_from_prefix(record).map(|(step, _)| step));
        } else if header.kind == Kind::Tally as u16 {
            self.tallies.extend(Tally::read_from_prefix(record).map(|(tally, _)| tally));
        }
    }

    /// Everything that was counted, and launches that went into a capture.
    pub fn counted(&self) -> (Work, u64) {
        let told =
            self.steps.iter().map(|step| step.fresh).chain(self.tallies.iter().map(|tally| tally.work));
        let captured = self.tallies.iter().map(|tally| tally.captured).sum();
        (told.fold(Work::default(), sum), captured)
    }
}

fn sum(left: Work, right: Work) -> Work {
    Work {
        launches: left.launches + right.launches,
        graphs: left.graphs + right.graphs,
        copies: left.copies + right.copies,
        h2d_bytes: left.h2d_bytes + right.h2d_bytes,
        d2h_bytes: left.d2h_bytes + right.d2h_bytes,
        other_bytes: left.other_bytes + right.other_bytes,
    }
}

fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize)
}
