//! Builds records as the kernel side would, and prints what the tracker makes of them.

use std::fmt::Write as _;

use wire::{Header, Kind, process, socket};
use zerocopy::IntoBytes;

use crate::{
    decode::{self, ListenPort, Observation, ProcessSeen},
    health::Health,
    request::record::Outcome,
    track::{Exchange, TrackSettings, Tracked, Tracker},
};

pub(crate) const PID: u32 = 10;
pub(crate) const TID: u32 = 11;
pub(crate) const PORT: u16 = 8000;

/// A linear congruential generator: the same numbers in every run.
pub(crate) struct Lcg(u64);

impl Lcg {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next()).unwrap() % n
    }
}

/// A tracker with one service, and a clock that every record moves on by 1 us.
pub(crate) struct Rig {
    pub tracker: Tracker,
    pub health: Health,
    pub now: u64,
    pub out: Vec<Tracked>,
    /// All records as they are after processing.
    pub records: Vec<Vec<u8>>,
    offsets: std::collections::HashMap<(u64, u8), u64>,
    /// Of the calls to come.
    pub network: socket::Network,
    /// Process that makes them.
    pub pid: u32,
    peer_addr: [u8; 16],
}

/// Address of the other end of connections.
const FAR: [u8; 16] = [10, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

pub(crate) fn id(sock: u64) -> socket::SockId {
    socket::SockId { sock, birth_ns: 500 }
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(TrackSettings::default())
    }

    pub(crate) fn with(settings: TrackSettings) -> Self {
        let mut rig = Self {
            tracker: Tracker::new(settings),
            health: Health::default(),
            now: 0,
            out: Vec::new(),
            records: Vec::new(),
            offsets: std::collections::HashMap::default(),
            network: socket::Network::default(),
            pid: PID,
            peer_addr: FAR,
        };
        rig.process(PID);
        rig
    }

    pub(crate) fn process(&mut self, pid: u32) {
        let seen = ProcessSeen {
            pid,
            start_ticks: 1,
            comm: "python".into(),
            service: "svc".into(),
            service_name: "svc".into(),
            container: None,
            cuda: true,
            ports: vec![ListenPort { netns: 1, port: PORT }],
        };
        self.observe(&Observation::Process(seen));
    }

    pub(crate) fn observe(&mut self, observation: &Observation) {
        self.now += 1000;
        self.record(observation.to_record(self.now));
    }

    pub(crate) fn record(&mut self, mut record: Vec<u8>) {
        let event = decode::decode(&mut record).unwrap();
        self.tracker.feed(event, &mut self.health, &mut self.out);
        self.records.push(record);
    }

    pub(crate) fn header(&mut self, kind: Kind, len: usize) -> Header {
        self.now += 1000;
        let len = u32::try_from(len).unwrap();
        Header { abi: wire::ABI, kind: kind as u16, len, time_ns: self.now, tgid: self.pid, tid: TID }
    }

    pub(crate) fn open(&mut self, sock: u64, role: u8, flags: u8) {
        self.open_on(sock, role, flags, PORT);
    }

    pub(crate) fn open_on(&mut self, sock: u64, role: u8, flags: u8, local_port: u16) {
        self.open_between(sock, role, flags, [local_port, 4321]);
    }

    /// One whose other end is as far away as this one.
    pub(crate) fn open_here(&mut self, sock: u64, role: u8, flags: u8, ports: [u16; 2]) {
        self.peer_addr = [127; 16];
        self.open_between(sock, role, flags, ports);
        self.peer_addr = FAR;
    }

    fn open_between(&mut self, sock: u64, role: u8, flags: u8, [local_port, peer_port]: [u16; 2]) {
        let open = socket::Open {
            header: self.header(Kind::SocketOpen, size_of::<socket::Open>()),
            id: id(sock),
            local_addr: [127; 16],
            peer_addr: self.peer_addr,
            netns: 1,
            local_port,
            peer_port,
            family: 2,
            role,
            flags,
            reserved: 0,
        };
        self.record(open.as_bytes().to_vec());
    }

    pub(crate) fn accept(&mut self, sock: u64) {
        self.open(sock, socket::ROLE_ACCEPTED, 0);
    }

    /// A call of which everything but `gap` bytes behind the first `head` is captured.
    pub(crate) fn call(
        &mut self,
        sock: u64,
        dir: u8,
        bytes: &[u8],
        captured: (usize, usize),
        requested: usize,
    ) {
        self.piece(sock, dir, bytes, captured, requested, 0);
    }

    /// The same with these flags.
    fn piece(
        &mut self,
        sock: u64,
        dir: u8,
        bytes: &[u8],
        captured: (usize, usize),
        requested: usize,
        flags: u8,
    ) {
        let offset = self.offsets.entry((sock, dir)).or_default();
        let at = *offset;
        *offset += bytes.len() as u64;
        let (head, tail) = captured;
        let payload = [&bytes[..head], &bytes[bytes.len() - tail..]].concat();
        let data = socket::Data {
            header: self.header(Kind::SocketData, size_of::<socket::Data>() + payload.len()),
            id: id(sock),
            offset: at,
            network: self.network,
            result: i32::try_from(bytes.len()).unwrap(),
            requested: u32::try_from(requested).unwrap(),
            head_len: u16::try_from(head).unwrap(),
            tail_len: u16::try_from(tail).unwrap(),
            syscall: 0,
            dir,
            flags,
        };
        self.record([data.as_bytes(), &payload].concat());
    }

    /// A call as the kernel side captures it where it was asked for all of it. `lost`: number of a piece whose record
    /// is lost.
    pub(crate) fn whole(&mut self, sock: u64, dir: u8, bytes: &[u8], lost: Option<usize>) {
        let last = bytes.len().div_ceil(socket::WHOLE) - 1;
        for (number, piece) in bytes.chunks(socket::WHOLE).enumerate() {
            let begins = if number == 0 { 0 } else { socket::FLAG_CONTINUED };
            let ends = if number == last { 0 } else { socket::FLAG_MORE };
            if lost == Some(number) {
                self.lose(sock, dir, piece.len());
                continue;
            }
            let requested = bytes.len() - number * socket::WHOLE;
            self.piece(sock, dir, piece, (piece.len(), 0), requested, begins | ends);
            self.now -= 1000;
        }
        self.now += 1000;
    }

    /// Sockets whose long calls were asked for.
    pub(crate) fn wanted(&self) -> Vec<u64> {
        let sock = |tracked: &Tracked| match tracked {
            Tracked::WantWhole(id) => Some(id.sock),
            _ => None,
        };
        self.out.iter().filter_map(sock).collect()
    }

    /// A call as the kernel side captures it.
    fn captured(&mut self, sock: u64, dir: u8, bytes: &[u8]) {
        let captured =
            if bytes.len() <= socket::WHOLE { (bytes.len(), 0) } else { (socket::HEAD, socket::TAIL) };
        self.call(sock, dir, bytes, captured, bytes.len());
    }

    pub(crate) fn recv(&mut self, sock: u64, bytes: impl AsRef<[u8]>) {
        self.captured(sock, socket::DIR_RECV, bytes.as_ref());
    }

    pub(crate) fn send(&mut self, sock: u64, bytes: impl AsRef<[u8]>) {
        self.captured(sock, socket::DIR_SEND, bytes.as_ref());
    }

    /// Bytes whose record is lost.
    pub(crate) fn lose(&mut self, sock: u64, dir: u8, len: usize) {
        *self.offsets.entry((sock, dir)).or_default() += len as u64;
    }

    pub(crate) fn rewind(&mut self, sock: u64, dir: u8, len: usize) {
        *self.offsets.entry((sock, dir)).or_default() -= len as u64;
    }

    /// Bytes of which no call told, and that the kernel side has noticed.
    pub(crate) fn unseen(&mut self, sock: u64, dir: u8, len: usize) {
        self.lose(sock, dir, len);
        self.bare(sock, dir, 0, socket::FLAG_UNSEEN);
    }

    pub(crate) fn fail(&mut self, sock: u64, dir: u8, result: i32) {
        self.bare(sock, dir, result, 0);
    }

    fn bare(&mut self, sock: u64, dir: u8, result: i32, flags: u8) {
        let offset = *self.offsets.entry((sock, dir)).or_default();
        let data = socket::Data {
            header: self.header(Kind::SocketData, size_of::<socket::Data>()),
            id: id(sock),
            offset,
            network: socket::Network::default(),
            result,
            requested: 100,
            head_len: 0,
            tail_len: 0,
            syscall: 0,
            dir,
            flags,
        };
        self.record(data.as_bytes().to_vec());
    }

    /// A change of state; `tgid` is whose context it happened in.
    pub(crate) fn state(&mut self, sock: u64, old: u8, new: u8, tgid: u32) {
        let mut header = self.header(Kind::SocketState, size_of::<socket::State>());
        header.tgid = tgid;
        let state = socket::State { header, id: id(sock), old, new, reserved: [0; 6] };
        self.record(state.as_bytes().to_vec());
    }

    /// Everything written up to `offset` is acknowledged.
    pub(crate) fn ack(&mut self, sock: u64, offset: u64, retransmits: u32) {
        let mut header = self.header(Kind::SocketAck, size_of::<socket::Ack>());
        (header.tgid, header.tid) = (0, 0);
        let ack = socket::Ack { header, id: id(sock), offset, srtt_us: 250, retransmits };
        self.record(ack.as_bytes().to_vec());
    }

    pub(crate) fn exit(&mut self, pid: u32) {
        let mut header = self.header(Kind::Exit, size_of::<process::Process>());
        header.tgid = pid;
        let record = process::Process { header, child: 0, row: 0, comm: [0; 16] };
        self.record(record.as_bytes().to_vec());
    }

    /// The finished exchanges.
    pub(crate) fn finished(&self) -> Vec<&Exchange> {
        self.out.iter().filter_map(|t| if let Tracked::Finished(e) = t { Some(&**e) } else { None }).collect()
    }

    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        self.finished().iter().map(|e| e.outcome.unwrap()).collect()
    }

    /// Everything that came out, a line each; times in us.
    pub(crate) fn print(&self) -> String {
        let mut text = String::new();
        for tracked in &self.out {
            match tracked {
                Tracked::Begun { .. } | Tracked::Forgotten { .. } => continue,
                Tracked::RequestRead { exchange, service, time_ns, tid, .. } => {
                    writeln!(text, "read {} service {} at {} by {tid}", exchange.0, service.0, time_ns / 1000)
                }
                Tracked::Content { exchange, event } => {
                    writeln!(text, "content {} at {} by {}", exchange.0, event.time_ns / 1000, event.tid)
                }
                Tracked::Finished(exchange) => writeln!(text, "{}", line(exchange)),
                other => writeln!(text, "{other:?}"),
            }
            .unwrap();
        }
        for (reason, count) in &self.health.ignored {
            writeln!(text, "ignored {reason} {count}").unwrap();
        }
        text
    }

    /// Feeds the processed records to a new tracker: it must come to the same.
    pub(crate) fn assert_replays(&self) {
        let mut replay = Self::new();
        replay.out.clear();
        replay.records.clear();
        replay.tracker = Tracker::new(TrackSettings::default());
        for record in &self.records {
            replay.record(record.clone());
        }
        for (i, (again, once)) in replay.records.iter().zip(&self.records).enumerate() {
            let text = |record: &[u8]| record.escape_ascii().to_string();
            assert!(again == once, "masking record {i} is not idempotent:\n{}\n{}", text(once), text(again));
        }
        let (again, once) = (replay.print(), self.print());
        let differing = once.lines().zip(again.lines()).enumerate().find(|(_, (a, b))| a != b);
        assert_eq!(differing, None);
        assert_eq!(once.len(), again.len());
    }
}

fn line(e: &Exchange) -> String {
    let us = |ns: Option<u64>| ns.map_or("-".into(), |ns| (ns / 1000).to_string());
    let mut text = format!(
        "done {} {} {} {} status {} {:?} in {}..{} ({} B) out {}..{} ({} B)",
        e.id.unwrap().0,
        e.method.as_deref().unwrap_or("-"),
        e.path.as_deref().unwrap_or("-"),
        e.api.as_deref().unwrap_or("-"),
        e.status.map_or("-".into(), |s| s.to_string()),
        e.outcome.unwrap(),
        us(e.first_byte_in_ns),
        us(e.last_byte_in_ns),
        e.bytes_in,
        us(e.first_byte_out_ns),
        us(e.last_byte_out_ns),
        e.bytes_out,
    );
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            write!(text, " {name} {value}").unwrap();
        }
    };
    add("model", e.model.clone());
    add("streaming", e.streaming.map(|s| s.to_string()));
    add("first_token", e.first_token_ns.map(|ns| (ns / 1000).to_string()));
    add("content", (e.content_total > 0).then(|| e.content_total.to_string()));
    add("finish", e.finish_reason.clone());
    add(
        "tokens",
        (e.input_tokens.is_some() || e.output_tokens.is_some())
            .then(|| format!("{:?}/{:?}", e.input_tokens, e.output_tokens)),
    );
    add("blocked", (e.blocked_ns > 0).then(|| (e.blocked_ns / 1000).to_string()));
    add("close", e.close_ns.map(|ns| (ns / 1000).to_string()));
    add("request_id", e.request_id.clone());
    add("probe", e.probe.then(|| "yes".into()));
    add("flags", (!e.flags.is_empty()).then(|| format!("{:?}", e.flags)));
    text
}
