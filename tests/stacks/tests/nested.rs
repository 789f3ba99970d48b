//! Servers behind servers: what goes through several of them is one request.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stacks::machine::Need;
use stacks::peer::Peer;
use stacks::raw::{Raw, post};
use stacks::truth::{self, Truth};
use stacks::watch::Watch;
use system::agent::Record;
use system::host;
use system::rig::ClientView;
use system::statistics::quantile;

use crate::Test;
use crate::servers::{hyper, load};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("nginx_in_front", Need::Nginx, nginx_in_front),
    ("nginx_in_front_of_nginx", Need::Nginx, nginx_in_front_of_nginx),
    ("front_and_runner", Need::Python, front_and_runner),
    ("front_that_retries_caches_and_splits", Need::Python, front_that_retries_caches_and_splits),
    ("engine_that_asks_a_guard", Need::Python, engine_that_asks_a_guard),
    ("front_that_looks_and_warms_up", Need::Python, front_that_looks_and_warms_up),
];

const LIMIT: Duration = Duration::from_mins(1);
/// What an agent's time may differ from a peer's own, at the 99th percentile, as everywhere in these tests.
const TOLERANCE_NS: f64 = 200_000.0;

/// nginx hands requests on to hyper: one record each, with the times and the outcome at nginx, which the clients saw,
/// and those of hyper inside.
fn nginx_in_front(dir: &Path) -> Result<()> {
    let mut behind = hyper(dir)?;
    let mut front = nginx("nginx", &format!("127.0.0.1:{}", behind.port), dir)?;
    let watch = Watch::ports(&[front.port, behind.port], dir)?;
    let clients = load(front.port, dir)?;
    let records = finish(watch, front.port, clients.len())?;
    end(&mut front)?;
    behind.stop()?;
    let truths = behind.truth()?;
    judge(&records, &truths, &clients, 1, dir)?;
    let foreign = records.iter().find(|r| r.inner_port != Some(behind.port) || r.pid == behind.process.pid());
    ensure!(foreign.is_none(), "not nginx's, or not hyper's inside: {foreign:#?}");
    let guessed = records.iter().filter(|record| !record.flags.is_empty()).count();
    ensure!(guessed == 0, "{guessed} of {} were flagged, although each has an id", records.len());
    Ok(())
}

/// A chain of three.
fn nginx_in_front_of_nginx(dir: &Path) -> Result<()> {
    let mut behind = hyper(dir)?;
    let mut middle = nginx("middle", &format!("127.0.0.1:{}", behind.port), dir)?;
    let mut front = nginx("front", &format!("127.0.0.1:{}", middle.port), dir)?;
    let watch = Watch::ports(&[front.port, middle.port, behind.port], dir)?;
    let clients = load(front.port, dir)?;
    let records = finish(watch, front.port, clients.len())?;
    end(&mut front)?;
    end(&mut middle)?;
    behind.stop()?;
    judge(&records, &behind.truth()?, &clients, 2, dir)
}

/// Ends a nginx.
pub(crate) fn end(peer: &mut Peer) -> Result<()> {
    peer.process.signal(rustix::process::Signal::TERM)?;
    peer.process.wait(LIMIT).map(drop)
}

/// All records there are, once `count` of them have come: those of the front, and any that should not be there.
pub(crate) fn finish(mut watch: Watch, port: u16, count: usize) -> Result<Vec<Record>> {
    watch.records(port, count)?;
    watch.agent.stop()?;
    watch.follower.wait_end(LIMIT)?;
    let records: Result<Vec<Record>> =
        watch.follower.lines().iter().map(|line| Record::parse(line)).collect();
    let records = records?;
    let foreign = records.iter().find(|record| record.local_port != Some(port));
    ensure!(foreign.is_none(), "a second record of a request: {foreign:#?}");
    ensure!(records.len() == count, "{} records of {count} requests", records.len());
    Ok(records)
}

/// Compares records with the truth of the server behind, and with the clients'.
pub(crate) fn judge(
    records: &[Record],
    behind: &[Truth],
    clients: &[ClientView],
    depth: u64,
    dir: &Path,
) -> Result<()> {
    let by_id: HashMap<&str, &Truth> =
        behind.iter().filter_map(|truth| Some((truth.request_id.as_deref()?, truth))).collect();
    let clients: HashMap<&str, &ClientView> =
        clients.iter().map(|client| (client.request_id.as_str(), client)).collect();
    let (mut errors, mut order, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for record in records {
        let id = record.request_id.as_deref().context("a record has an id")?;
        let truth = by_id.get(id).with_context(|| format!("the server knows nothing of {id}"))?;
        let pairs = [
            (truth.t_first_token_write_ns, record.t_inner_first_token_ns),
            (truth.t_last_write_ns, record.t_inner_last_byte_out_ns),
        ];
        for (is, says) in pairs {
            match (is, says) {
                (Some([before, after]), Some(says)) => {
                    errors.push(before.saturating_sub(says).max(says.saturating_sub(after)) as f64);
                }
                (None, None) => {}
                _ => faults.push(format!("{id}: {is:?}, the agent says {says:?}")),
            }
        }
        if let Some(client) = clients.get(id) {
            order.extend(late(client, record));
            if Some(client.outcome.as_str()) != record.outcome.as_deref() && client.status != record.status {
                faults.push(format!("{id}: the client saw {client:?}, the agent {record:?}"));
            }
        }
        faults.extend(inconsistent(id, truth, record, depth));
    }
    let [error, late] = [&errors, &order].map(|all| quantile(all, 0.99).unwrap_or_default());
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    writeln!(
        io::stdout().lock(),
        "{name}: {} requests; times behind {:.0} µs, order with the clients {:.0} µs off at p99",
        records.len(),
        error / 1e3,
        late / 1e3
    )?;
    ensure!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults[..faults.len().min(5)].join("\n"));
    ensure!(error <= TOLERANCE_NS && late <= TOLERANCE_NS, "more than {TOLERANCE_NS} ns");
    Ok(())
}

/// By how much the record's times and those of the client are in the wrong order, ns.
fn late(client: &ClientView, record: &Record) -> Vec<f64> {
    let pairs = [
        (client.t_send, record.t_first_byte_in_ns),
        (record.t_first_token_ns, client.t_first_token),
        (record.t_last_byte_out_ns, client.t_last_byte),
    ];
    let pairs = pairs.into_iter().filter_map(|(earlier, later)| earlier.zip(later));
    pairs.map(|(earlier, later)| earlier.saturating_sub(later) as f64).collect()
}

/// What a record says that does not go together.
fn inconsistent(id: &str, truth: &Truth, record: &Record, depth: u64) -> Option<String> {
    let total: f64 = record.stages.values().sum();
    let adds_up = record.e2e_s.is_none_or(|e2e| (total - e2e).abs() < 1e-8);
    let facts = (record.status, record.outcome.as_deref(), record.model.as_deref(), record.inner_count);
    let expected = (Some(truth.status), Some(truth.outcome.as_str()), truth.model.as_deref(), Some(depth));
    let arrived = record.t_first_byte_in_ns <= record.t_inner_first_byte_in_ns;
    (facts != expected || !adds_up || !arrived)
        .then(|| format!("{id}: {facts:?} instead of {expected:?}, stages of {total} s: {record:#?}"))
}

/// nginx with one worker in front of `upstream`, in clear.
pub(crate) fn nginx(name: &str, upstream: &str, dir: &Path) -> Result<Peer> {
    nginx_with(name, upstream, ["", ""], 1, dir)
}

/// nginx in front of `upstream`; its own port is chosen here, as it can't choose one itself. `listen` and
/// `server` are what is said there beside, as for TLS.
pub(crate) fn nginx_with(
    name: &str,
    upstream: &str,
    [listen, server]: [&str; 2],
    workers: u32,
    dir: &Path,
) -> Result<Peer> {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let at = dir.join(name);
    fs::create_dir_all(&at)?;
    let config = format!(
        "daemon off; master_process on; worker_processes {workers}; pid {at}/nginx.pid; error_log {at}/nginx.err; user root;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; \
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         upstream behind {{ server {upstream}; keepalive 16; }}\n\
         server {{ listen 127.0.0.1:{port} {listen}; {server} location / {{ proxy_pass http://behind; proxy_http_version 1.1; \
         proxy_set_header Connection ''; proxy_buffering off; }} }} }}\n",
        at = at.display()
    );
    let config_file = at.join("nginx.conf");
    fs::write(&config_file, config)?;
    let mut command = Command::new(host::tool("nginx")?);
    command.arg("-e").arg(at.join("nginx.err")).arg("-p").arg(&at).arg("-c").arg(&config_file);
    let process = system::process::Process::start(name, command, dir)?;
    Peer::listening(name, process, port, dir)
}

/// A request to the front, which asks for `tokens`.
fn generate(id: &str, headers: &str, tokens: u32) -> String {
    let body = format!(r#"{{"model":"front-model","prompt":"hello","options":{{"num_predict":{tokens}}}}}"#);
    post("/api/generate", id, headers, &body)
}

const STREAM_END: &str = "0\r\n\r\n";

/// What the runner of a front says about its own part.
fn runner_truth(dir: &Path) -> Result<Vec<Truth>> {
    truth::read(&dir.join("front.truth.runner"))
}

/// Another API to the front than to the runner, on shared connections, and nothing in a request that says whose it is:
/// alone each is certain; eight alike at once are told apart by when they end, which the flag says is a guess.
fn front_and_runner(dir: &Path) -> Result<()> {
    const ALONE: usize = 20;
    const EACH: usize = 20;
    let mut front = Peer::python("front.py", &[], dir)?;
    let watch = Watch::ports(&[front.port], dir)?;
    let mut raw = Raw::connect(front.port)?;
    for number in 0..ALONE {
        raw.send(generate(&format!("alone-{number}"), "", 12))?;
        raw.until(STREAM_END)?;
    }
    let port = front.port;
    let clients: Vec<_> =
        (0..8).map(|client| std::thread::spawn(move || side_by_side(port, client, EACH))).collect();
    for client in clients {
        client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
    }
    let records = finish(watch, front.port, ALONE + 8 * EACH)?;
    front.stop()?;
    let runner = runner_truth(dir)?;
    let right = |record: &&&Record| is_right(record, &runner).unwrap_or(false);
    let (alone, together): (Vec<&Record>, Vec<&Record>) =
        records.iter().partition(|r| r.request_id.as_deref().is_some_and(|id| id.starts_with("alone")));
    let wrong: Vec<_> = alone.iter().filter(|r| !right(r) || !r.flags.is_empty()).collect();
    ensure!(wrong.is_empty(), "alone, and not certain or not right: {wrong:#?}");
    let certain = together.iter().filter(|record| record.flags.is_empty()).count();
    let wrong: Vec<_> = together.iter().filter(|record| !right(record)).collect();
    writeln!(
        io::stdout().lock(),
        "front_and_runner: {} side by side, {certain} certain, {} wrong",
        together.len(),
        wrong.len()
    )?;
    let false_certainty = wrong.iter().find(|record| record.flags.is_empty());
    ensure!(false_certainty.is_none(), "certain and wrong: {false_certainty:#?}");
    ensure!(wrong.len() * 100 <= together.len(), "{} of {} are wrong", wrong.len(), together.len());
    Ok(())
}

fn side_by_side(port: u16, client: usize, count: usize) -> Result<()> {
    let mut raw = Raw::connect(port)?;
    for number in 0..count {
        let tokens = u32::try_from(8 + (client + number) % 3)?;
        raw.send(generate(&format!("c{client}-{number}"), "", tokens))?;
        raw.until(STREAM_END)?;
    }
    Ok(())
}

/// The inner times are those of the runner's work for this very request.
fn is_right(record: &Record, runner: &[Truth]) -> Result<bool> {
    let truth = runner.iter().find(|truth| truth.request_id == record.request_id).context("unknown")?;
    let within = |stamp: Option<[u64; 2]>, said: Option<u64>| match (stamp, said) {
        (Some([before, after]), Some(said)) => (before..=after + 20_000).contains(&(said + 10_000)),
        _ => false,
    };
    let times = within(truth.t_last_write_ns, record.t_inner_last_byte_out_ns)
        && within(truth.t_first_token_write_ns, record.t_inner_first_token_ns);
    let counts = record.output_tokens == Some(truth.content_write_ns.len() as u64)
        && record.finish_reason.as_deref() == Some("length");
    Ok(times && counts && record.model.as_deref() == Some("front-model"))
}

/// One request of the client is one record, whatever the front makes of it.
fn front_that_retries_caches_and_splits(dir: &Path) -> Result<()> {
    let mut front = Peer::python("front.py", &[], dir)?;
    let watch = Watch::ports(&[front.port], dir)?;
    let mut raw = Raw::connect(front.port)?;
    let cases: [(&str, &str, Option<u64>); 5] = [
        ("plain", "", Some(1)),
        ("retried", "x-attempts: 3\r\n", Some(3)),
        ("cached", "x-cached: 1\r\n", None),
        ("split", "x-parts: 3\r\n", Some(3)),
        ("plain-again", "", Some(1)),
    ];
    for (id, headers, _) in cases {
        raw.send(generate(id, headers, 6))?;
        raw.until(STREAM_END)?;
    }
    let records = finish(watch, front.port, cases.len())?;
    front.stop()?;
    for (id, _, count) in cases {
        let record = records.iter().find(|r| r.request_id.as_deref() == Some(id)).context(id)?;
        ensure!(
            record.inner_count == count && record.outcome.as_deref() == Some("ok") && record.flags.is_empty(),
            "{id} has {count:?} inner exchanges, not {record:#?}"
        );
    }
    Ok(())
}

/// An engine that has somebody else look at its answer. Asked within the answer, that is a request of its own; asked
/// before it, its tokens are not those of the answer, which says that something was guessed.
fn engine_that_asks_a_guard(dir: &Path) -> Result<()> {
    let mut front = Peer::python("front.py", &[], dir)?;
    let mut watch = Watch::ports(&[front.port], dir)?;
    let mut raw = Raw::connect(front.port)?;
    for when in ["within", "before"] {
        raw.send(generate(when, &format!("x-guard: {when}\r\n"), 40))?;
        raw.until(STREAM_END)?;
    }
    watch.records(front.port, 2)?;
    let (records, runner) = (all(watch)?, runner_truth(dir)?);
    front.stop()?;
    let told = |path: &str| records.iter().filter(|record| record.path.as_deref() == Some(path)).collect();
    let (engine, guard): (Vec<&Record>, Vec<&Record>) = (told("/api/generate"), told("/completion"));
    let facts: Vec<_> = engine
        .iter()
        .map(|r| (r.request_id.as_deref(), r.inner_count, r.output_tokens, r.flags.concat()))
        .collect();
    let want = [
        (Some("within"), None, None, String::new()),
        (Some("before"), Some(1), None, "nested_guessed".to_owned()),
    ];
    ensure!(facts == want, "the agent says {facts:?} instead of {want:?}: {records:#?}");
    let [guard] = guard[..] else { anyhow::bail!("not one request to the guard: {records:#?}") };
    ensure!(guard.output_tokens == Some(2) && guard.flags.is_empty(), "{guard:#?}");
    ensure!(runner.len() == 2, "the guard was asked {} times", runner.len());
    Ok(())
}

/// Ends the agent: every record there is.
fn all(mut watch: Watch) -> Result<Vec<Record>> {
    watch.agent.stop()?;
    watch.follower.wait_end(LIMIT)?;
    watch.follower.lines().iter().map(|line| Record::parse(line)).collect()
}

/// A look at the runner is a probe and no part of the request; work for nobody is a request of its own.
fn front_that_looks_and_warms_up(dir: &Path) -> Result<()> {
    let mut front = Peer::python("front.py", &[], dir)?;
    let mut watch = Watch::ports(&[front.port], dir)?;
    let mut raw = Raw::connect(front.port)?;
    raw.send(generate("looks", "x-look: 1\r\n", 6))?;
    raw.until(STREAM_END)?;
    raw.send(post("/warm", "warm-up", "", "{}"))?;
    raw.until("{}")?;
    let all = |watch: &Watch| {
        let lines = watch.follower.lines();
        lines.iter().map(|line| Record::parse(line)).collect::<Result<Vec<_>>>()
    };
    system::wait::until("the work in the background", LIMIT, || {
        Ok((all(&watch)?.iter().any(|record| record.path.as_deref() == Some("/completion"))).then_some(()))
    })?;
    watch.agent.stop()?;
    watch.follower.wait_end(LIMIT)?;
    let records = all(&watch)?;
    front.stop()?;
    let mut told: Vec<_> =
        records.iter().map(|r| (r.path.as_deref().unwrap_or_default(), r.inner_count)).collect();
    told.sort_unstable();
    ensure!(told == [("/api/generate", Some(1)), ("/completion", None), ("/warm", None)], "{records:#?}");
    Ok(())
}
