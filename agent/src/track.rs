//! [3] Events to the state of processes, connections and exchanges on them.
//!
//! `Tracker::feed` takes one event and appends what it means to a list of [`Tracked`] values.

mod exchange;

pub use exchange::{ContentEvent, Exchange, ExchangeId, MAX_CONTENT, ServiceId, Tracked};
