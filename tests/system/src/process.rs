//! Child processes that never outlive the test that started them.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::wait;

/// How long a dropped child is waited for. One that needs longer ends without us.
const DROP_LIMIT: Duration = Duration::from_secs(20);

/// A running child. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// Where its stderr goes.
    log: PathBuf,
}

impl Process {
    /// Starts `command`; its stderr goes to `<dir>/<name>.log`, stdin is empty.
    ///
    /// The kernel kills the child when the thread that calls this ends, however it ends.
    pub fn start(name: &str, mut command: Command, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let stderr = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        command.stdin(Stdio::null()).stderr(stderr);
        die_with_parent(&mut command);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The pipe of its stdout, if it was asked for.
    pub fn stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// What it wrote to stderr so far.
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// An error if it has ended already.
    pub fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended early ({status}); its log ends with:\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("a pid is positive")?;
        kill_process(pid, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Waits for its end.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = format!("the end of {}", self.name);
        wait::until(&what, limit, || Ok(self.child.try_wait()?))
    }

    /// Asks it to end and waits; not ending in time, or ending with an error, is an error.
    pub fn stop(&mut self, limit: Duration) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            self.signal(Signal::TERM)?;
        }
        let status = self.wait(limit)?;
        if !status.success() {
            bail!("{} ended with {status}; its log ends with:\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// Kills it, and waits until it is gone: the kernel may have much to clean up behind it.
    pub fn kill(&mut self, limit: Duration) -> Result<()> {
        self.child.kill()?;
        self.wait(limit).map(drop)
    }

    /// CPU time it has used, in seconds.
    pub fn cpu_seconds(&self) -> Result<f64> {
        self.cpu_split().map(|[user, system]| user + system)
    }

    /// The same, its own and the kernel's on its behalf.
    pub fn cpu_split(&self) -> Result<[f64; 2]> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()))
            .with_context(|| format!("{} is not there any more", self.name))?;
        let ticks = cpu_ticks(&stat).context("/proc/PID/stat has an unexpected form")?;
        Ok(ticks.map(|ticks| ticks as f64 / 100.0))
    }

    /// Bytes of memory it has to itself: without files, libraries, and what it shares with the kernel.
    pub fn anonymous_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .with_context(|| format!("{} is not there any more", self.name))?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib: Option<u64> = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        kib.map(|kib| kib * 1024).context("/proc/PID/status has an unexpected form")
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.child.kill();
        let _ = self.wait(DROP_LIMIT);
    }
}

/// User and system time: the 14th and 15th field; names in the second field may hold spaces.
fn cpu_ticks(stat: &str) -> Option<[u64; 2]> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some([fields.get(11)?.parse().ok()?, fields.get(12)?.parse().ok()?])
}

/// Lets the kernel kill the child of `command` when the thread that starts it ends.
pub fn die_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec only async-signal-safe work is allowed, and this is one system call.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_past_names_with_spaces() {
        let stat = "7 (a) b) S 1 1 1 0 -1 4194560 100 0 0 0 12 30 0 0 20 0 1 0 100 0 0";
        assert_eq!(cpu_ticks(stat), Some([12, 30]));
    }

    #[test]
    fn a_failed_end_is_an_error_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo broken >&2; exit 3"]);
        let mut process = Process::start("sh", command, dir.path()).unwrap();
        process.wait(Duration::from_secs(5)).unwrap();
        let error = process.stop(Duration::from_secs(5)).unwrap_err().to_string();
        assert!(error.contains("broken"), "{error}");
    }
}
