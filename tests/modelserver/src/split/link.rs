//! Messages over a non-blocking stream socket or shared memory: length (u32, little endian) and JSON, each sent by one
//! write.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read, write};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::shared::Shared;
use crate::backend::BackendError;

/// What the messages go over.
enum Way {
    Stream(OwnedFd),
    Shared(Shared),
}

/// One end of the link.
pub(crate) struct Link {
    way: Way,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Link {
    /// Takes a connected stream socket, or one end of a pipe.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self { way: Way::Stream(fd), input: Vec::new(), output: Vec::new() })
    }

    /// Takes one side of shared memory.
    pub(super) fn shared(shared: Shared) -> Self {
        Self { way: Way::Shared(shared), input: Vec::new(), output: Vec::new() }
    }

    /// What to wait on and for what; none for memory without a bell.
    pub(crate) fn wake(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let out = if self.output.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        match &self.way {
            Way::Stream(fd) => Some((fd.as_fd(), PollFlags::IN | out)),
            Way::Shared(shared) => Some((shared.bell()?.as_fd(), PollFlags::IN)),
        }
    }

    /// Sleeps until a message comes, or until it is time to look again.
    pub(crate) fn wait(&self) -> io::Result<()> {
        match (self.wake(), &self.way) {
            (None, Way::Shared(shared)) => shared.wait(),
            (None, Way::Stream(_)) => {}
            (Some((fd, flags)), _) => match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            },
        }
        Ok(())
    }

    /// Sends a message. What the socket does not take now goes out with later calls: a slow peer does not stop us.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<(), BackendError> {
        let at = self.output.len();
        self.output.extend_from_slice(&[0; 4]);
        serde_json::to_writer(&mut self.output, message)?;
        let length = u32::try_from(self.output.len() - at - 4)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.output[at..at + 4].copy_from_slice(&length.to_le_bytes());
        Ok(self.flush()?)
    }

    /// Sends what is left of earlier messages.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            let fd = match &self.way {
                Way::Stream(fd) => fd,
                Way::Shared(shared) => {
                    self.output.drain(..shared.write(&self.output));
                    return Ok(());
                }
            };
            match write(fd, &self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// All messages that are there. The end of the stream is an error ([`io::ErrorKind::UnexpectedEof`]), told only
    /// when no message is left.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<Vec<T>, BackendError> {
        let open = self.fill()?;
        let mut messages = Vec::new();
        while let Some(length) = self.next_length() {
            messages.push(serde_json::from_slice(&self.input[4..4 + length])?);
            self.input.drain(..4 + length);
        }
        if messages.is_empty() && !open {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the other process has ended").into());
        }
        Ok(messages)
    }

    /// Reads until nothing is left; false at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        let fd = match &self.way {
            Way::Stream(fd) => fd,
            Way::Shared(shared) => return Ok(shared.read(&mut self.input)),
        };
        let mut buffer = [0; 16 << 10];
        loop {
            match read(fd, &mut buffer) {
                Ok(0) | Err(Errno::CONNRESET) => return Ok(false),
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Length of the first message if it is complete.
    fn next_length(&self) -> Option<usize> {
        let length = u32::from_le_bytes(*self.input.first_chunk::<4>()?) as usize;
        (self.input.len() - 4 >= length).then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (Link, Link) {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).unwrap();
        (Link::new(a).unwrap(), Link::new(b).unwrap())
    }

    #[test]
    fn messages_arrive_whole_even_when_the_socket_is_full() {
        let (mut left, mut right) = pair();
        let text = "x".repeat(100_000);
        for number in 0..20 {
            left.send(&(number, &text)).unwrap();
        }
        assert!(left.wake().unwrap().1.contains(PollFlags::OUT));
        let mut seen = Vec::new();
        while seen.len() < 20 {
            left.flush().unwrap();
            seen.extend(right.receive::<(u32, String)>().unwrap());
        }
        assert!(
            seen.iter().enumerate().all(|(index, message)| message.0 as usize == index && message.1 == text)
        );
        assert!(!left.wake().unwrap().1.contains(PollFlags::OUT));
    }

    #[test]
    fn the_end_is_told_after_the_last_message() {
        let (mut left, mut right) = pair();
        left.send(&1).unwrap();
        drop(left);
        assert_eq!(right.receive::<u32>().unwrap(), [1]);
        assert!(matches!(right.receive::<u32>(), Err(BackendError::Link(_))));
    }

    #[test]
    fn an_unknown_message_is_an_error() {
        let (mut left, mut right) = pair();
        left.send(&"text").unwrap();
        assert!(matches!(right.receive::<u32>(), Err(BackendError::Message(_))));
    }
}
