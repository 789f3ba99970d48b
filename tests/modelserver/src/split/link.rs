//! Messages over a non-blocking stream socket: length (u32, little endian) and JSON, each sent by one write.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::{Errno, read, write};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backend::BackendError;

/// One end of the link.
pub(super) struct Link {
    fd: OwnedFd,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Link {
    /// Takes a connected stream socket.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(Self { fd, input: Vec::new(), output: Vec::new() })
    }

    /// The socket, and what to wait for.
    pub(super) fn wake(&self) -> (BorrowedFd<'_>, PollFlags) {
        let out = if self.output.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        (self.fd.as_fd(), PollFlags::IN | out)
    }

    /// Sends a message. What the socket does not take now goes out with later calls: a slow peer does not stop us.
    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<(), BackendError> {
        let at = self.output.len();
        self.output.extend_from_slice(&[0; 4]);
        serde_json::to_writer(&mut self.output, message)?;
        let length = u32::try_from(self.output.len() - at - 4)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.output[at..at + 4].copy_from_slice(&length.to_le_bytes());
        Ok(self.flush()?)
    }

    /// Sends what is left of earlier messages.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match write(&self.fd, &self.output) {
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
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> Result<Vec<T>, BackendError> {
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

    /// Reads until the socket is empty; false at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 16 << 10];
        loop {
            match read(&self.fd, &mut buffer) {
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
        assert!(left.wake().1.contains(PollFlags::OUT));
        let mut seen = Vec::new();
        while seen.len() < 20 {
            left.flush().unwrap();
            seen.extend(right.receive::<(u32, String)>().unwrap());
        }
        assert!(
            seen.iter().enumerate().all(|(index, message)| message.0 as usize == index && message.1 == text)
        );
        assert!(!left.wake().1.contains(PollFlags::OUT));
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
