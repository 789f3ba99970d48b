//! A server whose answers are written out in the test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// One request as the server saw it.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Number of the connection.
    pub connection: usize,
    /// Head, in small letters.
    pub head: String,
    /// Parsed body.
    pub body: Value,
    /// Writing the answer failed: the client had gone.
    pub gone: bool,
}

/// Runs the generator against a server that answers the n-th request of a connection with `answer(connection, n)`
/// and closes when that is `None`. Pieces are written one by one.
pub(crate) fn run(
    args: &str,
    answer: impl Fn(usize, usize) -> Option<Vec<String>> + Send + Sync + 'static,
) -> (Vec<Value>, Vec<Seen>, String) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (collected, answer) = (Arc::clone(&seen), Arc::new(answer));
    let accept = std::thread::spawn(move || {
        let mut serving = Vec::new();
        for (connection, stream) in listener.incoming().enumerate() {
            let (seen, answer) = (Arc::clone(&collected), Arc::clone(&answer));
            let mut stream = stream.unwrap();
            // The last connection only ends the loop.
            let mut first = [0];
            if stream.peek(&mut first).is_ok_and(|n| n == 1) && first == *b"Q" {
                break;
            }
            serving
                .push(std::thread::spawn(move || while serve(connection, &mut stream, &*answer, &seen) {}));
        }
        // The clients are gone, so every connection ends.
        for thread in serving {
            thread.join().unwrap();
        }
    });
    let output = loadgen(&format!("--port {port} {args}"));
    TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(b"Q").unwrap();
    accept.join().unwrap();
    let summary = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{summary}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    (lines, seen, summary)
}

pub(crate) fn loadgen(args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loadgen")).args(args.split_whitespace()).output().unwrap()
}

/// Answers one request; false when the connection is over.
fn serve(
    connection: usize,
    stream: &mut TcpStream,
    answer: &dyn Fn(usize, usize) -> Option<Vec<String>>,
    seen: &Mutex<Vec<Seen>>,
) -> bool {
    let Some((head, body)) = read_request(stream) else { return false };
    let number = seen.lock().unwrap().iter().filter(|s: &&Seen| s.connection == connection).count();
    let pieces = answer(connection, number);
    let index = {
        let mut seen = seen.lock().unwrap();
        seen.push(Seen { connection, head, body, gone: false });
        seen.len() - 1
    };
    let close = pieces.is_none();
    for piece in pieces.into_iter().flatten() {
        if stream.write_all(piece.as_bytes()).is_err() {
            seen.lock().unwrap()[index].gone = true;
            return false;
        }
    }
    if close {
        let _ = stream.shutdown(Shutdown::Both);
    }
    !close
}

fn read_request(stream: &TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_lowercase();
    let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, serde_json::from_slice(&body).ok()?))
}
