//! How often a control group had used up its CPU quota, from `cpu.stat`: the same two words in both hierarchies.

use std::path::{Path, PathBuf};

use super::{ProcError, ProcFs, read_small};

/// Where the hierarchies are.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Periods of a quota since the group was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuPeriods {
    /// In which it ran at all.
    pub all: u64,
    /// In which it was stopped before their end.
    pub throttled: u64,
}

impl ProcFs {
    /// Of the innermost group of the process that has a quota; `None` where none has.
    pub fn cpu_periods(&self, pid: u32) -> Result<Option<CpuPeriods>, ProcError> {
        let text = read_small(&self.path(pid, "cgroup"))?;
        Ok(periods(&String::from_utf8_lossy(&text), Path::new(CGROUPS)))
    }
}

fn periods(cgroup: &str, root: &Path) -> Option<CpuPeriods> {
    cgroup.lines().filter_map(|line| folder(line, root)).find_map(|(base, own)| {
        let up = own.ancestors().take_while(|folder| folder.starts_with(&base));
        // A folder that is not there belongs to another view of the hierarchy.
        up.filter_map(|folder| read_small(&folder.join("cpu.stat")).ok())
            .filter_map(|stat| parse(&String::from_utf8_lossy(&stat)))
            .find(|periods| periods.all > 0)
    })
}

/// The hierarchy's folder and the group's own, for a line that is of the unified one or of the CPU's.
fn folder(line: &str, root: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let path = path.trim_start_matches('/');
    // One that is outside of what this namespace shows has no folder here.
    if path.split('/').any(|part| part == "..") {
        return None;
    }
    let base = match (number, controllers) {
        ("0", "") if root.join("unified").is_dir() => root.join("unified"),
        ("0", "") => root.to_owned(),
        _ if controllers.split(',').any(|one| one == "cpu") => root.join(controllers),
        _ => return None,
    };
    let own = base.join(path);
    Some((base, own))
}

fn parse(stat: &str) -> Option<CpuPeriods> {
    let word = |name: &str| {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name).and_then(|(_, value)| value.trim().parse().ok())
    };
    Some(CpuPeriods { all: word("nr_periods")?, throttled: word("nr_throttled")? })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A hierarchy with these files, and their texts.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    /// A process's `cgroup`, files of the hierarchy, and what they tell.
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<CpuPeriods>);

    #[test]
    fn the_innermost_group_with_a_quota_in_either_hierarchy() {
        let used = "usage_usec 9\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5\n";
        let free = "usage_usec 9\nnr_periods 0\nnr_throttled 0\n";
        let some = Some(CpuPeriods { all: 10, throttled: 4 });
        let cases: &[Case<'_>] = &[
            ("0::/pod/container\n", &[("pod/container/cpu.stat", used)], some),
            ("0::/pod/container\n", &[("pod/container/cpu.stat", free), ("pod/cpu.stat", used)], some),
            ("0::/pod\n", &[("unified/pod/cpu.stat", used)], some),
            ("4:cpu,cpuacct:/pod\n0::/\n", &[("cpu,cpuacct/pod/cpu.stat", used)], some),
            ("4:cpuset:/pod\n", &[("cpuset/pod/cpu.stat", used)], None),
            ("0::/../pod\n", &[("pod/cpu.stat", used)], None),
            ("0::/pod\n", &[("pod/cpu.stat", "usage_usec 9\n")], None),
            ("nonsense", &[], None),
        ];
        for (cgroup, files, want) in cases {
            assert_eq!(periods(cgroup, tree(files).path()), *want, "{cgroup} {files:?}");
        }
    }
}
