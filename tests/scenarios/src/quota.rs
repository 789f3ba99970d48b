//! A control group that limits the CPU time of a server.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// What a limit is counted over, microseconds.
const PERIOD_US: u32 = 100_000;

/// The group; those in it leave it when it is dropped.
pub(crate) struct Quota {
    root: PathBuf,
    group: PathBuf,
}

impl Quota {
    /// A group without a limit that has this process and all that descend from it.
    pub(crate) fn new(pid: u32) -> Result<Self> {
        let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.procs").exists());
        let root = root.context("there is no hierarchy of cgroups that limits CPU time")?;
        let group = root.join(format!("stagelens-scenario-{pid}"));
        fs::create_dir_all(&group).with_context(|| format!("cannot make {}", group.display()))?;
        let quota = Self { root: root.to_owned(), group };
        family(pid).into_iter().try_for_each(|pid| quota.take(pid))?;
        Ok(quota)
    }

    fn take(&self, pid: u32) -> Result<()> {
        fs::write(self.group.join("cgroup.procs"), pid.to_string()).context("cannot move a process")
    }

    /// So much CPU time in each tenth of a second from now on; `None` is as much as there is.
    pub(crate) fn limit(&self, us: Option<u32>) -> Result<()> {
        let old = self.group.join("cpu.cfs_quota_us");
        if old.exists() {
            let text = us.map_or_else(|| "-1".to_owned(), |us| us.to_string());
            return Ok(fs::write(old, text)?);
        }
        let text = us.map_or_else(|| "max".to_owned(), |us| us.to_string());
        Ok(fs::write(self.group.join("cpu.max"), format!("{text} {PERIOD_US}"))?)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let left = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for pid in left.lines() {
            let _ = fs::write(self.root.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.group);
    }
}

/// A process and all that descend from it.
fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let below = children.split_whitespace().filter_map(|child| child.parse().ok()).flat_map(family);
    std::iter::once(pid).chain(below).collect()
}
