//! `/proc` as values: who runs, in which container, with which listening sockets.
//!
//! Everything is read below a root that a test can replace, every read is bounded, and a process that ended in the
//! meantime is an ordinary error ([`ProcError::is_gone`]).

mod container;
mod engine;
mod gpu;
mod quota;
mod tcp;

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use thiserror::Error;

pub use container::{container_id, pod_uid};
pub use engine::Engine;
pub use quota::CpuPeriods;
pub use tcp::{Listener, listeners};

/// Most bytes read of one small file (`stat`, `status`, `cgroup`).
const SMALL: u64 = 64 * 1024;
/// Most threads of one process that are looked at.
const MAX_THREADS: usize = 4096;
/// Most descriptors of one process that are looked at.
const MAX_DESCRIPTORS: usize = 65_536;

/// What went wrong with `/proc`.
#[derive(Debug, Error)]
pub enum ProcError {
    /// A file could not be read; usually the process has ended.
    #[error("cannot read {path}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file does not have the expected form.
    #[error("{path} has no valid {what}", path = .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The missing part.
        what: &'static str,
    },
}

impl ProcError {
    /// The process ended while it was looked at: nothing to report.
    pub fn is_gone(&self) -> bool {
        let Self::Read { source, .. } = self else { return false };
        source.kind() == io::ErrorKind::NotFound
            || source.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
    }
}

/// The parts of `/proc/PID/stat` that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Process id.
    pub pid: u32,
    /// Name, at most 15 bytes; anything a process chose to call itself.
    pub comm: String,
    /// Parent.
    pub ppid: u32,
    /// Process group: one job of a shell, one program of a supervisor.
    pub pgrp: u32,
    /// Session.
    pub session: u32,
    /// Threads that have not ended, and the first one, which stays until they have.
    pub threads: u32,
    /// CPU time of all its threads, user and system, clock ticks.
    pub cpu_ticks: u64,
    /// Resident memory, pages.
    pub rss_pages: u64,
    /// Start time in clock ticks since boot: with the pid, the identity of a process.
    pub start_ticks: u64,
    /// Virtual memory in bytes; 0 for kernel threads and for a process whose first thread has ended. Changes whenever something is mapped.
    pub vsize: u64,
}

/// `/proc`, or a folder that looks like it.
#[derive(Clone, Debug)]
pub struct ProcFs {
    root: PathBuf,
}

impl Default for ProcFs {
    fn default() -> Self {
        Self::new("/proc")
    }
}

impl ProcFs {
    /// Reads below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A path below a process's folder.
    pub fn path(&self, pid: u32, rest: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(rest)
    }

    /// All processes (thread group leaders), ascending.
    pub fn pids(&self) -> Result<Vec<u32>, ProcError> {
        let entries = fs::read_dir(&self.root).map_err(|source| read_error(&self.root, source))?;
        let mut pids: Vec<u32> =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        Ok(pids)
    }

    /// `/proc/PID/stat`.
    pub fn stat(&self, pid: u32) -> Result<Stat, ProcError> {
        let path = self.path(pid, "stat");
        let text = read_small(&path)?;
        parse_stat(pid, &text).ok_or(ProcError::Malformed { path, what: "fields" })
    }

    /// Threads of a process, in no order. What the kernel shows of the process under its own number, it shows under each of
    /// theirs.
    pub fn threads(&self, pid: u32) -> Result<impl Iterator<Item = u32> + use<>, ProcError> {
        let folder = self.path(pid, "task");
        let entries = fs::read_dir(&folder).map_err(|source| read_error(&folder, source))?;
        let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        Ok(entries.take(MAX_THREADS).filter_map(number))
    }

    /// The executable, as the process's own mount namespace names it.
    pub fn exe(&self, pid: u32) -> Result<PathBuf, ProcError> {
        let path = self.path(pid, "exe");
        fs::read_link(&path).map_err(|source| read_error(&path, source))
    }

    /// Id of the container the process is in (64 hex digits), if it is in one.
    pub fn container(&self, pid: u32) -> Result<Option<String>, ProcError> {
        let text = read_small(&self.path(pid, "cgroup"))?;
        Ok(container_id(&String::from_utf8_lossy(&text)))
    }

    /// Inode number of the network namespace.
    pub fn netns(&self, pid: u32) -> Result<u32, ProcError> {
        let path = self.path(pid, "ns/net");
        let link = fs::read_link(&path).map_err(|source| read_error(&path, source))?;
        link.to_str()
            .and_then(|text| bracketed(text, "net:"))
            .and_then(|number| u32::try_from(number).ok())
            .ok_or(ProcError::Malformed { path, what: "namespace number" })
    }

    /// A seccomp filter is installed in the process (`Seccomp: 2` in `/proc/PID/status`).
    pub fn seccomp_filter(&self, pid: u32) -> Result<bool, ProcError> {
        let text = read_small(&self.path(pid, "status"))?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2")))
    }

    /// The listening TCP sockets of the process's network namespace, whoever owns them.
    pub fn listeners(&self, pid: u32) -> Result<Vec<Listener>, ProcError> {
        let mut all = Vec::new();
        for (name, totals, protocol) in
            [("net/tcp", "net/sockstat", "TCP:"), ("net/tcp6", "net/sockstat6", "TCP6:")]
        {
            // The kernel goes through its table of all connections, however few are the namespace's own.
            if self.has_none(pid, totals, protocol) {
                continue;
            }
            let path = self.path(pid, name);
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if name == "net/tcp6" && error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(read_error(&path, source)),
            };
            // A small buffer: listening sockets come first, and the kernel has to look for what is behind them.
            listeners(&mut BufReader::with_capacity(512, file), &mut all)
                .map_err(|source| read_error(&path, source))?;
        }
        Ok(all)
    }

    /// The namespace's totals say that it has no socket of the protocol.
    fn has_none(&self, pid: u32, totals: &str, protocol: &str) -> bool {
        let text = read_small(&self.path(pid, totals)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find_map(|line| line.strip_prefix(protocol));
        line.is_some_and(|line| line.split_ascii_whitespace().take(2).eq(["inuse", "0"]))
    }

    /// Inodes of the sockets that the process has open.
    pub fn socket_inodes(&self, pid: u32) -> Result<Vec<u64>, ProcError> {
        let folder = self.path(pid, "fd");
        let entries = fs::read_dir(&folder).map_err(|source| read_error(&folder, source))?;
        Ok(entries
            .take(MAX_DESCRIPTORS)
            .flatten()
            .filter_map(|entry| bracketed(fs::read_link(entry.path()).ok()?.to_str()?, "socket:"))
            .collect())
    }

    /// Memory map of the process, line by line.
    pub fn maps(&self, pid: u32) -> Result<impl BufRead + use<>, ProcError> {
        let path = self.path(pid, "maps");
        let file = File::open(&path).map_err(|source| read_error(&path, source))?;
        Ok(BufReader::with_capacity(32 * 1024, file))
    }
}

fn read_error(path: &Path, source: io::Error) -> ProcError {
    ProcError::Read { path: path.to_owned(), source }
}

fn read_small(path: &Path) -> Result<Vec<u8>, ProcError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(SMALL).read_to_end(&mut bytes))
        .map_err(|source| read_error(path, source))?;
    Ok(bytes)
}

/// `net:[4026531840]` to 4026531840.
fn bracketed(text: &str, prefix: &str) -> Option<u64> {
    text.strip_prefix(prefix)?.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// The name stands in parentheses and may itself hold spaces and parentheses: fields start after the last one.
fn parse_stat(pid: u32, bytes: &[u8]) -> Option<Stat> {
    let open = bytes.iter().position(|&b| b == b'(')?;
    let close = bytes.iter().rposition(|&b| b == b')')?;
    let comm = String::from_utf8_lossy(bytes.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Negative group and session numbers do not exist; -1 would only be `tpgid`.
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let small = |index: usize| u32::try_from(number(index)?).ok();
    Some(Stat {
        pid,
        comm,
        ppid: small(1)?,
        pgrp: small(2)?,
        session: small(3)?,
        threads: small(17)?,
        cpu_ticks: number(11)?.saturating_add(number(12)?),
        rss_pages: number(21)?,
        start_ticks: number(19)?,
        vsize: number(20)?,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const STAT: &str = "7 (a) (b) x) S 3 5 6 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 987654 4096000 12 0 0";

    fn fake() -> (tempfile::TempDir, ProcFs) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("7");
        for name in ["fd", "ns", "net"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        fs::create_dir(root.path().join("self-not-a-pid")).unwrap();
        fs::write(folder.join("stat"), STAT).unwrap();
        fs::write(folder.join("status"), "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n").unwrap();
        fs::write(folder.join("cgroup"), format!("0::/docker/{}\n", "ab".repeat(32))).unwrap();
        symlink("net:[4026531840]", folder.join("ns/net")).unwrap();
        symlink("/opt/my server (deleted)", folder.join("exe")).unwrap();
        symlink("socket:[4242]", folder.join("fd/3")).unwrap();
        symlink("/dev/null", folder.join("fd/0")).unwrap();
        symlink("anon_inode:[eventpoll]", folder.join("fd/4")).unwrap();
        fs::write(
            folder.join("net/tcp"),
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1\n",
        )
        .unwrap();
        let procfs = ProcFs::new(root.path());
        (root, procfs)
    }

    #[test]
    fn a_process_is_read_from_a_folder() {
        let (_root, procfs) = fake();
        assert_eq!(procfs.pids().unwrap(), [7]);
        let stat = procfs.stat(7).unwrap();
        assert_eq!(stat.comm, "a) (b) x");
        assert_eq!((stat.ppid, stat.pgrp, stat.session), (3, 5, 6));
        assert_eq!((stat.start_ticks, stat.vsize), (987_654, 4_096_000));
        assert_eq!((stat.cpu_ticks, stat.rss_pages), (1 + 2, 12));
        assert_eq!(procfs.netns(7).unwrap(), 4_026_531_840);
        assert_eq!(procfs.exe(7).unwrap(), Path::new("/opt/my server (deleted)"));
        assert!(procfs.seccomp_filter(7).unwrap());
        assert_eq!(procfs.container(7).unwrap(), Some("ab".repeat(32)));
        assert_eq!(procfs.socket_inodes(7).unwrap(), [4242]);
        assert_eq!(procfs.listeners(7).unwrap(), [Listener { inode: 4242, port: 8000 }]);
    }

    #[test]
    fn a_namespace_without_sockets_is_not_searched_for_listening_ones() {
        let (root, procfs) = fake();
        let totals = |text| fs::write(root.path().join("7/net/sockstat"), text).unwrap();
        for (text, found) in [
            ("sockets: used 9\nTCP: inuse 2 orphan 0 tw 0 alloc 2 mem 0\nUDP: inuse 0 mem 0\n", 1),
            ("sockets: used 9\nTCP: inuse 0 orphan 0 tw 0 alloc 2 mem 0\n", 0),
            ("TCP: something else\n", 1),
            ("", 1),
        ] {
            totals(text);
            assert_eq!(procfs.listeners(7).unwrap().len(), found, "{text:?}");
        }
    }

    #[test]
    fn a_process_that_ended_is_told_from_a_broken_file() {
        let (root, procfs) = fake();
        assert!(procfs.stat(8).unwrap_err().is_gone());
        for broken in ["", "7", "7 (x", "7 (x) S 3", "7 (x) S a b c"] {
            fs::write(root.path().join("7/stat"), broken).unwrap();
            let error = procfs.stat(7).unwrap_err();
            assert!(!error.is_gone(), "{broken:?}: {error}");
        }
    }

    #[test]
    fn the_real_proc_knows_this_process() {
        let procfs = ProcFs::default();
        let own = std::process::id();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let found =
            procfs.listeners(own).unwrap().into_iter().find(|listener| listener.port == port).unwrap();
        assert!(procfs.socket_inodes(own).unwrap().contains(&found.inode));
        assert!(procfs.stat(own).unwrap().vsize > 0);
    }
}
