//! Arrival and delivery of streams that share a connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use stacks::frames;
use stacks::peer::Peer;
use stacks::raw;
use stacks::watch::Watch;
use system::agent::Record;

/// A scheduling slice of a busy machine.
const CLOSE_NS: u64 = 5_000_000;
/// Longest time by which a kernel may put off an acknowledgement, and some.
const DELAYED_ACK_NS: u64 = 60_000_000;

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

fn connect(port: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(&frames::begin())?;
    Ok(stream)
}

/// Reads until these streams have ended, `len` bytes at a time with a pause between; when each had.
fn read_to_ends(
    connection: &mut TcpStream,
    streams: &[u32],
    len: usize,
    pause: Duration,
) -> Result<Vec<u64>> {
    let (mut received, mut ends) = (Vec::new(), vec![0; streams.len()]);
    let mut buffer = vec![0; len];
    while ends.contains(&0) {
        let len = connection.read(&mut buffer).context("the server stopped")?;
        ensure!(len > 0, "the server closed before its answers had ended");
        received.extend_from_slice(&buffer[..len]);
        for (end, stream) in ends.iter_mut().zip(streams) {
            if *end == 0 && frames::end_of(*stream, &received).is_some() {
                *end = now();
            }
        }
        std::thread::sleep(pause);
    }
    Ok(ends)
}

fn record<'a>(records: &'a [Record], id: &str) -> Result<&'a Record> {
    let found = records.iter().find(|record| record.request_id.as_deref() == Some(id));
    found.with_context(|| format!("no record of {id}: {records:#?}"))
}

/// Requests that come while the server does not read: each began when it was sent, not when it was read with the
/// others.
pub(crate) fn late_reader(dir: &Path) -> Result<()> {
    const REQUESTS: u32 = 6;
    const APART: Duration = Duration::from_millis(15);
    let mut peer = Peer::stamped("http2.py", dir)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    let mut connection = connect(peer.port)?;
    connection.write_all(&frames::post(1, "/stall/v1/chat/completions", "n-0", &raw::body(false, 8)))?;
    let mut sent = Vec::new();
    for number in 1..REQUESTS {
        std::thread::sleep(APART);
        let before = now();
        connection.write_all(&frames::chat(1 + 2 * number, &format!("n-{number}"), &raw::body(false, 8)))?;
        sent.push([before, now()]);
    }
    let streams: Vec<u32> = (0..REQUESTS).map(|number| 1 + 2 * number).collect();
    read_to_ends(&mut connection, &streams, 65_536, Duration::ZERO)?;
    watch.records(peer.port, streams.len())?;
    let records = watch.finish(peer.port)?;
    peer.stop()?;
    for (number, [before, after]) in (1..REQUESTS).zip(&sent) {
        let record = record(&records, &format!("n-{number}"))?;
        let arrived = record.t_first_byte_in_ns.context("no arrival")?;
        // Of what one read brings, first and last are known, and what is between by a bound.
        let known = matches!(record.arrival.as_deref(), Some("wire" | "bounded"));
        let latest = if record.arrival.as_deref() == Some("wire") { *after } else { sent[sent.len() - 1][1] };
        ensure!(
            known && arrived + CLOSE_NS >= *before,
            "sent at {before}, arrived at {arrived}: {record:#?}"
        );
        ensure!(arrived <= latest + CLOSE_NS, "sent by {after}, arrived at {arrived}: {record:#?}");
    }
    let wire = records.iter().filter(|record| record.arrival.as_deref() == Some("wire")).count();
    ensure!(wire >= 3, "only {wire} of {} arrivals are exact", records.len());
    let stalled = record(&records, "n-1")?;
    let waited = stalled.t_last_byte_out_ns.zip(stalled.t_first_byte_in_ns).map(|(out, begin)| out - begin);
    ensure!(waited > Some(50_000_000), "the server did not stall: the test would be empty ({waited:?})");
    Ok(())
}

/// A client that reads slowly: the short answer is delivered when the client has it, though the long one behind it is
/// in flight for long after.
pub(crate) fn slow_client(dir: &Path) -> Result<()> {
    let mut peer = Peer::stamped("http2.py", dir)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    let mut connection = connect(peer.port)?;
    connection.write_all(&frames::chat(1, "d-1", &raw::body(false, 4000)))?;
    connection.write_all(&frames::chat(3, "d-3", &raw::body(false, 60_000)))?;
    let read = read_to_ends(&mut connection, &[1, 3], 4096, Duration::from_millis(5))?;
    watch.records(peer.port, 2)?;
    let records = watch.finish(peer.port)?;
    peer.stop()?;
    for (id, read_ns) in [("d-1", read[0]), ("d-3", read[1])] {
        let record = record(&records, id)?;
        let (acked, written) = record.t_acked_ns.zip(record.t_last_byte_out_ns).context("no delivery")?;
        // The write is stamped at its end, and the acknowledgement can come before that.
        ensure!(acked + CLOSE_NS >= written, "acknowledged before it was written: {record:#?}");
        ensure!(acked <= read_ns + DELAYED_ACK_NS, "read at {read_ns}, acknowledged at {acked}: {record:#?}");
    }
    let delivery = record(&records, "d-3")?.delivery_s.context("no delivery")?;
    ensure!(delivery > 0.05, "the long answer was delivered at once ({delivery} s): the test would be empty");
    ensure!(read[1] > read[0] + 2 * DELAYED_ACK_NS, "the answers ended together: the test would be empty");
    Ok(())
}
