//! The kernel's ring buffer as a source of records.

use std::{fmt, io, os::fd::AsFd, time::Duration};

use aya::maps::{MapData, RingBuf};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// Records written by the kernel side, in order.
pub struct RingSource {
    ring: RingBuf<MapData>,
}

impl fmt::Debug for RingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingSource").finish_non_exhaustive()
    }
}

impl RingSource {
    /// Takes over the ring buffer.
    pub fn new(ring: RingBuf<MapData>) -> Self {
        Self { ring }
    }

    /// Waits until there is a record, at most `timeout`. `Ok(false)`: none came, or a signal interrupted the wait.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let ring = self.ring.as_fd();
        let mut fds = [PollFd::new(&ring, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Lends at most `max` records to `f`, oldest first, and says how many. A record is gone when `f` returns.
    pub fn drain(&mut self, max: usize, mut f: impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        while taken < max {
            let Some(item) = self.ring.next() else { break };
            f(&item);
            taken += 1;
        }
        taken
    }
}
