//! The records of one request, made by hand: what the kernel side and discovery would have written.

use wire::{
    Header, Kind,
    cuda::{Step, Work},
    socket::{self, SockId},
};
use zerocopy::IntoBytes as _;

/// The only process and thread of the recorded server.
pub(crate) const PID: u32 = 4711;
pub(crate) const PORT: u16 = 8000;
/// The connection of [`one_request`].
const CONNECTION: SockId = SockId { sock: 0xfff0, birth_ns: 900_000_000 };
/// The head of every answer.
pub(crate) const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
/// When the request is read.
pub(crate) const READ_NS: u64 = 1_000_000_000;

pub(crate) fn header(kind: Kind, len: usize, time_ns: u64) -> Header {
    Header { abi: wire::ABI, kind: kind as u16, len: len.try_into().unwrap(), time_ns, tgid: PID, tid: PID }
}

fn observation(time_ns: u64, json: &str) -> Vec<u8> {
    let header =
        Header { tgid: 0, tid: 0, ..header(Kind::Observation, size_of::<Header>() + json.len(), time_ns) };
    [header.as_bytes(), json.as_bytes()].concat()
}

fn clock(time_ns: u64, wall_ns: u64) -> Vec<u8> {
    observation(time_ns, &format!(r#"{{"type":"clock","wall_ns":{wall_ns}}}"#))
}

/// A connection that the server accepted.
pub(crate) fn open(id: SockId, time_ns: u64) -> Vec<u8> {
    let mut loopback = [0; 16];
    loopback[..4].copy_from_slice(&[127, 0, 0, 1]);
    socket::Open {
        header: header(Kind::SocketOpen, size_of::<socket::Open>(), time_ns),
        id,
        local_addr: loopback,
        peer_addr: loopback,
        netns: 1,
        local_port: PORT,
        peer_port: 50_000,
        family: 2,
        role: socket::ROLE_ACCEPTED,
        flags: 0,
        reserved: 0,
    }
    .as_bytes()
    .to_vec()
}

/// What goes over a connection, with the running offset of each direction.
pub(crate) struct Wire {
    id: SockId,
    offsets: [u64; 2],
}

impl Wire {
    /// Nothing went over it yet.
    pub(crate) fn new(id: SockId) -> Self {
        Self { id, offsets: [0; 2] }
    }

    /// One call.
    pub(crate) fn data(&mut self, dir: u8, time_ns: u64, bytes: &str) -> Vec<u8> {
        let offset = &mut self.offsets[usize::from(dir)];
        let data = socket::Data {
            header: header(Kind::SocketData, size_of::<socket::Data>() + bytes.len(), time_ns),
            id: self.id,
            offset: *offset,
            network: socket::Network::default(),
            result: bytes.len().try_into().unwrap(),
            requested: 0,
            head_len: bytes.len().try_into().unwrap(),
            tail_len: 0,
            syscall: 0,
            dir,
            flags: 0,
        };
        *offset += bytes.len() as u64;
        [data.as_bytes(), bytes.as_bytes()].concat()
    }
}

fn step(first_ns: u64, result_ns: u64) -> Vec<u8> {
    Step {
        header: header(Kind::Step, size_of::<Step>(), result_ns),
        work: Work { launches: 10, copies: 1, d2h_bytes: 4, ..Work::default() },
        enter_ns: first_ns + 1_000,
        first_ns,
        last_ns: first_ns + 500,
        stream: 1,
        event: 0,
        graph: 0,
        row: 0,
        flags: 0,
        result: 0,
        context: 0,
    }
    .as_bytes()
    .to_vec()
}

/// What comes before any connection.
pub(crate) fn beginning() -> Vec<Vec<u8>> {
    let start = r#"{"type":"start","agent":"0","kernel":"6","rows":["cuStreamSynchronize"]}"#;
    let server = format!(
        r#"{{"type":"process","pid":{PID},"start_ticks":1,"comm":"server","service":"s","service_name":"server","cuda":true,"ports":[{{"netns":1,"port":{PORT}}}]}}"#
    );
    vec![
        observation(1, start),
        observation(2, &server),
        clock(READ_NS - 100_000_000, 1_700_000_000_000_000_000),
    ]
}

/// A request for a stream.
pub(crate) fn request() -> String {
    let body = r#"{"model":"tiny","stream":true,"messages":[{"role":"user","content":"a secret prompt"}]}"#;
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-request-id: r-1\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn chunk(data: &str) -> String {
    format!("{:x}\r\ndata: {data}\n\n\r\n", data.len() + 8)
}

/// An event with content.
pub(crate) fn token(text: &str) -> String {
    chunk(&format!(
        r#"{{"object":"chat.completion.chunk","model":"tiny","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#
    ))
}

/// The end of an answer.
pub(crate) fn end() -> String {
    let finish = r#"{"object":"chat.completion.chunk","model":"tiny","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let usage = r#"{"object":"chat.completion.chunk","model":"tiny","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}"#;
    chunk(finish) + &chunk(usage) + &chunk("[DONE]") + "0\r\n\r\n"
}

/// One streaming request of a server with one thread: 1 ms of preparation, a prefill of 10 ms, two decode steps.
pub(crate) fn one_request() -> Vec<Vec<u8>> {
    let (us, mut wire) = (|us: u64| READ_NS + us * 1_000, Wire::new(CONNECTION));
    let mut records = beginning();
    records.extend([
        open(CONNECTION, READ_NS),
        wire.data(socket::DIR_RECV, READ_NS, &request()),
        step(us(1_000), us(11_000)),
        wire.data(socket::DIR_SEND, us(11_200), &(HEAD.to_owned() + &token("a secret answer"))),
        step(us(11_500), us(16_500)),
        wire.data(socket::DIR_SEND, us(16_700), &token("b")),
        step(us(17_000), us(22_000)),
        wire.data(socket::DIR_SEND, us(22_200), &(token("c") + &end())),
        clock(READ_NS + 200_000_000, 1_700_000_000_300_000_000),
        observation(READ_NS + 300_000_000, r#"{"type":"end"}"#),
    ]);
    records
}
