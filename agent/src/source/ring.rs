//! The kernel's ring buffer as a source of records.

use std::{fmt, io, mem::MaybeUninit, os::fd::OwnedFd, time::Duration};

use aya::maps::{MapData, RingBuf};
use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
    io::Errno,
};

/// Records written by the kernel side, in order.
pub struct RingSource {
    ring: RingBuf<MapData>,
    /// Reports when the kernel side wakes the agent, once each time, and not that there are records: there nearly
    /// always are.
    bell: OwnedFd,
}

impl fmt::Debug for RingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingSource").finish_non_exhaustive()
    }
}

impl RingSource {
    /// Takes over the ring buffer.
    pub fn new(ring: RingBuf<MapData>) -> io::Result<Self> {
        let bell = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&bell, &ring, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
        Ok(Self { ring, bell })
    }

    /// Waits until the kernel side has something urgent, or `timeout`: then it is time for all that has come. Ends
    /// early at a signal.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut events = [MaybeUninit::<Event>::uninit(); 1];
        match epoll::wait(&self.bell, &mut events, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
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
