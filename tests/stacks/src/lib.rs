//! Harness of the tests against real servers and clients: the peers as processes, what they know to be true, and the
//! comparison of the agent's records with it.
//!
//! A peer writes a line per request with its own clock before and after each write; the agent is used through its
//! command line and its HTTP API only.

pub mod compare;
pub mod frames;
pub mod machine;
pub mod peer;
pub mod raw;
pub mod truth;
pub mod watch;
pub mod written;
