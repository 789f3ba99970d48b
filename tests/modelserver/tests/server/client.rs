//! A blocking HTTP/1.1 client that keeps the chunks apart.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// A connection to the server.
pub(crate) struct Client {
    stream: TcpStream,
    bytes: Vec<u8>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Status code.
    pub(crate) status: u16,
    /// The body by chunks; one if it had a length.
    pub(crate) chunks: Vec<String>,
}

/// A request with a body.
pub(crate) fn post(path: &str, id: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: rig\r\nx-request-id: {id}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

impl Client {
    /// Connects.
    pub(crate) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        Self { stream, bytes: Vec::new() }
    }

    /// Makes the kernel hold little for this client.
    pub(crate) fn set_receive_buffer(&self, bytes: usize) {
        rustix::net::sockopt::set_socket_recv_buffer_size(&self.stream, bytes).unwrap();
    }

    /// Sends raw bytes.
    pub(crate) fn send(&mut self, request: &str) {
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    /// Sends a request and takes the answer.
    pub(crate) fn ask(&mut self, request: &str) -> Answer {
        self.send(request);
        self.answer()
    }

    fn fill(&mut self) {
        let mut buffer = [0; 16 << 10];
        let count = self.stream.read(&mut buffer).unwrap();
        assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&self.bytes));
        self.bytes.extend_from_slice(&buffer[..count]);
    }

    fn find(&self, text: &str) -> Option<usize> {
        self.bytes.windows(text.len()).position(|window| window == text.as_bytes())
    }

    /// Reads until the text is there, and takes nothing.
    pub(crate) fn read_until(&mut self, text: &str) {
        while self.find(text).is_none() {
            self.fill();
        }
    }

    fn take(&mut self, length: usize) -> String {
        while self.bytes.len() < length {
            self.fill();
        }
        String::from_utf8(self.bytes.drain(..length).collect()).unwrap()
    }

    fn take_line(&mut self) -> String {
        self.read_until("\r\n");
        let length = self.find("\r\n").unwrap();
        let line = self.take(length);
        self.take(2);
        line
    }

    /// Takes a whole response.
    pub(crate) fn answer(&mut self) -> Answer {
        let status = self.take_line().split(' ').nth(1).unwrap().parse().unwrap();
        let mut length = None;
        loop {
            let line = self.take_line();
            match line.split_once(": ") {
                Some(("content-length", value)) => length = Some(value.parse().unwrap()),
                Some(_) => {}
                None => break,
            }
        }
        let chunks = match length {
            Some(length) => vec![self.take(length)],
            None => self.chunks(),
        };
        Answer { status, chunks }
    }

    fn chunks(&mut self) -> Vec<String> {
        let mut chunks = Vec::new();
        loop {
            let length = usize::from_str_radix(&self.take_line(), 16).unwrap();
            let chunk = self.take(length);
            assert_eq!(self.take_line(), "");
            if length == 0 {
                return chunks;
            }
            chunks.push(chunk);
        }
    }

    /// Waits for the server's close.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

impl Answer {
    /// The body as one object.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.chunks.concat()).unwrap()
    }

    /// The events; each has a chunk of its own.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self.chunks.iter().map(|chunk| chunk.strip_prefix("data: ").unwrap());
        let data = data.map(|data| data.strip_suffix("\n\n").unwrap()).filter(|data| *data != "[DONE]");
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// The texts of the content-bearing events, by the name of the field that holds them.
    pub(crate) fn contents(&self, field: &str) -> Vec<String> {
        let text = |event: &Value| {
            let choice = &event["choices"][0];
            let text = choice[field].as_str().or(choice["delta"][field].as_str())?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        self.events().iter().filter_map(text).collect()
    }

    /// Tokens of the text: its words.
    pub(crate) fn tokens(&self, field: &str) -> usize {
        self.text(field).split_whitespace().count()
    }

    /// All text.
    pub(crate) fn text(&self, field: &str) -> String {
        self.contents(field).concat()
    }
}
