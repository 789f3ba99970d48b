//! Whole connections: records in, [`super::Tracked`] values out.

mod apis;
mod closes;
mod ends;
mod framing;
mod http2;
mod long;
mod losses;
mod memory;
mod names;
mod network;
mod peers;
mod pieces;
mod rig;
mod roles;
mod streams;
mod tunnels;

pub(super) use rig::Lcg;
