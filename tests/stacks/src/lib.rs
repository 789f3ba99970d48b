//! Harness of the tests against real servers and clients: the peers as processes, what they know to be true, and the
//! comparison of the agent's records with it.
//!
//! A peer writes a line per request with its own clock before and after each write; the agent is used through its
//! command line and its HTTP API only. But for gaps between tokens: these tell the middle and the longest one, so that
//! each of them is taken from its recording.

pub mod compare;
pub mod frames;
pub mod gaps;
pub mod machine;
pub mod peer;
pub mod raw;
pub mod truth;
pub mod watch;
pub mod written;
