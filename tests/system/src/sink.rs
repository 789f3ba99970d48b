//! A server that takes any bytes from any number of connections, in this process: whole good requests get an answer,
//! the rest is read and dropped.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use rustix::event::epoll;

use crate::agent::{AGENT_LIMIT, Agent};
use crate::wait;

/// What a good request is answered.
pub const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// A read of no more than this is captured whole.
const READ: usize = 1024;
/// The listening socket among the events.
const LISTENER: u64 = u64::MAX;
/// A connection to the port that sends this ends the server.
const END: &[u8] = b"END OF TEST";

/// A running server.
#[derive(Debug)]
pub struct Sink {
    /// Where it listens on loopback.
    pub port: u16,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Sink {
    /// Starts one. A request that ends a read and begins with one of `answers` is answered with what stands beside it.
    pub fn start(answers: Vec<(&'static [u8], Vec<u8>)>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let thread = thread::spawn(move || serve(&listener, &answers));
        Ok(Self { port, thread: Some(thread) })
    }

    /// Starts an agent, with this configuration, and waits until it watches this server.
    pub fn watched(&self, dir: &Path, config: &str) -> Result<Agent> {
        let file = dir.join("stagelens.toml");
        fs::write(&file, config)?;
        let file = file.to_str().context("the path is UTF-8")?;
        let agent = Agent::start(dir, &["--config", file, "--port", &self.port.to_string()])?;
        wait::until("this process to be watched", AGENT_LIMIT, || {
            let services = agent.status()?.services;
            Ok(services.iter().any(|service| service.ports.contains(&self.port)).then_some(()))
        })?;
        Ok(agent)
    }

    /// Connects to it.
    pub fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).context("the sink is gone")?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Ends it.
    pub fn stop(&mut self) -> Result<()> {
        self.connect()?.write_all(END)?;
        let thread = self.thread.take().context("it was ended already")?;
        thread.join().ok().context("the server's thread panicked")?
    }
}

fn serve(listener: &TcpListener, answers: &[(&[u8], Vec<u8>)]) -> Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poll, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let mut streams = HashMap::new();
    let mut events = Vec::with_capacity(64);
    loop {
        events.clear();
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            let key = event.data.u64();
            if key == LISTENER {
                let (stream, _) = listener.accept()?;
                let key = u64::try_from(stream.as_raw_fd())?;
                epoll::add(&poll, stream.as_fd(), epoll::EventData::new_u64(key), epoll::EventFlags::IN)?;
                streams.insert(key, stream);
            } else if let Some(stream) = streams.get_mut(&key) {
                match read(stream, answers) {
                    Next::More => {}
                    Next::Gone => drop(streams.remove(&key)),
                    Next::End => return Ok(()),
                }
            }
        }
    }
}

enum Next {
    More,
    Gone,
    End,
}

fn read(stream: &mut TcpStream, answers: &[(&[u8], Vec<u8>)]) -> Next {
    let mut buffer = [0; READ];
    let bytes = match stream.read(&mut buffer) {
        Ok(0) | Err(_) => return Next::Gone,
        Ok(len) => &buffer[..len],
    };
    if bytes == END {
        return Next::End;
    }
    let answer = answers.iter().find(|(begin, _)| bytes.starts_with(begin));
    // A client that is gone by now is as good as one that hears it.
    let gone = answer.is_some_and(|(_, answer)| stream.write_all(answer).is_err());
    if gone { Next::Gone } else { Next::More }
}
