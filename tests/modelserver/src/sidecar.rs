//! A process beside the server, as exporters and log shippers are: it listens, answers, and nobody of the server talks to
//! it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nserver: sidecar\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nup\n";

/// Answers until the standard input ends.
pub(crate) fn run() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(answer(&stream))));
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

/// One request, one answer.
fn answer(mut stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.take(16 << 10));
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    stream.write_all(ANSWER)
}
