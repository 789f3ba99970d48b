//! HTTP/2 and gRPC of real servers and clients. Named after the rows of the catalogue of known bugs (`rN_…`) where
//! there is one.

mod network;
mod tls;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use stacks::compare::Report;
use stacks::machine::Need;
use stacks::peer::{self, Peer};
use stacks::watch::Watch;
use system::agent::Record;
use system::process::Process;
use system::rig::{self, ClientView};
use system::wait;

use crate::http::expect_facts;
use crate::tls::wait_attached;
use crate::{Test, judge};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("http2_hypercorn", Need::PythonAndCc, hypercorn),
    ("grpc_unary", Need::PythonAndCc, grpc_unary),
    ("r1_grpc_stream_ends_with_its_trailers", Need::PythonAndCc, r1_grpc_streams),
    ("r2_concurrent_streams", Need::PythonAndCc, r2_concurrent_streams),
    ("grpc_probes_and_limits", Need::PythonAndCc, grpc_probes_and_limits),
    ("http2_late_reader", Need::PythonAndCc, network::late_reader),
    ("http2_slow_client", Need::PythonAndCc, network::slow_client),
    ("http2_tls_hypercorn", Need::TlsCc, tls::hypercorn),
    ("http2_tls_nginx_in_front", Need::TlsNginx, tls::nginx_in_front),
    ("r2_http2_tls_concurrent_streams", Need::TlsCc, tls::r2_concurrent_streams),
    ("r16_http2_tls_older_than_the_agent", Need::TlsCc, tls::r16_older),
    ("r16_http2_older_than_the_agent", Need::PythonAndCc, r16_http2),
    ("r16_grpc_older_than_the_agent", Need::PythonAndCc, r16_grpc),
];

const LIMIT: Duration = Duration::from_mins(1);

/// `client2.py`, with what it prints in a file. `secure`: over TLS.
fn client(
    kind: &str,
    secure: bool,
    port: u16,
    numbers: [u32; 3],
    gate: Option<&Path>,
    dir: &Path,
) -> Result<Process> {
    let [first, count, at_once] = numbers.map(|number| number.to_string());
    let mut command = peer::python("client2.py", &[kind, &port.to_string(), &first, &count, &at_once])?;
    command.envs(secure.then_some(("TLS_CERT", "")));
    command.args(gate).stdout(std::fs::File::create(dir.join(format!("{kind}.seen")))?);
    Process::start(kind, command, dir)
}

/// What the client saw, once it is done.
fn seen(client: &mut Process, kind: &str, dir: &Path) -> Result<Vec<ClientView>> {
    let status = client.wait(LIMIT)?;
    ensure!(status.success(), "the client ended with {status}: {}", client.log());
    rig::clients(&dir.join(format!("{kind}.seen")))
}

/// `at_once` requests at a time on one connection, compared with both ends.
fn exercise(mut peer: Peer, kind: &str, [count, at_once]: [u32; 2], dir: &Path) -> Result<()> {
    let mut watch = Watch::ports(&[peer.port], dir)?;
    let clients = seen(&mut client(kind, false, peer.port, [0, count, at_once], None, dir)?, kind, dir)?;
    watch.records(peer.port, clients.len())?;
    finish(watch, &mut peer, &clients, dir)
}

/// Ends everything and compares.
fn finish(watch: Watch, peer: &mut Peer, clients: &[ClientView], dir: &Path) -> Result<()> {
    let records = watch.finish(peer.port)?;
    peer.stop()?;
    let foreign = records.iter().find(|record| record.protocol != "HTTP/2");
    ensure!(foreign.is_none(), "not seen as HTTP/2: {foreign:#?}");
    judge(&Report::new(&peer.stamped_truth(dir)?, clients, &records), clients.len(), dir)
}

fn hypercorn(dir: &Path) -> Result<()> {
    exercise(Peer::stamped("http2.py", dir)?, "httpx", [200, 4], dir)
}

fn grpc_unary(dir: &Path) -> Result<()> {
    exercise(Peer::stamped("grpcd.py", dir)?, "infer", [200, 8], dir)
}

/// A stream of answers is over with its trailers, not with the headers that came first.
fn r1_grpc_streams(dir: &Path) -> Result<()> {
    exercise(Peer::stamped("grpcd.py", dir)?, "stream", [200, 8], dir)
}

/// A call that the client gives up, one that runs into its limit, and questions how the server is, which are none.
fn grpc_probes_and_limits(dir: &Path) -> Result<()> {
    let mut peer = Peer::stamped("grpcd.py", dir)?;
    let watch = Watch::ports(&[peer.port], dir)?;
    let command = peer::python("grpc_ends.py", &[&peer.port.to_string()])?;
    let mut client = Process::start("client", command, dir)?;
    let status = client.wait(LIMIT)?;
    ensure!(status.success(), "the client ended with {status}: {}", client.log());
    let path = "/inference.GRPCInferenceService/ModelStreamInfer";
    let expected = [("e-cancelled", "client_disconnect"), ("e-overdue", "timeout")]
        .map(|(id, outcome)| format!("{id} POST {path} 200 {outcome}"));
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let records = expect_facts(watch, &mut peer, &expected)?;
    let counted: Vec<Option<u64>> = records.iter().map(|record| record.chunks).collect();
    ensure!(counted == [Some(2), Some(2)], "answers before the end: {counted:?}");
    Ok(())
}

/// A hundred streams at a time on one connection.
fn r2_concurrent_streams(dir: &Path) -> Result<()> {
    exercise(Peer::stamped("http2.py", dir)?, "httpx", [300, 100], dir)
}

fn r16_http2(dir: &Path) -> Result<()> {
    older(Peer::stamped("http2.py", dir)?, "httpx", false, dir)
}

fn r16_grpc(dir: &Path) -> Result<()> {
    older(Peer::stamped("grpcd.py", dir)?, "stream", false, dir)
}

/// Streams that are under way when the agent comes, and later ones on the same connection, whose paths only the table
/// of the time before could tell: what is not known is not said, or is flagged. What is said is right.
fn older(mut peer: Peer, kind: &str, secure: bool, dir: &Path) -> Result<()> {
    const COUNT: u32 = 8;
    let gate = dir.join("gate");
    let mut client = client(kind, secure, peer.port, [0, COUNT, COUNT], Some(&gate), dir)?;
    let under_way = || {
        let streams = peer.stamped_streams(dir)?;
        Ok((streams.values().filter(|written| !written.content().is_empty()).count() == 8).then_some(()))
    };
    wait::until("all streams to be under way", LIMIT, under_way)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    if secure {
        wait_attached(&mut watch)?;
    }
    std::fs::write(&gate, "")?;
    let clients = seen(&mut client, kind, dir)?;
    watch.records(peer.port, clients.len())?;
    let records = watch.finish(peer.port)?;
    peer.stop()?;
    let truths = peer.stamped_truth(dir)?;
    ensure!(records.len() == truths.len(), "{} records of {} requests", records.len(), truths.len());
    let faults: Vec<String> = records.iter().filter_map(|record| invented(record, &truths[0])).collect();
    ensure!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    let flagged = |record: &&Record| record.flags.iter().any(|flag| flag == "mid_stream");
    let count = records.iter().filter(flagged).count();
    ensure!(count >= COUNT as usize, "only {count} of the older streams are flagged: {records:#?}");
    Ok(())
}

/// What a record says that is not so; all requests have the same method, path and model.
fn invented(record: &Record, truth: &stacks::truth::Truth) -> Option<String> {
    let flagged = record.flags.iter().any(|flag| flag == "mid_stream");
    let right = |said: Option<&str>, is: Option<&str>| match said {
        Some(said) => Some(said) == is,
        None => flagged,
    };
    let outcome = record.outcome.as_deref();
    let is_right = right(record.method.as_deref(), Some(&truth.method))
        && right(record.path.as_deref(), Some(&truth.path))
        && (record.model.is_none() || record.model == truth.model)
        && record.status.is_none_or(|status| status == 200 || status == 400 || status == 500)
        && record.t_last_byte_out_ns.is_some()
        && outcome.is_some();
    (!is_right).then(|| format!("{record:?}"))
}
