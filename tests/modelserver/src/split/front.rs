//! The front's side of the link: starts the engine process, hands requests over, takes finished steps.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::process::{Child, Command as Process};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::link::Link;
use super::{Command, Event};
use crate::args::Args;
use crate::backend::{Backend, BackendError};
use crate::clock::now;
use crate::step::{Job, StepDone};

/// The engine process and the link to it.
pub(crate) struct Front {
    /// `None` only while it is being closed.
    link: Option<Link>,
    engine: Child,
    ready: bool,
}

impl Front {
    /// Starts the engine: this program again, with the same arguments. Waits until the engine has loaded the driver,
    /// unless that is to be late.
    pub(crate) fn start(args: &Args) -> Result<Self, BackendError> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(io::Error::from)?;
        fcntl_setfd(&theirs, FdFlags::empty()).map_err(io::Error::from)?;
        let engine = Process::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .arg(format!("--engine-fd={}", theirs.as_fd().as_raw_fd()))
            .spawn()?;
        drop(theirs);
        let mut front = Self { link: Some(Link::new(ours)?), engine, ready: false };
        if args.dlopen_delay_ms == 0 {
            front.wait_until_ready()?;
        }
        Ok(front)
    }

    fn wait_until_ready(&mut self) -> Result<(), BackendError> {
        while !self.ready {
            let (fd, flags) = self.link()?.wake();
            poll(&mut [PollFd::from_borrowed_fd(fd, flags)], None).map_err(io::Error::from)?;
            self.turn(&mut Vec::new())?;
        }
        Ok(())
    }

    fn link(&mut self) -> Result<&mut Link, BackendError> {
        self.link.as_mut().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected).into())
    }
}

impl Backend for Front {
    fn ready(&self) -> bool {
        self.ready
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.link.as_ref().map(Link::wake)
    }

    fn submit(&mut self, job: Job) -> Result<u64, BackendError> {
        let handoff = now();
        self.link()?.send(&Command::Submit(job))?;
        Ok(handoff)
    }

    fn cancel(&mut self, id: u64) -> Result<(), BackendError> {
        self.link()?.send(&Command::Cancel(id))
    }

    fn turn(&mut self, done: &mut Vec<StepDone>) -> Result<(), BackendError> {
        let link = self.link()?;
        link.flush()?;
        for event in link.receive()? {
            match event {
                Event::Ready => self.ready = true,
                Event::Step(step) => done.push(step),
                Event::Failed(reason) => return Err(BackendError::Engine(reason)),
            }
        }
        Ok(())
    }
}

impl Drop for Front {
    /// The engine ends when its link does.
    fn drop(&mut self) {
        self.link = None;
        // An error means that it is gone already.
        drop(self.engine.wait());
    }
}
