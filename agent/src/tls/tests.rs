//! Calls of a TLS library and of sockets in, socket records in clear out.

mod bounds;
mod links;
mod records;

use std::collections::BTreeMap;

use wire::{
    Header, Kind,
    socket::{self, DIR_RECV, DIR_SEND, Network, SockId},
    tls,
};
use zerocopy::{FromBytes, IntoBytes};

use super::*;

const PID: u32 = 10;
/// Overhead of a record of TLS 1.3.
const OVERHEAD: usize = 17;
const NONE: u64 = 0;

struct Rig {
    links: Links,
    now: u64,
    pid: u32,
    tid: u32,
    offsets: BTreeMap<(char, u64, u8), u64>,
    said: Vec<String>,
    network: Network,
}

fn id(sock: u64) -> SockId {
    SockId { sock, birth_ns: if sock == NONE { 0 } else { 5 } }
}

/// Records with so many bytes of payload each.
fn cipher(kind: u8, payloads: &[usize]) -> Vec<u8> {
    let record = |n: &usize| {
        let [.., high, low] = n.to_be_bytes();
        [vec![kind, 3, 3, high, low], vec![0xaa; *n]].concat()
    };
    payloads.iter().flat_map(record).collect()
}

/// One record with this plaintext.
fn sealed(text: &str) -> Vec<u8> {
    cipher(23, &[text.len() + OVERHEAD])
}

impl Rig {
    fn new() -> Self {
        let (links, offsets, network) = (Links::default(), BTreeMap::new(), Network::default());
        Self { links, now: 0, pid: PID, tid: 1, offsets, said: Vec::new(), network }
    }

    /// With connections 1 and 2 that have shaken hands.
    fn shaken() -> Self {
        let mut rig = Self::new();
        for sock in [1, 2] {
            rig.open(sock, socket::ROLE_ACCEPTED, 0);
            rig.handshake(sock);
        }
        rig.said.clear();
        rig
    }

    fn header(&mut self, kind: Kind, len: usize) -> Header {
        self.now += 1000;
        let len = u32::try_from(len).unwrap();
        Header { abi: wire::ABI, kind: kind as u16, len, time_ns: self.now, tgid: self.pid, tid: self.tid }
    }

    fn take(&mut self, record: &[u8]) {
        let mut out = Vec::new();
        let taken = self.links.take(record, &mut out);
        self.said.extend(out.iter().map(|record| line(record)));
        if taken == Taken::Pass {
            self.said.push(format!("pass {}", line(record)));
        }
    }

    fn open(&mut self, sock: u64, role: u8, flags: u8) {
        let open = socket::Open {
            header: self.header(Kind::SocketOpen, size_of::<socket::Open>()),
            id: id(sock),
            local_addr: [0; 16],
            peer_addr: [0; 16],
            netns: 1,
            local_port: 443,
            peer_port: 1,
            family: 2,
            role,
            flags,
            reserved: 0,
        };
        self.take(open.as_bytes());
    }

    fn advance(&mut self, what: char, of: u64, dir: u8, len: usize) -> u64 {
        let offset = self.offsets.entry((what, of, dir)).or_default();
        *offset += len as u64;
        *offset - len as u64
    }

    fn call(&mut self, sock: u64, dir: u8, bytes: &[u8], result: i32) {
        let offset = self.advance('c', sock, dir, bytes.len());
        let (head, tail) = if bytes.len() <= socket::WHOLE {
            (bytes, &bytes[..0])
        } else {
            (&bytes[..socket::HEAD], &bytes[bytes.len() - socket::TAIL..])
        };
        let len = size_of::<socket::Data>() + head.len() + tail.len();
        let data = socket::Data {
            header: self.header(Kind::SocketData, len),
            id: id(sock),
            offset,
            network: self.network,
            result,
            requested: 0,
            head_len: u16::try_from(head.len()).unwrap(),
            tail_len: u16::try_from(tail.len()).unwrap(),
            syscall: 0,
            dir,
            flags: 0,
        };
        self.take(&[data.as_bytes(), head, tail].concat());
    }

    fn recv(&mut self, sock: u64, bytes: &[u8]) {
        self.call(sock, DIR_RECV, bytes, i32::try_from(bytes.len()).unwrap());
    }

    fn send(&mut self, sock: u64, bytes: &[u8]) {
        self.call(sock, DIR_SEND, bytes, i32::try_from(bytes.len()).unwrap());
    }

    /// A server's side of TLS 1.3.
    fn handshake(&mut self, sock: u64) {
        self.recv(sock, &cipher(22, &[512]));
        self.send(sock, &[cipher(22, &[122]), cipher(20, &[1]), cipher(23, &[27, 900, 281, 53])].concat());
        self.recv(sock, &[cipher(20, &[1]), cipher(23, &[53])].concat());
        self.send(sock, &cipher(23, &[250, 250]));
    }

    fn plain(&mut self, ssl: u64, sock: u64, dir: u8, text: &str, requested: usize) {
        let offset = self.advance('p', ssl, dir, text.len());
        let whole = text.len() <= socket::WHOLE;
        let (head, tail) =
            if whole { (text, "") } else { (&text[..socket::HEAD], &text[text.len() - socket::TAIL..]) };
        let data = tls::Data {
            header: self.header(Kind::TlsData, size_of::<tls::Data>() + head.len() + tail.len()),
            ssl: tls::SslId { ssl, birth_ns: 7 },
            sock: id(sock),
            offset,
            len: u32::try_from(text.len()).unwrap(),
            requested: u32::try_from(requested).unwrap(),
            head_len: u16::try_from(head.len()).unwrap(),
            tail_len: u16::try_from(tail.len()).unwrap(),
            dir,
            flags: 0,
            reserved: 0,
        };
        self.take(&[data.as_bytes(), head.as_bytes(), tail.as_bytes()].concat());
    }

    fn read(&mut self, ssl: u64, text: &str) {
        self.plain(ssl, NONE, DIR_RECV, text, 65536);
    }

    fn write(&mut self, ssl: u64, text: &str) {
        self.plain(ssl, NONE, DIR_SEND, text, text.len());
    }

    /// A request on a connection, read by its `SSL`.
    fn request(&mut self, sock: u64, ssl: u64, text: &str) {
        self.recv(sock, &sealed(text));
        self.read(ssl, text);
    }

    fn ack(&mut self, sock: u64, offset: u64) {
        let header = self.header(Kind::SocketAck, size_of::<socket::Ack>());
        self.take(socket::Ack { header, id: id(sock), offset, srtt_us: 9, retransmits: 0 }.as_bytes());
    }

    fn close(&mut self, sock: u64) {
        let header = self.header(Kind::SocketState, size_of::<socket::State>());
        let (old, new) = (socket::tcp::CLOSE_WAIT, socket::tcp::CLOSE);
        self.take(socket::State { header, id: id(sock), old, new, reserved: [0; 6] }.as_bytes());
    }

    /// Time passes.
    fn tick(&mut self, ns: u64) {
        self.now += ns;
        let header = self.header(Kind::Observation, size_of::<Header>());
        self.take(header.as_bytes());
    }

    /// What was said since the last time.
    fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }
}

/// A record in words; times in us.
fn line(record: &[u8]) -> String {
    let (header, _) = Header::read_from_prefix(record).unwrap();
    match Kind::from_u16(header.kind) {
        Some(Kind::SocketData) => {
            let (data, rest) = socket::Data::read_from_prefix(record).unwrap();
            let text = String::from_utf8_lossy(&rest[..rest.len().min(40)]).into_owned();
            let dir = if data.dir == DIR_RECV { "reads" } else { "writes" };
            let at = data.header.time_ns / 1000;
            format!("{} {dir} {}+{} {text:?} at {at}", data.id.sock, data.offset, data.result)
        }
        Some(Kind::TlsVerdict) => {
            let (verdict, _) = tls::Verdict::read_from_prefix(record).unwrap();
            let names = ["", "seen", "linked", "opaque", "unlinked", "contradicted", "unframed"];
            let name = names[usize::from(verdict.finding)];
            if verdict.bytes > 0 {
                return format!("{name} {} bytes", verdict.bytes);
            }
            format!("{name} {}", verdict.id.sock)
        }
        Some(Kind::SocketAck) => {
            let (ack, _) = socket::Ack::read_from_prefix(record).unwrap();
            format!("ack {} {}", ack.id.sock, ack.offset)
        }
        kind => format!("{kind:?}"),
    }
}

#[test]
fn a_connection_in_clear_passes() {
    let mut rig = Rig::new();
    rig.open(1, socket::ROLE_ACCEPTED, 0);
    rig.recv(1, b"POST / HTTP/1.1\r\n");
    rig.ack(1, 0);
    rig.close(1);
    let all = rig.said();
    assert!(all.iter().all(|line| line.starts_with("pass ")), "{all:?}");
    assert_eq!(all.len(), 4);
}

#[test]
fn a_handshake_is_no_request() {
    let mut rig = Rig::new();
    rig.open(1, socket::ROLE_ACCEPTED, 0);
    rig.handshake(1);
    assert_eq!(rig.said(), ["pass Some(SocketOpen)", "seen 1"]);
}

/// The program moves the ciphertext: the plaintext comes after what was read, and before what is written.
#[test]
fn plaintext_takes_the_times_of_its_socket_calls() {
    let mut rig = Rig::shaken();
    rig.recv(1, &sealed("request"));
    let read_at = rig.now / 1000;
    rig.read(7, "request");
    rig.write(7, "answer");
    rig.send(1, &sealed("answer"));
    let sent_at = rig.now / 1000;
    let expected = [
        "linked 1".to_owned(),
        format!("1 reads 0+7 \"request\" at {read_at}"),
        format!("1 writes 0+6 \"answer\" at {sent_at}"),
    ];
    assert_eq!(rig.said(), expected);
}

#[test]
fn a_connection_that_nobody_decrypts_is_opaque_once() {
    for closes in [false, true] {
        let mut rig = Rig::shaken();
        rig.recv(1, &cipher(23, &[300]));
        if closes {
            rig.close(1);
        } else {
            for _ in 0..3 {
                rig.send(1, &cipher(23, &[300]));
                rig.recv(1, &cipher(23, &[300]));
            }
        }
        let opaque = rig.said().iter().filter(|line| *line == "opaque 1").count();
        assert_eq!(opaque, 1, "closes: {closes}");
    }
    let mut rig = Rig::shaken();
    rig.close(1);
    assert_eq!(rig.said(), ["pass Some(SocketState)"], "no request was sent");
}

#[test]
fn ends_and_errors_pass() {
    let mut rig = Rig::shaken();
    rig.request(1, 7, "request");
    rig.said();
    rig.call(1, DIR_SEND, &[], -11);
    rig.call(1, DIR_RECV, &[], 0);
    let said = rig.said();
    assert!(said.len() == 2 && said.iter().all(|line| line.starts_with("pass ")), "{said:?}");
}

#[test]
fn hostile_records_are_survived() {
    let mut state = 1_u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap()
    };
    let mut links = Links::default();
    let kinds = [1, 2, 3, 5, 48, 0x100];
    for _ in 0..20_000 {
        let size = 24 + next() % 200;
        let mut record: Vec<u8> = (0..size).map(|_| [0, 1, 2, 3][next() % 4]).collect();
        let kind = kinds[next() % 6];
        let header = Header {
            abi: wire::ABI,
            kind,
            len: u32::try_from(next() % 260).unwrap(),
            time_ns: next() as u64,
            tgid: 1,
            tid: 1,
        };
        record[..24].copy_from_slice(header.as_bytes());
        links.take(&record, &mut Vec::new());
        links.take(&record[..next() % size], &mut Vec::new());
    }
}
