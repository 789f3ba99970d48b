//! Who owns device memory: a process, told apart from a later one with the same pid by its start time.

use rustix::process::{Pid, test_kill_process};

/// A process as one word, so that it can be published atomically: pid in the high half, low half of the start time
/// (clock ticks since boot) in the low half. 0 is nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

impl Owner {
    /// Nobody.
    pub(crate) const NONE: Self = Self(0);

    /// The calling process.
    pub(crate) fn this_process() -> Self {
        let pid = std::process::id();
        Self::new(pid, start_time(pid).unwrap_or(0))
    }

    fn new(pid: u32, start_ticks: u64) -> Self {
        Self(u64::from(pid) << 32 | start_ticks & 0xffff_ffff)
    }

    pub(crate) fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    fn pid(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Cheap check: false only when the process is surely gone.
    pub(crate) fn may_live(self) -> bool {
        i32::try_from(self.pid()).ok().and_then(Pid::from_raw).is_some_and(|pid| {
            // EPERM means that it exists and is somebody else's.
            !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
        })
    }

    /// Full check, by `/proc`. Processes of another pid namespace look dead: share the file within one only.
    pub(crate) fn lives(self) -> bool {
        start_time(self.pid()).is_some_and(|start| Self::new(self.pid(), start) == self)
    }
}

/// Start time in clock ticks; `None` when the process is gone or a zombie.
fn start_time(pid: u32) -> Option<u64> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(stat: &str) -> Option<u64> {
    // The name may hold spaces and parentheses: fields are counted from the last one. Field 3 is the state.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    (state != "Z" && state != "X").then_some(())?;
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_field_22() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        let cases = [
            (format!("12 (sh) S {rest}"), Some(777)),
            (format!("12 (a) b) S (c) R {rest}"), Some(777)),
            (format!("12 (sh) Z {rest}"), None),
            ("12 (sh) S 1 2".to_owned(), None),
            (String::new(), None),
        ];
        for (stat, want) in cases {
            assert_eq!(parse_stat(&stat), want, "{stat}");
        }
    }

    #[test]
    fn this_process_lives_and_its_predecessor_does_not() {
        let me = Owner::this_process();
        assert!(me.may_live() && me.lives());
        let predecessor = Owner(me.0 ^ 1);
        assert!(predecessor.may_live() && !predecessor.lives());
        assert!(!Owner::NONE.may_live() && !Owner::NONE.lives());
    }
}
