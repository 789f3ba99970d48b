//! Sockets that were there before the agent, and sockets that are none of its business.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use system::agent::{Agent, Record};
use system::run::SETTLE_LIMIT;
use system::wait;

const LIMIT: Duration = Duration::from_secs(30);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// Client and server are this process, whose clock is the truth.
const CLOSE_NS: u64 = 1_000_000;

/// An idle connection that is older than the agent: its first request afterwards is timed from its arrival and flagged,
/// the second is like any other. Datagrams that look like requests are not reported at all.
pub(crate) fn connection_before_agent(dir: &Path) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    client.set_read_timeout(Some(LIMIT))?;
    let (served, _) = listener.accept()?;
    let server = thread::spawn(move || serve(served));
    ask(&mut client, "before")?;
    let mut agent = Agent::start(dir, &["--pid", &std::process::id().to_string()])?;
    wait::until("this process to be watched", LIMIT, || {
        let services = agent.status()?.services;
        Ok(services.iter().any(|service| service.ports.contains(&port)).then_some(()))
    })?;
    let mut follower = agent.follow(dir)?;
    let sent = ask(&mut client, "first")?;
    datagrams()?;
    ask(&mut client, "second")?;
    let records = follower.wait("both records", port, SETTLE_LIMIT, |records| records.len() >= 2)?;
    let health = agent.status()?.health;
    agent.stop()?;
    drop(client);
    server.join().ok().context("the server's thread panicked")??;
    let ids: Vec<_> = records.iter().filter_map(|record| record.request_id.as_deref()).collect();
    ensure!(ids == ["first", "second"], "reported {ids:?}");
    let is_flagged = |record: &Record| record.flags.iter().any(|flag| flag == "mid_stream");
    let mid_stream: Vec<_> = records.iter().map(is_flagged).collect();
    ensure!(mid_stream == [true, false], "mid_stream {mid_stream:?}");
    ensure!(records.iter().all(|record| record.arrival.as_deref() == Some("wire")), "{records:#?}");
    let arrived = records[0].t_first_byte_in_ns.context("no arrival")?;
    let range = sent[0] - CLOSE_NS..sent[1] + CLOSE_NS;
    ensure!(range.contains(&arrived), "arrived at {arrived}, sent within {sent:?}");
    ensure!(!health.ignored.contains_key("role_unknown"), "datagrams were reported: {:?}", health.ignored);
    Ok(())
}

/// One answer for each read, until the client closes.
fn serve(mut stream: TcpStream) -> Result<()> {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer)? > 0 {
        stream.write_all(ANSWER)?;
    }
    Ok(())
}

/// One exchange; the times around its sending.
fn ask(stream: &mut TcpStream, id: &str) -> Result<[u64; 2]> {
    let request =
        format!("POST /v1/x HTTP/1.1\r\nHost: a\r\nx-request-id: {id}\r\nContent-Length: 4\r\n\r\nabcd");
    let before = now();
    stream.write_all(request.as_bytes())?;
    let after = now();
    let mut answer = [0; ANSWER.len()];
    stream.read_exact(&mut answer)?;
    Ok([before, after])
}

/// Datagrams to and fro within this process.
fn datagrams() -> Result<()> {
    let [left, right] =
        [UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?];
    let mut buffer = [0; 256];
    for _ in 0..50 {
        left.send_to(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n", right.local_addr()?)?;
        let (len, from) = right.recv_from(&mut buffer)?;
        right.send_to(&buffer[..len], from)?;
        left.recv_from(&mut buffer)?;
    }
    Ok(())
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
