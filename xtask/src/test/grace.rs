//! Shorter waits in the kernel while system tests run.
//!
//! The kernel lets go of one uprobe after the other, and each waits for grace periods of RCU: measured, 28 s for an agent
//! that is attached to a whole driver, 14 s where grace periods are expedited. Each of some sixty tests ends an agent.

use std::fs;

/// 1 where grace periods are expedited.
const SETTING: &str = "/sys/kernel/rcu_expedited";

/// Grace periods are expedited as long as it lives.
pub(super) struct Expedited(());

impl Expedited {
    /// `None` where that is so already, or cannot be had.
    pub(super) fn begin() -> Option<Self> {
        let is_normal = fs::read_to_string(SETTING).is_ok_and(|setting| setting.trim() == "0");
        (is_normal && fs::write(SETTING, "1").is_ok()).then_some(Self(()))
    }
}

impl Drop for Expedited {
    fn drop(&mut self) {
        // It was writable before; if it is not any more, nothing can be done.
        let _ = fs::write(SETTING, "0");
    }
}
