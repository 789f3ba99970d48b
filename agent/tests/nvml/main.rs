//! NVML's thread over `tests/fakenvml`: every kind of error, hangs, loss, release, MIG; without root and without a GPU.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod errors;
mod numbers;
mod rig;
mod states;
