//! Whole connections: records in, [`Tracked`] values out.

mod rig;

pub(super) use rig::Lcg;
