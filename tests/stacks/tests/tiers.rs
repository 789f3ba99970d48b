//! Both ways of seeing socket calls, at once on the same traffic: two agents, one of each tier, have to tell the same.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};
use stacks::machine::{self, Need};
use stacks::peer::Peer;
use stacks::raw::{Raw, body, chat, long_chat, post};
use stacks::watch::Watch;
use system::agent::{Record, Status};

use crate::Test;
use crate::lives::{int80, io_uring, unreadable_bodies};
use crate::servers::{hyper, load};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("tiers_agree_on_vectored_writes", Need::Nothing, vectored_writes),
    ("tiers_agree_on_uvicorn", Need::Python, uvicorn),
    ("tiers_agree_on_odd_calls", Need::Python, odd_calls),
    ("tiers_agree_on_reads_of_all_kinds", Need::Python, reads_of_all_kinds),
    ("tiers_agree_on_pipelining", Need::Python, pipelining),
    ("tiers_agree_on_batches_of_one", Need::Cc, batches_of_one),
    ("tiers_agree_on_preadv2_and_pwritev2", Need::Cc, vectors_at_offsets),
    ("batches_of_several", Need::Cc, batches_of_several),
    ("io_uring_is_a_gap_with_tier_b", Need::IoUring, io_uring_with_tier_b),
    ("32_bit_calls_are_a_gap_with_tier_b", Need::Ia32, calls_of_32_bits_with_tier_b),
    ("what_is_spliced_out_of_a_socket_is_a_gap", Need::Python, spliced_requests),
];

/// How far the tiers may be apart in time, at the median: the way from the socket's end of a call to the system call's.
const MEDIAN_NS: u64 = 10_000;
/// Fields that are each agent's own.
const OWN: [&str; 2] = ["id", "seq"];
const STREAM_END: &str = "0\r\n\r\n";
const END: &str = "}}";
/// Requests to the server of batches.
const BATCHES: usize = 20;

/// An agent of each tier on one port.
struct Pair {
    a: Watch,
    b: Watch,
    port: u16,
}

impl Pair {
    fn new(port: u16, dir: &Path) -> Result<Self> {
        Ok(Self { a: agent("a", port, dir)?, b: agent("b", port, dir)?, port })
    }

    /// Waits for `count` records of each, and compares them.
    fn expect_same(mut self, count: usize, dir: &Path) -> Result<()> {
        let [mut a, mut b] = [BTreeMap::new(), BTreeMap::new()];
        for (watch, records) in [(&mut self.a, &mut a), (&mut self.b, &mut b)] {
            watch.records(self.port, count)?;
            *records = by_request(&watch.follower.lines(), self.port)?;
            ensure!(records.len() == count, "{} records of {count} requests", records.len());
        }
        let (faults, mut apart) = differences(&a, &b);
        apart.sort_unstable();
        let quantile = |percent: usize| apart.get(apart.len() * percent / 100).copied().unwrap_or_default();
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        writeln!(
            io::stdout().lock(),
            "{name}: {count} requests, {} times apart by {} ns at the median, {} at p99",
            apart.len(),
            quantile(50),
            quantile(99)
        )?;
        let [a, b] = [self.a.agent.status()?, self.b.agent.status()?];
        ensure!(
            faults.is_empty(),
            "{} differences:\n{}",
            faults.len(),
            faults[..faults.len().min(20)].join("\n")
        );
        ensure!(quantile(50) <= MEDIAN_NS, "the tiers are {} ns apart at the median", quantile(50));
        ensure!(a.health.dropped() + b.health.dropped() == 0, "records were lost");
        self.a.finish(self.port)?;
        self.b.finish(self.port).map(drop)
    }
}

/// An agent of this tier, with a folder of its own.
fn agent(tier: &str, port: u16, dir: &Path) -> Result<Watch> {
    let dir = dir.join(tier);
    fs::create_dir_all(&dir)?;
    let config = config(tier, &dir)?;
    let arguments =
        ["--config", &config.display().to_string(), "--port", &port.to_string()].map(str::to_owned);
    let mut watch = Watch::launch(&arguments, &dir)?;
    watch.wait_ports(&[port])?;
    let status: Value = serde_json::from_str(&watch.agent.get("/api/v1/status")?)?;
    ensure!(status["socket"]["tier"] == tier, "the status names another tier: {}", status["socket"]);
    Ok(watch)
}

fn config(tier: &str, dir: &Path) -> Result<PathBuf> {
    let path = dir.join("tier.toml");
    fs::write(&path, format!("[socket]\ntier = \"{tier}\"\n"))?;
    Ok(path)
}

type Records = BTreeMap<String, Map<String, Value>>;

/// Records as they are printed, by the request's id.
fn by_request(lines: &[String], port: u16) -> Result<Records> {
    let mut records = Records::new();
    for line in lines {
        let Value::Object(mut record) = serde_json::from_str(line)? else { continue };
        if record.get("local_port").and_then(Value::as_u64) != Some(port.into()) {
            continue;
        }
        record.retain(|name, _| !OWN.contains(&name.as_str()));
        let id =
            record.get("request_id").and_then(Value::as_str).context("a request without an id")?.to_owned();
        ensure!(records.insert(id.clone(), record).is_none(), "two records of {id}");
    }
    Ok(records)
}

/// What differs beside times, and by how much the times do, ns.
fn differences(a: &Records, b: &Records) -> (Vec<String>, Vec<u64>) {
    let (mut faults, mut apart) = (Vec::new(), Vec::new());
    for (id, a) in a {
        let Some(b) = b.get(id) else {
            faults.push(format!("{id}: tier B has not seen it"));
            continue;
        };
        let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
        for name in names {
            match (a.get(name), b.get(name)) {
                (Some(a), Some(b)) if is_time(name) => apart.extend(distance(name, a, b)),
                (a, b) if a == b => {}
                (a, b) => faults.push(format!("{id}: {name} is {a:?} with tier A and {b:?} with tier B")),
            }
        }
    }
    (faults, apart)
}

fn is_time(name: &str) -> bool {
    name.ends_with("_ns") || name.ends_with("_s") || matches!(name, "ts" | "stages")
}

/// Distance of two moments. Lengths and lists follow from moments.
fn distance(name: &str, a: &Value, b: &Value) -> Option<u64> {
    let moment = name.starts_with("t_");
    a.as_u64().zip(b.as_u64()).filter(|_| moment).map(|(a, b)| a.abs_diff(b))
}

/// hyper under the usual load: each chunk is one `writev`.
fn vectored_writes(dir: &Path) -> Result<()> {
    exercise(hyper(dir)?, dir)
}

fn uvicorn(dir: &Path) -> Result<()> {
    exercise(Peer::python("asgi.py", &["raw", "uvloop", "httptools"], dir)?, dir)
}

fn exercise(mut peer: Peer, dir: &Path) -> Result<()> {
    let pair = Pair::new(peer.port, dir)?;
    let clients = load(peer.port, dir)?;
    pair.expect_same(clients.len(), dir)?;
    peer.stop()
}

/// `sendfile`, `splice`, short writes and refused ones, many segments, bytes one by one.
fn odd_calls(dir: &Path) -> Result<()> {
    let mut peer = Peer::python("odd.py", &["threads"], dir)?;
    let pair = Pair::new(peer.port, dir)?;
    let mut count = 0;
    for (path, streaming) in [
        ("sendfile", false),
        ("splice", false),
        ("short_writes", false),
        ("segments", false),
        ("segments", true),
        ("one_byte", true),
        ("split", true),
        ("big", false),
        ("plain", true),
    ] {
        let mut raw = Raw::connect(peer.port)?;
        for turn in 0..if matches!(path, "short_writes" | "big") { 1 } else { 5 } {
            let target = format!("/{path}/v1/chat/completions");
            raw.send(post(&target, &format!("{path}-{streaming}-{turn}"), "", &body(streaming, 8)))?;
            raw.until(if streaming { STREAM_END } else { END })?;
            count += 1;
        }
    }
    pair.expect_same(count, dir)?;
    peer.stop()
}

/// `read`, `readv`, `recvmsg` with three segments, and `MSG_PEEK` before each of them.
fn reads_of_all_kinds(dir: &Path) -> Result<()> {
    let mut peer = Peer::python("odd.py", &["reads"], dir)?;
    let pair = Pair::new(peer.port, dir)?;
    let mut raw = Raw::connect(peer.port)?;
    for turn in 0..30 {
        raw.send(chat(&format!("r{turn}"), turn % 2 == 0))?;
        raw.until(if turn % 2 == 0 { STREAM_END } else { END })?;
    }
    drop(raw);
    pair.expect_same(30, dir)?;
    peer.stop()
}

/// Ten requests of two to three kilobytes in one call; and long ones whose model and `stream` stand at their end, in one
/// write and in several.
fn pipelining(dir: &Path) -> Result<()> {
    let mut peer = Peer::python("odd.py", &["threads"], dir)?;
    let mut pair = Pair::new(peer.port, dir)?;
    let mut raw = Raw::connect(peer.port)?;
    for batch in 0..10_usize {
        let request = |n: usize| long_chat(&format!("p{batch}-{n}"), false, 2000 + 100 * n);
        raw.send((0..10).map(request).collect::<String>())?;
        let mut answers = String::new();
        while answers.matches("HTTP/1.1 200").count() < 10 || !answers.ends_with(END) {
            answers.push_str(&raw.some()?);
        }
    }
    drop(raw);
    long_bodies(peer.port)?;
    for watch in [&mut pair.a, &mut pair.b] {
        let mut records = watch.records(peer.port, 100 + LONG.len())?;
        records.retain(|record| record.request_id.as_deref().is_some_and(|id| id.starts_with("long")));
        let known = |r: &&Record| r.model.as_deref() == Some("raw-model") && r.streaming == Some(true);
        let known = records.iter().filter(known).count();
        ensure!(known == LONG.len(), "of {} long requests {known} are known: {records:#?}", LONG.len());
    }
    pair.expect_same(100 + LONG.len(), dir)?;
    peer.stop()
}

/// So many bytes of a long request go in one write.
const LONG: [usize; 5] = [usize::MAX, 65_536, 30_000, 4096, 1021];

/// Requests of a hundred kilobytes, each on a connection of its own.
fn long_bodies(port: u16) -> Result<()> {
    for (number, size) in LONG.into_iter().enumerate() {
        let mut raw = Raw::connect(port)?;
        let request = long_chat(&format!("long{number}"), true, 100_000);
        for piece in request.as_bytes().chunks(size.min(request.len())) {
            raw.send(piece)?;
        }
        raw.until(STREAM_END)?;
    }
    Ok(())
}

/// A server that moves its bytes by the rarer calls.
fn batches(way: &str, dir: &Path) -> Result<Peer> {
    let mut command = Command::new(machine::compile("batches.c", dir, &[])?);
    command.arg(way);
    Peer::start("batches", command, dir)
}

/// Asks it; the sizes of its answers.
fn ask(port: u16) -> Result<Vec<u64>> {
    let mut raw = Raw::connect(port)?;
    let answer = |n| {
        raw.send(chat(&format!("b{n}"), false))?;
        Ok(raw.until(END)?.len() as u64)
    };
    (0..BATCHES).map(answer).collect()
}

/// Every byte of requests and answers was read: what they say is known.
fn expect_read(mut records: Vec<Record>, sizes: &[u64]) -> Result<()> {
    records.sort_by_key(|record| record.t_first_byte_in_ns);
    let facts = |r: &Record| {
        let known = r.flags.is_empty() && r.model.as_deref() == Some("batch-model");
        (r.request_id.clone().unwrap_or_default(), r.bytes_out, r.output_tokens, known)
    };
    let said: Vec<_> = records.iter().map(facts).collect();
    let answer = |(n, size): (usize, &u64)| (format!("b{n}"), *size, Some(n as u64 + 1), true);
    let want: Vec<_> = sizes.iter().enumerate().map(answer).collect();
    ensure!(said == want, "the agent says {said:?} instead of {want:?}");
    Ok(())
}

/// `recvmmsg` and `sendmmsg` with one message of two segments.
fn batches_of_one(dir: &Path) -> Result<()> {
    expect_both("one", dir)
}

fn vectors_at_offsets(dir: &Path) -> Result<()> {
    expect_both("vectors", dir)
}

fn expect_both(way: &str, dir: &Path) -> Result<()> {
    let mut peer = batches(way, dir)?;
    let mut pair = Pair::new(peer.port, dir)?;
    let sizes = ask(peer.port)?;
    expect_read(pair.a.records(peer.port, BATCHES)?, &sizes)?;
    expect_read(pair.b.records(peer.port, BATCHES)?, &sizes)?;
    pair.expect_same(BATCHES, dir)?;
    peer.stop()
}

/// Of several messages in one call, tier A does not know which one passes: it counts them, and makes nothing up. Tier B
/// reads each.
fn batches_of_several(dir: &Path) -> Result<()> {
    let mut peer = batches("several", dir)?;
    let Pair { mut a, mut b, port } = Pair::new(peer.port, dir)?;
    let sizes = ask(port)?;
    expect_read(b.records(port, BATCHES)?, &sizes)?;
    let blind = |status: &Status| {
        let unread = status.health.kernel.get("payload_none").copied().unwrap_or_default();
        unread >= 4 * BATCHES as u64
    };
    a.wait_status("what could not be read to be counted", blind)?;
    let is_invented = |r: &Record| r.path.is_some() || !r.flags.iter().any(|flag| flag == "gap");
    let invented: Vec<Record> = a.finish(port)?.into_iter().filter(is_invented).collect();
    ensure!(invented.is_empty(), "records of what nobody saw: {invented:#?}");
    b.finish(port)?;
    peer.stop()
}

/// Tier B sees no call of `io_uring`: that it moved something, and how much, shows in the kernel's own positions.
fn io_uring_with_tier_b(dir: &Path) -> Result<()> {
    unseen_bodies(io_uring("body", dir)?, dir)
}

fn calls_of_32_bits_with_tier_b(dir: &Path) -> Result<()> {
    unseen_bodies(int80(dir)?, dir)
}

fn unseen_bodies(peer: Peer, dir: &Path) -> Result<()> {
    let mut watch = agent("b", peer.port, dir)?;
    let mut raw = Raw::connect(peer.port)?;
    raw.send(chat("first", false))?;
    let body = raw.rest();
    // The server waits for that before it serves the next one.
    drop(raw);
    let head = body.find("\r\n\r\n").context("an answer has a head")? + 4;
    let told =
        |status: &Status| status.health.kernel.get("bytes_unseen") == Some(&((body.len() - head) as u64));
    watch.wait_status("what went unseen to be counted, to the byte", told)?;
    watch.records(peer.port, 1)?;
    watch.agent.stop()?;
    let fresh = dir.join("again");
    fs::create_dir_all(&fresh)?;
    let watch = agent("b", peer.port, &fresh)?;
    unreadable_bodies(peer, watch)
}

/// Bodies of requests that go from the socket to a pipe: tier B sees the call, tier A only that the kernel has gone on.
/// Neither reads them, both know how long they were.
fn spliced_requests(dir: &Path) -> Result<()> {
    const COUNT: usize = 10;
    let mut peer = Peer::python("odd.py", &["splices"], dir)?;
    let Pair { mut a, mut b, port } = Pair::new(peer.port, dir)?;
    let mut raw = Raw::connect(port)?;
    let requests: Vec<String> =
        (0..COUNT).map(|n| long_chat(&format!("s{n}"), false, 2000 + 100 * n)).collect();
    for request in &requests {
        raw.send(request)?;
        raw.until(END)?;
    }
    for watch in [&mut a, &mut b] {
        let mut records = watch.records(port, COUNT)?;
        records.sort_by_key(|record| record.t_first_byte_in_ns);
        let said: Vec<_> = records.iter().map(|r| (r.bytes_in, r.status)).collect();
        let want: Vec<_> = requests.iter().map(|r| (r.len() as u64, Some(200))).collect();
        ensure!(said == want, "the agent says {said:?} instead of {want:?}");
    }
    let sure = a.records(port, COUNT)?.into_iter().find(|record| record.flags != ["gap"]);
    ensure!(sure.is_none(), "nobody saw when the request was read: {sure:#?}");
    a.finish(port)?;
    b.finish(port)?;
    peer.stop()
}
