//! Records as the kernel side makes them, of one process that serves one port.

use agent::decode::{ListenPort, Observation, ProcessSeen};
use wire::{Header, Kind, socket};
use zerocopy::IntoBytes;

/// The process.
pub const PID: u32 = 10;
const PORT: u16 = 8000;

/// What was captured of a call, and what the call came to.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'b> {
    /// Its first bytes.
    pub head: &'b [u8],
    /// Its last bytes.
    pub tail: &'b [u8],
    /// Bytes moved, or the negative error.
    pub result: i32,
    /// Bytes that were asked for.
    pub requested: u32,
}

impl<'b> Captured<'b> {
    /// A call that is captured whole.
    pub fn whole(bytes: &'b [u8]) -> Self {
        let result = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
        Self { head: bytes, tail: &[], result, requested: result.unsigned_abs() }
    }

    /// A call that moved nothing.
    pub fn failed(result: i32) -> Self {
        Self { head: &[], tail: &[], result, requested: 100 }
    }
}

/// Makes records; its clock goes on by a microsecond with each.
#[derive(Clone, Debug)]
pub struct Maker {
    now_ns: u64,
    offsets: Vec<[u64; 2]>,
    /// What it made.
    pub records: Vec<Vec<u8>>,
}

impl Maker {
    /// For so many sockets, numbered from 0; the process is known.
    pub fn new(sockets: usize) -> Self {
        let mut maker = Self { now_ns: 0, offsets: vec![[0; 2]; sockets], records: Vec::new() };
        let wall_ns = 1_700_000_000_000_000_000;
        maker.observe(&Observation::Clock { wall_ns });
        maker.observe(&Observation::Process(ProcessSeen {
            pid: PID,
            start_ticks: 1,
            comm: "python".into(),
            service: "key".into(),
            service_name: "service".into(),
            container: None,
            cuda: true,
            ports: vec![ListenPort { netns: 1, port: PORT }],
        }));
        maker
    }

    /// What the agent itself saw.
    pub fn observe(&mut self, observation: &Observation) {
        self.now_ns += 1000;
        self.records.push(observation.to_record(self.now_ns));
    }

    fn header(&mut self, kind: Kind, len: usize) -> Header {
        self.now_ns += 1000;
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        Header { abi: wire::ABI, kind: kind as u16, len, time_ns: self.now_ns, tgid: PID, tid: PID + 1 }
    }

    fn id(sock: usize) -> socket::SockId {
        socket::SockId { sock: sock as u64 + 1, birth_ns: 500 }
    }

    /// A socket is seen.
    pub fn open(&mut self, sock: usize, role: u8, flags: u8) {
        let open = socket::Open {
            header: self.header(Kind::SocketOpen, size_of::<socket::Open>()),
            id: Self::id(sock),
            local_addr: [127; 16],
            peer_addr: [10; 16],
            netns: 1,
            local_port: PORT,
            peer_port: 4321,
            family: 2,
            role,
            flags,
            reserved: 0,
        };
        self.records.push(open.as_bytes().to_vec());
    }

    /// A call.
    pub fn call(&mut self, sock: usize, dir: u8, call: Captured<'_>) {
        let payload = [call.head, call.tail].concat();
        let data = socket::Data {
            header: self.header(Kind::SocketData, size_of::<socket::Data>() + payload.len()),
            id: Self::id(sock),
            offset: self.offsets[sock][usize::from(dir)],
            network: socket::Network::default(),
            result: call.result,
            requested: call.requested,
            head_len: u16::try_from(call.head.len()).unwrap_or(u16::MAX),
            tail_len: u16::try_from(call.tail.len()).unwrap_or(u16::MAX),
            syscall: 0,
            dir,
            flags: 0,
        };
        self.skip(sock, dir, u64::try_from(call.result).unwrap_or(0));
        self.records.push([data.as_bytes(), &payload].concat());
    }

    /// Bytes go by without a record.
    pub fn skip(&mut self, sock: usize, dir: u8, len: u64) {
        self.offsets[sock][usize::from(dir)] += len;
    }

    /// The connection goes to another state.
    pub fn state(&mut self, sock: usize, old: u8, new: u8) {
        let header = self.header(Kind::SocketState, size_of::<socket::State>());
        let state = socket::State { header, id: Self::id(sock), old, new, reserved: [0; 6] };
        self.records.push(state.as_bytes().to_vec());
    }

    /// Everything written so far is acknowledged.
    pub fn ack(&mut self, sock: usize) {
        let header = self.header(Kind::SocketAck, size_of::<socket::Ack>());
        let offset = self.offsets[sock][usize::from(socket::DIR_SEND)];
        let ack = socket::Ack { header, id: Self::id(sock), offset, srtt_us: 250, retransmits: 0 };
        self.records.push(ack.as_bytes().to_vec());
    }
}
