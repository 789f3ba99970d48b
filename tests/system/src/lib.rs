//! Harness of the system tests and of `cargo xtask demo`: the test rig's processes, the agent as a user runs it, and
//! the comparison of what the agent says with what the servers know to be true.
//!
//! The agent is used through its public surface only (command line, HTTP), and the truth never reaches it.

pub mod accuracy;
pub mod agent;
pub mod caller;
pub mod cell;
pub mod cudaload;
pub mod follower;
pub mod history;
pub mod host;
pub mod jobs;
pub mod process;
pub mod program;
pub mod recording;
pub mod rig;
pub mod run;
pub mod sink;
pub mod statistics;
pub mod trouble;
pub mod truth;
pub mod wait;
