//! What peers should not send to a watched port, beside clients that do nothing wrong.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::agent::{Agent, Follower, Record};
use system::run::SETTLE_LIMIT;
use system::sink::{ANSWER, Sink};
use system::wait;

const LIMIT: Duration = Duration::from_secs(30);
/// Most memory of the agent, KiB: what connections may hold together (64 MiB), the ring buffer (32 MiB, mapped twice),
/// the connections themselves, and the agent with nothing to do.
const MOST_KIB: u64 = 224 * 1024;
/// As many as fit twice, for both ends, into what a process may open.
const HALF_HEADS: usize = 9000;
/// Bytes of each, which together are more than connections may hold.
const HALF_HEAD: usize = 12 * 1024;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

struct Rig {
    sink: Sink,
    agent: Agent,
    follower: Follower,
    good: TcpStream,
    asked: usize,
}

impl Rig {
    fn set(dir: &Path) -> Result<Self> {
        let answers = [(&b"POST /good"[..], ANSWER.to_vec())].into_iter().chain(bad_answers()).collect();
        let sink = Sink::start(answers)?;
        let agent = sink.watched(dir, "[ring]\nsize_bytes = 33554432\n")?;
        let follower = agent.follow(dir)?;
        let good = sink.connect()?;
        good.set_read_timeout(Some(LIMIT))?;
        Ok(Self { sink, agent, follower, good, asked: 0 })
    }

    /// A request like any other, on a connection of its own that stays.
    fn ask(&mut self) -> Result<()> {
        let id = self.asked;
        let request =
            format!("POST /good HTTP/1.1\r\nx-request-id: good-{id}\r\nContent-Length: 2\r\n\r\n{{}}");
        self.good.write_all(request.as_bytes())?;
        let mut answer = [0; ANSWER.len()];
        self.good.read_exact(&mut answer)?;
        self.asked += 1;
        Ok(())
    }

    /// Waits for the records of all good requests.
    fn settle(&mut self) -> Result<()> {
        let asked = self.asked;
        let good = |records: &[Record]| records.iter().filter(|record| is_good(record)).count();
        self.follower.wait("the good requests", self.sink.port, SETTLE_LIMIT, |all| good(all) >= asked)?;
        Ok(())
    }

    fn status(&self, of: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.agent.process.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(of)).context("no such line")?;
        line.trim_end_matches("kB").trim().parse().context("no number")
    }

    /// Every good request is there once and right, and the agent took no more memory than it may.
    fn judge(mut self) -> Result<Agent> {
        let asked = self.asked;
        self.settle()?;
        let most = self.status("VmHWM:")?;
        let health = self.agent.status()?.health;
        let counts = format!("{:?} {:?}", health.ignored, health.limits);
        writeln!(io::stdout().lock(), "{asked} good requests, at most {most} KiB; {counts}")?;
        ensure!(health.dropped() == 0, "records were lost, so nothing can be said: {health:#?}");
        ensure!(most < MOST_KIB, "the agent took {most} KiB");
        let records = self.follower.records(self.sink.port)?;
        let records: Vec<_> = records.iter().filter(|record| is_good(record)).collect();
        let mut ids: Vec<_> = records.iter().filter_map(|record| record.request_id.as_deref()).collect();
        ids.sort_unstable();
        ids.dedup();
        ensure!(ids.len() == asked && records.len() == asked, "{} records of {asked}", records.len());
        for record in records {
            let right = record.status == Some(200)
                && record.outcome.as_deref() == Some("ok")
                && record.path.as_deref() == Some("/good")
                && record.flags.is_empty();
            ensure!(right, "disturbed: {record:#?}");
        }
        self.sink.stop()?;
        Ok(self.agent)
    }
}

fn is_good(record: &Record) -> bool {
    record.request_id.as_deref().is_some_and(|id| id.starts_with("good-"))
}

/// Garbage of every kind, to the server and from it: others' requests are as they were, and what was not understood
/// is counted.
pub(crate) fn bytes(dir: &Path) -> Result<()> {
    let mut rig = Rig::set(dir)?;
    let kinds = kinds();
    for (name, bytes) in &kinds {
        send(&rig.sink, bytes).with_context(|| format!("while sending {name}"))?;
        rig.ask().with_context(|| format!("after {name}"))?;
    }
    for (request, _) in bad_answers() {
        send(&rig.sink, &[request, b" HTTP/1.1\r\n\r\n"].concat())?;
        rig.ask()?;
    }
    let mut agent = rig.judge()?;
    let health = agent.status()?.health;
    for reason in ["not_http1", "bad_request", "bad_response", "bad_frame", "http2_headers_unknown"] {
        ensure!(health.ignored.contains_key(reason), "no {reason}: {:#?}", health.ignored);
    }
    ensure!(health.limits.contains_key("http2_streams"), "{:#?}", health.limits);
    agent.stop()
}

/// Sends it and waits until the server has read all of it.
fn send(sink: &Sink, bytes: &[u8]) -> Result<()> {
    let mut stream = sink.connect()?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(bytes)?;
    stream.shutdown(Shutdown::Write)?;
    let _ = stream.read_to_end(&mut Vec::new());
    Ok(())
}

fn post(headers: &str, body: &[u8]) -> Vec<u8> {
    [b"POST /x HTTP/1.1\r\n", headers.as_bytes(), b"\r\n\r\n", body].concat()
}

/// What goes to the server.
fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let length = |value: &str| post(&format!("Content-Length: {value}"), b"abc");
    let long = |len: usize, octet: u8| vec![octet; len];
    let chunked = |body: &[u8]| post("Transfer-Encoding: chunked", body);
    let json = |body: &[u8]| post(&format!("Content-Length: {}", body.len()), body);
    let mut kinds = vec![
        ("a huge length", length("99999999999999999999")),
        ("the largest length", length("18446744073709551615")),
        ("a negative length", length("-1")),
        ("two lengths", length("1\r\nContent-Length: 2")),
        ("a length that is none", length("0x10")),
        ("a header line of a mebibyte", post(&format!("X: {}", "a".repeat(1 << 20)), b"")),
        ("a target of a mebibyte", [b"GET /", &long(1 << 20, b'a')[..], b" HTTP/1.1\r\n\r\n"].concat()),
        ("100,000 header lines", post(&"a:b\r\n".repeat(100_000), b"")),
        ("an endless chunk size", chunked(&long(100_000, b'F'))),
        ("an endless chunk extension", chunked(&[b"1;", &long(100_000, b'e')[..]].concat())),
        ("a huge chunk", chunked(b"7fffffffffffffff\r\nabc")),
        ("endless trailers", chunked(&[b"0\r\n", &b"a: b\r\n".repeat(50_000)[..]].concat())),
        ("NULs", long(1 << 16, 0)),
        ("NULs in a head", post(&"\0".repeat(1000), b"")),
        ("deep JSON", json(&long(1_000_000, b'['))),
        ("deep objects", json(&b"{\"a\":".repeat(100_000))),
        ("a string without end", json(&[b"{\"model\":\"", &long(1 << 20, b'm')[..]].concat())),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03garbage".to_vec()),
        ("pipelined without end", b"GET /p HTTP/1.1\r\n\r\n".repeat(5000)),
        ("random bytes", random(1 << 20)),
    ];
    kinds.extend(http2_kinds());
    kinds
}

fn frame(kind: u8, flags: u8, stream: usize, payload: &[u8]) -> Vec<u8> {
    let [.., long, len, short] = payload.len().to_be_bytes();
    let stream = u32::try_from(stream).unwrap_or(0).to_be_bytes();
    [&[long, len, short, kind, flags][..], &stream, payload].concat()
}

fn http2_kinds() -> Vec<(&'static str, Vec<u8>)> {
    let begin = |rest: &[u8]| [PREFACE, &frame(4, 0, 0, b""), rest].concat();
    let each = |count: usize, frames: &dyn Fn(usize) -> Vec<u8>| {
        begin(&(0..count).flat_map(frames).collect::<Vec<_>>())
    };
    let get = b"\x82\x86\x84";
    // `:path` of 1,000 octets goes to the table, and then stands 4,000 times in each block by its index.
    let insert = [&b"\x82\x44\x7f\xe9\x06"[..], &[b'a'; 1000]].concat();
    let bomb = |n: usize| frame(1, 5, 3 + 2 * n, &[0xbe; 4000]);
    let tables = |n: usize| {
        let field = [&b"\x40\x7f\xf3\x05"[..], &[b'n'; 882], b"\x7f\x71", &[b'v'; 240]].concat();
        frame(1, 5, 1 + 2 * n, &[get, &field[..]].concat())
    };
    vec![
        ("HPACK bombs", begin(&[frame(1, 5, 1, &insert), (0..200).flat_map(bomb).collect()].concat())),
        ("HPACK tables", each(2000, &tables)),
        ("huge HPACK integers", each(100, &|n| frame(1, 5, 1 + 2 * n, &[0xff; 1000]))),
        (
            "headers without end",
            begin(&[frame(1, 1, 1, get), frame(9, 0, 1, &[0; 1000]).repeat(1000)].concat()),
        ),
        ("a flood of settings", each(10_000, &|_| frame(4, 0, 0, &[0, 5, 0, 0xff, 0xff, 0xff]))),
        ("a flood of pings", each(10_000, &|_| frame(6, 0, 0, &[0; 8]))),
        ("a flood of empty data", begin(&[frame(1, 4, 1, get), frame(0, 0, 1, b"").repeat(10_000)].concat())),
        (
            "rapid resets",
            each(10_000, &|n| [frame(1, 5, 1 + 2 * n, get), frame(3, 0, 1 + 2 * n, &[0; 4])].concat()),
        ),
        ("10,000 streams", each(10_000, &|n| frame(1, 4, 1 + 2 * n, get))),
        ("a frame of 16 MiB", begin(b"\xff\xff\xff\x00\x00\x00\x00\x00\x01abc")),
        (
            "a huge gRPC message",
            begin(&[frame(1, 4, 1, get), frame(0, 0, 1, b"\0\xff\xff\xff\xffabc")].concat()),
        ),
        ("random frames", begin(&random(1 << 18))),
    ]
}

/// What the server answers to whom.
fn bad_answers() -> Vec<(&'static [u8], Vec<u8>)> {
    let ok =
        |headers: &str, body: &[u8]| [b"HTTP/1.1 200 OK\r\n", headers.as_bytes(), b"\r\n\r\n", body].concat();
    vec![
        (b"GET /random", random(1 << 16)),
        (b"GET /nul", vec![0; 1 << 16]),
        (b"GET /length", ok("Content-Length: -5", b"abc")),
        (b"GET /chunk", ok("Transfer-Encoding: chunked", &[b'f'; 1 << 16])),
        (b"GET /head", ok(&format!("X: {}", "a".repeat(1 << 20)), b"")),
        (b"GET /json", ok("Content-Type: application/json\r\nContent-Length: 1000000", &[b'['; 1_000_000])),
        (
            b"GET /events",
            ok("Content-Type: text/event-stream", &b"data: {\"choices\":[{\"text\":\"a\"\n\n".repeat(5000)),
        ),
        (b"GET /interim", b"HTTP/1.1 100 Continue\r\n\r\n".repeat(5000)),
    ]
}

/// The same in every run.
fn random(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// Thousands of heads that never end hold no more than they may, and give up what they hold one by one: no record is
/// wrong.
pub(crate) fn half_heads(dir: &Path) -> Result<()> {
    let mut rig = Rig::set(dir)?;
    let head = format!("POST /slow HTTP/1.1\r\nx-request-id: slow\r\nX: {}", "a".repeat(HALF_HEAD));
    let mut clients = Vec::new();
    for n in 0..HALF_HEADS {
        let mut client = rig.sink.connect()?;
        client.write_all(head.as_bytes())?;
        clients.push(client);
        if n % 500 == 0 {
            rig.ask()?;
        }
    }
    wait::until("heads to be given up", LIMIT, || {
        Ok(rig.agent.status()?.health.limits.contains_key("connection_memory").then_some(()))
    })?;
    drop(clients);
    rig.ask()?;
    let mut follower = rig.agent.follow(dir)?;
    let port = rig.sink.port;
    let mut agent = rig.judge()?;
    agent.stop()?;
    follower.wait_end(LIMIT)?;
    let slow: Vec<_> = follower.records(port)?.into_iter().filter(|record| !is_good(record)).collect();
    let wrong: Vec<_> = slow
        .iter()
        .filter(|record| {
            record.path.as_deref() != Some("/slow") || record.status.is_some() || record.flags.is_empty()
        })
        .collect();
    ensure!(wrong.is_empty(), "{} of {} records: {:#?}", wrong.len(), slow.len(), wrong[0]);
    Ok(())
}
