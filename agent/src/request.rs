//! [4] Requests and steps, and which steps belong to which request.
//!
//! [`Requests`] takes the tracker's news in order and hands out what is final ([`Settled`]). The method is told in
//! [`assign`]. Everything here is bounded, and whatever a bound costs is counted in `Health::limits`.

mod align;
pub mod assign;
mod batch;
mod busy;
pub mod deadlines;
mod lag;
mod live;
mod nesting;
mod queue;
mod ranks;
pub mod record;
mod replicas;
mod requests;
mod service;
mod services;
mod step;
pub mod told;

pub(crate) use busy::Busy;

pub use assign::{Assignment, Forward, Range};
pub use queue::Waiting;
pub use record::RequestRecord;
pub use requests::{Ended, Inner, Requests, Settled};
pub(crate) use step::StepInfo;
pub use told::{StepRecord, Told};
