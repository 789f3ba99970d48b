//! A client that sends exactly the bytes it is told to, when it is told to.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What bytes go by.
trait Stream: Read + Write + Debug + Send {
    /// Says that nothing more comes.
    fn end(&self) -> io::Result<()>;
    /// Lets the next close be a reset.
    fn abort(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn abort(&self) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_socket_linger(self, Some(Duration::ZERO))?)
    }
}

impl Stream for UnixStream {
    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn abort(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A connection.
#[derive(Debug)]
pub struct Raw {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
}

impl Raw {
    /// Connects to a port of loopback.
    pub fn connect(port: u16) -> Result<Self> {
        Self::over(TcpStream::connect(("127.0.0.1", port)).context("the peer does not take connections")?)
    }

    /// Connects to a port of loopback from a certain one.
    pub fn connect_from(own: u16, port: u16) -> Result<Self> {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let [own, port] = [own, port].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&socket, &own).with_context(|| format!("cannot connect from {own}"))?;
        connect(&socket, &port).context("the peer does not take connections")?;
        Self::over(TcpStream::from(socket))
    }

    fn over(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self { stream: Box::new(stream), received: Vec::new() })
    }

    /// Connects to a unix socket.
    pub fn connect_unix(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path).context("the peer does not take connections")?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self { stream: Box::new(stream), received: Vec::new() })
    }

    /// Sends bytes in one write.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.stream.write_all(bytes.as_ref()).context("the peer does not take what is sent")
    }

    /// Reads until what came ends with, or holds, `mark`, and takes all of it.
    pub fn until(&mut self, mark: &str) -> Result<String> {
        let mark = mark.as_bytes();
        let mut looked_at = 0;
        while !self.received[looked_at..].windows(mark.len()).any(|window| window == mark) {
            // The mark may have begun.
            looked_at = (self.received.len() + 1).saturating_sub(mark.len());
            self.read()?;
        }
        Ok(self.take())
    }

    /// What one more read gives.
    pub fn some(&mut self) -> Result<String> {
        self.read()?;
        Ok(self.take())
    }

    fn read(&mut self) -> Result<()> {
        let mut buffer = [0; 16384];
        let len = self.stream.read(&mut buffer).with_context(|| self.got("no more came"))?;
        ensure!(len > 0, self.got("the peer closed"));
        self.received.extend_from_slice(&buffer[..len]);
        Ok(())
    }

    fn take(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.received)).into_owned()
    }

    /// Reads to the end of the connection. A reset is an end too.
    pub fn rest(&mut self) -> String {
        let _ = self.stream.read_to_end(&mut self.received);
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// Says that nothing more comes.
    pub fn end(&self) -> Result<()> {
        self.stream.end().map_err(Into::into)
    }

    /// Closes with a reset, which only TCP has.
    pub fn reset(self) -> Result<()> {
        self.stream.abort().map_err(Into::into)
    }

    fn got(&self, what: &str) -> String {
        format!("{what}; so far: {:?}", String::from_utf8_lossy(&self.received))
    }
}

/// A request of the common chat API.
pub fn chat(id: &str, streaming: bool) -> String {
    post("/v1/chat/completions", id, "", &body(streaming, 8))
}

/// Its body.
pub fn body(streaming: bool, max_tokens: u32) -> String {
    format!(
        r#"{{"messages":[{{"role":"user","content":"hello"}}],"model":"raw-model","max_tokens":{max_tokens},"stream":{streaming}}}"#
    )
}

/// A request of the common chat API with a prompt of so many bytes before the model's name.
pub fn long_chat(id: &str, streaming: bool, prompt: usize) -> String {
    let prompt = "lorem ".repeat(prompt / 6);
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":"{prompt}"}}],"model":"raw-model","max_tokens":8,"stream":{streaming}}}"#
    );
    post("/v1/chat/completions", id, "", &body)
}

/// A POST; `headers` are whole lines.
pub fn post(path: &str, id: &str, headers: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: peer\r\nx-request-id: {id}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A request without a body.
pub fn plain(method: &str, path: &str, id: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: peer\r\nx-request-id: {id}\r\n\r\n")
}
