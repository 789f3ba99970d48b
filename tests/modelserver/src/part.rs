//! The other processes of a server: this program again, with the same arguments and a part to play.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{self, Command};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::args::{Part, Place};

/// How many devices the simulated driver has.
const DEVICES: &str = "FAKECUDA_DEVICES";

/// A process of the server. When it is dropped it is told to end (the other end of its input closes) and waited for.
#[derive(Debug)]
pub(crate) struct Child {
    process: process::Child,
    /// What keeps it alive: it ends when this is closed.
    lease: Option<OwnedFd>,
}

impl Child {
    /// Starts one; it inherits `fds` under the options that go with them. `place` is its GPU, if that is another one.
    pub(crate) fn start(part: Part, fds: &[(&str, &OwnedFd)], place: Option<Place>) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args_os().skip(1)).arg(format!("--part={}", name(part)));
        if let Some(Place { device, rank }) = place {
            let devices = std::env::var(DEVICES).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
            command.arg(format!("--device={device}")).arg(format!("--rank={rank}"));
            command.env(DEVICES, devices.max(device + 1).to_string());
        }
        for (option, fd) in fds {
            fcntl_setfd(fd, FdFlags::empty())?;
            command.arg(format!("--{option}={}", fd.as_raw_fd()));
        }
        // What ends with this one: a pipe that nobody writes to.
        let (theirs, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        command.stdin(theirs);
        let process = command.spawn()?;
        for (_, fd) in fds {
            fcntl_setfd(fd, FdFlags::CLOEXEC)?;
        }
        Ok(Self { process, lease: Some(ours) })
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.lease = None;
        // An error means that it is gone already.
        drop(self.process.wait());
    }
}

fn name(part: Part) -> String {
    format!("{part:?}").to_lowercase()
}

/// Two connected unix sockets.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// A descriptor that this process was given by number.
pub(crate) fn inherited(fd: Option<i32>) -> io::Result<OwnedFd> {
    let fd = fd.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no descriptor was given"))?;
    // SAFETY: the server opened this descriptor for us and nothing else here knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
