//! A client that sends exactly the bytes it is told to, when it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Raw {
    /// Connects to a port of loopback.
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("the peer does not take connections")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self { stream, received: Vec::new() })
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
        self.stream.shutdown(Shutdown::Write).map_err(Into::into)
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
