//! Whole connections: records in, [`super::Tracked`] values out.

mod framing;
mod losses;
mod network;
mod rig;
mod roles;
mod streams;

pub(super) use rig::Lcg;
