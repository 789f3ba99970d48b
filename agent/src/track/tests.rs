//! Whole connections: records in, [`super::Tracked`] values out.

mod apis;
mod framing;
mod losses;
mod rig;
mod roles;
mod streams;

pub(super) use rig::Lcg;
