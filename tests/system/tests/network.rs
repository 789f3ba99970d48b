//! Arrival and delivery: a server that reads late and a client that reads slowly each show in the right place.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::accuracy::Pair;
use system::rig::{ClientView, Load, ServerOptions, Shape};
use system::run::{Finished, Stage};

const LIMIT: Duration = Duration::from_mins(1);
/// How far a wait may be off: a scheduling slice of a busy machine.
const CLOSE_S: f64 = 1e-3;
/// Longest time by which a client's kernel may put off an acknowledgement, and some.
const DELAYED_ACK_NS: u64 = 50_000_000;

/// The event loop stalls while requests arrive: the time until their read is `accept_wait` and nothing else.
pub(crate) fn late_reader(dir: &Path) -> Result<()> {
    let stalling = ServerOptions::new(Shape::Single)
        .with("stall-us", 60_000)
        .with("stall-every", 3)
        .with("decode-us", 3000);
    let load = Load::requests(4, 40).with("output-tokens", "4-10");
    let finished = Stage::set(&stalling, dir, &[])?.play("single", &load, dir, LIMIT)?;
    let violations = finished.report.violations();
    ensure!(violations.is_empty(), "{}\nin {:#?}", violations.join("; "), finished.report);
    ensure!(
        finished.report.arrival.keys().eq(["wire"]),
        "not all from the wire: {:?}",
        finished.report.arrival
    );
    let mut late = 0;
    for pair in &finished.joined.pairs {
        let truth = pair.truth.accept_wait().context("no true wait")?;
        let seen = pair.record.stage("accept_wait").context("no accept_wait")?;
        ensure!(truth.distance(seen) <= CLOSE_S, "accept_wait {seen} s instead of {truth:?}: {pair:#?}");
        late += usize::from(truth.low > 0.03);
    }
    ensure!(late >= 5, "only {late} requests waited for their read: the test would be empty");
    Ok(())
}

/// Clients with small windows that read in small pieces: what keeps the server from writing is `network_out`, what
/// is left in its buffers is `delivery`.
pub(crate) fn slow_client(dir: &Path) -> Result<()> {
    let options = ServerOptions::new(Shape::Single).with("decode-us", 500).with("send-buffer", 4096);
    // One at a time: then the last step of each, behind which the socket's time begins, is known for sure.
    let load = Load::requests(1, 4).with("slow-ratio", 1).with("slow-pause-ms", 5).with("output-tokens", 160);
    let finished = Stage::set(&options, dir, &[])?.play("single", &load, dir, LIMIT)?;
    let clients: HashMap<&str, &ClientView> =
        finished.clients.iter().map(|client| (client.request_id.as_str(), client)).collect();
    ensure!(finished.report.missed == 0 && !finished.joined.pairs.is_empty(), "{:#?}", finished.report);
    for pair in &finished.joined.pairs {
        let client = pair.record.request_id.as_deref().and_then(|id| clients.get(id));
        slow_pair(pair, client.context("a record of no client")?).with_context(|| format!("in {pair:#?}"))?;
    }
    Ok(())
}

fn slow_pair(pair: &Pair, client: &ClientView) -> Result<()> {
    let (truth, record) = (&pair.truth, &pair.record);
    let blocked = truth.write_blocked_s.context("no true time of a full socket")?;
    let (result, write) = truth.t_last_result_ns.zip(truth.t_last_write_ns).context("no true end")?;
    let after_result = (write[1] - result[0]) as f64 / 1e9;
    let expected = blocked.min(after_result);
    let network_out = record.stage("network_out").context("no network_out")?;
    ensure!(expected > 0.1, "the socket was hardly full ({expected} s): the test would be empty");
    ensure!(
        (network_out - expected).abs() < 0.05 * expected + 0.02,
        "network_out {network_out}, true {expected}"
    );
    let (acked, last_byte) = record.t_acked_ns.zip(client.t_last_byte).context("no delivery")?;
    // The client's kernel acknowledges what it has room for, or at the latest what its program has read.
    ensure!(acked < last_byte + DELAYED_ACK_NS, "acknowledged {} ns after the last read", acked - last_byte);
    let delivery = record.delivery_s.context("no delivery")?;
    let at_most = last_byte.saturating_sub(write[0]) as f64 / 1e9;
    let at_most = at_most + DELAYED_ACK_NS as f64 / 1e9;
    ensure!(delivery > 0.05 && delivery <= at_most, "delivery {delivery} of at most {at_most}");
    Ok(())
}

/// Without the tracepoint, requests begin at their read, and the record says so.
pub(crate) fn off(dir: &Path) -> Result<()> {
    let config = dir.join("stagelens.toml");
    fs::write(&config, "[socket]\nnetwork_timing = \"off\"\n")?;
    let config = config.to_str().context("the folder's name is no text")?;
    let stage = Stage::set(&ServerOptions::new(Shape::Single), dir, &["--config", config])?;
    let Finished { report, joined, .. } = stage.play("single", &Load::requests(4, 20), dir, LIMIT)?;
    let violations = report.violations();
    ensure!(violations.is_empty(), "{}\nin {report:#?}", violations.join("; "));
    ensure!(report.arrival.keys().eq(["read"]), "{:?}", report.arrival);
    let invents =
        |pair: &&Pair| pair.record.stage("accept_wait").is_some() || pair.record.delivery_s.is_some();
    let invented = joined.pairs.iter().find(invents);
    ensure!(invented.is_none(), "a value that cannot be known: {invented:#?}");
    Ok(())
}
