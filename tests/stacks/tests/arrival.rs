//! Requests that take their time to come, and links that are slow and lose what they carry.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use stacks::machine::Need;
use stacks::peer::{self, Peer};
use stacks::raw::{self, Raw, long_chat, post};
use stacks::watch::Watch;
use system::wait;

use crate::Test;
use crate::http::odd;

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("slow_upload", Need::Python, slow_upload),
    ("slow_reader", Need::Python, slow_reader),
    ("lossy_link", Need::PythonAndTun, lossy_link),
];

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// A segment arrives within the call that sends it, on loopback; the softirq may be put off.
const CLOSE_S: f64 = 2e-3;

/// A body that comes in twelve pieces with pauses: all of that time is the network's, and the server, which reads each
/// piece as it comes, has no part in it.
fn slow_upload(dir: &Path) -> Result<()> {
    const PIECES: usize = 12;
    const PAUSE: Duration = Duration::from_millis(20);
    let (mut peer, mut watch) = odd("threads", dir)?;
    let mut sent = Vec::new();
    for number in 0..5 {
        let mut raw = Raw::connect(peer.port)?;
        let request = long_chat(&format!("u{number}"), true, 12_000);
        let mut stamps = Vec::new();
        for piece in request.as_bytes().chunks(request.len().div_ceil(PIECES)) {
            let before = now();
            raw.send(piece)?;
            stamps.push([before, now()]);
            std::thread::sleep(PAUSE);
        }
        raw.until("0\r\n\r\n")?;
        sent.push([stamps[0], stamps[stamps.len() - 1]]);
    }
    let mut records = watch.records(peer.port, sent.len())?;
    records.sort_by(|a, b| a.request_id.cmp(&b.request_id));
    ensure!(records.len() == sent.len(), "{} records of {} requests", records.len(), sent.len());
    for (record, [first, last]) in records.iter().zip(&sent) {
        let [least, most] = [last[0].saturating_sub(first[1]), last[1] - first[0]].map(|ns| ns as f64 / 1e9);
        let network_in = record.stage("network_in").context("no network_in")?;
        ensure!(
            record.arrival.as_deref() == Some("wire")
                && (least - CLOSE_S..=most + CLOSE_S).contains(&network_in),
            "network_in {network_in} is not between {least} and {most}: {record:#?}"
        );
        let begin = record.t_first_byte_in_ns.context("no arrival")?;
        ensure!(first[0] <= begin && begin <= first[1] + 2_000_000, "sent at {first:?}: {record:#?}");
        let rest = record.e2e_s.context("no e2e")? - network_in;
        let others: f64 = record.stages.values().sum::<f64>() - network_in;
        ensure!((others - rest).abs() < 1e-6, "the stages do not add up: {record:#?}");
        let preprocess = record.stage("preprocess").unwrap_or_default();
        ensure!(preprocess <= rest, "the upload is in preprocess: {record:#?}");
    }
    watch.finish(peer.port)?;
    peer.stop()
}

/// A client that takes three megabytes in small pieces with pauses: what the server has written and the client has not
/// taken is delivery, to the last acknowledgement.
fn slow_reader(dir: &Path) -> Result<()> {
    /// Longest time by which a kernel may put off an acknowledgement, and some.
    const DELAYED_ACK_NS: u64 = 60_000_000;
    let (mut peer, mut watch) = odd("threads", dir)?;
    let mut stream = TcpStream::connect(("127.0.0.1", peer.port))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(post("/big/v1/chat/completions", "r", "", &raw::body(false, 8)).as_bytes())?;
    let (mut answer, mut buffer) = (Vec::new(), vec![0; 65_536]);
    while !answer.ends_with(b"}}") {
        let len = stream.read(&mut buffer).context("the server stopped")?;
        ensure!(len > 0, "the server closed");
        answer.extend_from_slice(&buffer[..len]);
        std::thread::sleep(Duration::from_millis(5));
    }
    let taken = now();
    let record = watch.records(peer.port, 1)?.pop().context("no record")?;
    let (acked, written) = record.t_acked_ns.zip(record.t_last_byte_out_ns).context("no delivery")?;
    ensure!(written <= acked && acked <= taken + DELAYED_ACK_NS, "all taken at {taken}: {record:#?}");
    let delivery = record.delivery_s.context("no delivery")?;
    ensure!((delivery - (acked - written) as f64 / 1e9).abs() < 1e-6, "{record:#?}");
    ensure!(delivery > 0.02, "it was delivered at once: the test would be empty: {record:#?}");
    crate::expect_all(watch, &mut peer, &[], 1, dir)
}

/// What the link did to one answer.
#[derive(Debug, Deserialize)]
struct Carried {
    request_id: String,
    /// Segments of the answer that were dropped.
    dropped: u32,
    /// When the client had its last byte.
    t_last_byte: u64,
}

/// Both ends are in namespaces of their own, and a program that puts off every packet and drops some carries them.
fn lossy_link(dir: &Path) -> Result<()> {
    const REQUESTS: usize = 12;
    const DELAY_S: f64 = 0.02;
    const DELAY_NS: u64 = 20_000_000;
    let seen = dir.join("seen");
    let mut command = peer::python("lossy.py", &[&DELAY_S.to_string(), &REQUESTS.to_string()])?;
    command.env("SEEN", &seen).env("GATE", dir.join("gate"));
    let mut link = Peer::start("lossy", command, dir)?;
    let server: u32 = wait::until("the server's process", Duration::from_secs(30), || {
        Ok(fs::read_to_string(dir.join("gate.server")).unwrap_or_default().trim().parse().ok())
    })?;
    let mut watch = Watch::launch(&["--pid".into(), server.to_string()], dir)?;
    watch.wait_pid(server)?;
    fs::write(dir.join("gate"), "")?;
    wait::until("the client to be done", Duration::from_mins(1), || {
        link.process.check_alive()?;
        Ok(seen.exists().then_some(()))
    })?;
    let carried: Vec<Carried> =
        fs::read_to_string(&seen)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    watch.records(link.port, REQUESTS)?;
    let records = watch.finish(link.port)?;
    ensure!(records.len() == REQUESTS, "{} records of {REQUESTS} requests", records.len());
    for seen in &carried {
        let record = records.iter().find(|record| record.request_id.as_ref() == Some(&seen.request_id));
        let record = record.context("a request without a record")?;
        let retransmits = record.retransmits.unwrap_or_default();
        // A kernel may send again what was only late.
        ensure!(retransmits >= seen.dropped, "{seen:?}, but {record:#?}");
        let srtt = record.srtt_s.context("no srtt")?;
        ensure!((2.0 * DELAY_S..1.0).contains(&srtt), "{seen:?}, but {record:#?}");
        let (acked, written) = record.t_acked_ns.zip(record.t_last_byte_out_ns).context("no delivery")?;
        ensure!(acked >= written + 2 * DELAY_NS, "faster than the link: {record:#?}");
        ensure!(acked >= seen.t_last_byte, "acknowledged before it was there: {seen:?}, {record:#?}");
        ensure!(record.outcome.as_deref() == Some("ok") && record.flags.is_empty(), "{record:#?}");
    }
    let dropped: u32 = carried.iter().map(|seen| seen.dropped).sum();
    ensure!(dropped >= 6, "only {dropped} segments were dropped: the test would be empty");
    let clean = carried.iter().filter(|seen| seen.dropped == 0).count();
    ensure!(clean >= 3, "only {clean} answers lost nothing: the test would be empty");
    link.stop()
}
