//! [5] A request's stamps to a partition of its wall time, and both to its record.
//!
//! The stages add up to e2e to the nanosecond: the stamps are put in order and the stages are the gaps between
//! them. Where the forward is not known, everything between read and the last write is `unattributed`, and bounds are
//! given beside it; a guess never stands in a stage.

mod partition;
mod report;

pub use partition::{Partition, Stage, Stamps, bounds, partition};
pub use report::{Names, report};

#[cfg(test)]
mod accuracy;
#[cfg(test)]
mod among;
#[cfg(test)]
mod disturbed;
#[cfg(test)]
mod nested;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod simulator;
#[cfg(test)]
mod single;
