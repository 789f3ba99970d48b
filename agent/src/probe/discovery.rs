//! Discovery.

pub mod group;
