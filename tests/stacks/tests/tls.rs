//! Servers that speak TLS: what they read and write in clear is seen in their library, and timed at their sockets.
//! Named after the rows of the catalogue of known bugs (`rN_…`) where there is one.

mod lives;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stacks::machine::{self, Need};
use stacks::peer::{self, Peer};
use stacks::watch::Watch;
use system::agent::Tls;
use system::host;
use system::process::Process;
use system::rig::{ClientView, clients};

use crate::nested;
use crate::servers::hyper;
use crate::{Test, expect_all, judge};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("r33_tls_uvicorn_asyncio", Need::Tls, r33_uvicorn_asyncio),
    ("tls_uvicorn_uvloop", Need::Tls, uvicorn_uvloop),
    ("r35_tls_threads", Need::Tls, r35_threads),
    ("r42_tls_node", Need::TlsNode, r42_node),
    ("tls_nginx_in_front", Need::TlsNginx, nginx_in_front),
    ("r12_r43_tls_library_replaced", Need::Tls, r12_r43_library_replaced),
    ("r62_tls_older_than_the_agent", Need::Tls, r62_older_than_the_agent),
    ("tls_rustls_is_opaque", Need::Tls, lives::rustls_is_opaque),
    ("tls_library_loaded_late", Need::Tls, lives::library_loaded_late),
    ("tls_exec_over_connections", Need::Tls, lives::exec_over_connections),
    ("r25_tls_clients_under_seccomp", Need::Tls, lives::r25_clients_under_seccomp),
    ("r41_no_return_probes_in_go", Need::Cc, lives::r41_go),
    ("tls_read_within_another", Need::Tls, lives::read_within_another),
    ("tls_off_is_opaque", Need::Tls, off_is_opaque),
    ("tls_secret_stays", Need::Tls, secret_stays),
];

const LIMIT: Duration = Duration::from_mins(1);
/// Requests of one part of the load.
const PART: usize = 40;

/// A certificate of our own and its key, made now.
pub(crate) struct Certificate {
    cert: PathBuf,
    key: PathBuf,
}

impl Certificate {
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        let mut openssl = Command::new(host::tool("openssl")?);
        openssl
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", "2", "-subj", "/CN=peer", "-out"])
            .arg(&cert)
            .arg("-keyout")
            .arg(&key);
        let mut process = Process::start("openssl", openssl, dir)?;
        let status = process.wait(LIMIT)?;
        ensure!(status.success(), "openssl ended with {status}: {}", process.log());
        Ok(Self { cert, key })
    }

    /// What tells a peer to use it.
    pub(crate) fn variables(&self) -> [(&str, &Path); 2] {
        [("TLS_CERT", &self.cert), ("TLS_KEY", &self.key)]
    }

    /// Starts nginx with it in front of a port. `listen` says what it speaks.
    pub(crate) fn nginx(&self, listen: &str, behind: u16, dir: &Path) -> Result<Peer> {
        let server =
            format!("ssl_certificate {}; ssl_certificate_key {};", self.cert.display(), self.key.display());
        nested::nginx_with("nginx", &format!("127.0.0.1:{behind}"), [listen, &server], 2, dir)
    }

    /// Starts a peer that finds it in its environment.
    fn serve(&self, name: &str, mut command: Command, dir: &Path) -> Result<Peer> {
        command.envs(self.variables());
        Peer::start(name, command, dir)
    }
}

fn python_peer(script: &str, arguments: &[&str], dir: &Path) -> Result<Peer> {
    let command = peer::python(script, arguments)?;
    Certificate::new(dir)?.serve(script.trim_end_matches(".py"), command, dir)
}

/// One client and eight, on connections that are kept and that are not.
fn load(port: u16, dir: &Path) -> Result<Vec<ClientView>> {
    let parts = [(1, true), (8, true), (1, false), (8, false)];
    let seen = parts
        .iter()
        .enumerate()
        .map(|(part, (clients, keep))| load_part(port, PART, *clients, *keep, &format!("tls{part}"), dir));
    Ok(seen.collect::<Result<Vec<_>>>()?.concat())
}

fn load_part(
    port: u16,
    count: usize,
    concurrency: u32,
    keep: bool,
    prefix: &str,
    dir: &Path,
) -> Result<Vec<ClientView>> {
    let out = dir.join(format!("{prefix}.jsonl"));
    let numbers = [port.to_string(), count.to_string(), concurrency.to_string(), u8::from(keep).to_string()];
    let arguments: Vec<&str> = numbers.iter().map(String::as_str).chain([prefix]).collect();
    let mut command = peer::python("tls_client.py", &arguments)?;
    command.arg(&out);
    let mut client = Process::start("tls_client", command, dir)?;
    let status = client.wait(LIMIT)?;
    ensure!(status.success(), "the client ended with {status}: {}", client.log());
    clients(&out)
}

/// Waits until the agent is attached to a TLS library.
pub(crate) fn wait_attached(watch: &mut Watch) -> Result<()> {
    watch.wait_status("the agent to attach to a TLS library", |status| {
        status.probes.iter().any(|probe| probe.program == "tls_return" && probe.state == "attached")
    })
}

/// What the agent says about the TLS of its only service.
pub(crate) fn tls(watch: &Watch) -> Result<Tls> {
    Ok(watch.agent.status()?.tls.into_values().next().unwrap_or_default())
}

fn exercise(mut peer: Peer, dir: &Path) -> Result<()> {
    let mut watch = Watch::ports(&[peer.port], dir)?;
    wait_attached(&mut watch)?;
    let clients = load(peer.port, dir)?;
    watch.records(peer.port, clients.len())?;
    let tls = tls(&watch)?;
    expect_all(watch, &mut peer, &clients, clients.len(), dir)?;
    all_in_sight(tls)
}

/// Nothing was opaque, unlinked, or wrong. A client may shake hands and leave: such a connection has nothing to link.
pub(crate) fn all_in_sight(tls: Tls) -> Result<()> {
    let linked = Tls { connections: tls.connections, linked: tls.linked, ..Tls::default() };
    ensure!(tls == linked && tls.linked > 0, "not all of TLS is in sight: {tls:?}");
    Ok(())
}

/// Python's `ssl` uses the `_ex` functions only, and asyncio moves the ciphertext itself.
fn r33_uvicorn_asyncio(dir: &Path) -> Result<()> {
    exercise(python_peer("asgi.py", &["raw", "asyncio", "h11"], dir)?, dir)
}

/// The writes of all connections come at the end of a turn of the loop.
fn uvicorn_uvloop(dir: &Path) -> Result<()> {
    exercise(python_peer("asgi.py", &["raw", "uvloop", "httptools"], dir)?, dir)
}

/// The library uses the socket itself; a thread for each connection, and descriptors that are used again.
fn r35_threads(dir: &Path) -> Result<()> {
    exercise(python_peer("odd.py", &["tls"], dir)?, dir)
}

/// OpenSSL within the program.
fn r42_node(dir: &Path) -> Result<()> {
    let mut command = Command::new(machine::node()?);
    command.arg(machine::peers().join("node.js"));
    exercise(Certificate::new(dir)?.serve("node", command, dir)?, dir)
}

/// Workers that were forked after the library was mapped.
fn nginx_in_front(dir: &Path) -> Result<()> {
    let certificate = Certificate::new(dir)?;
    let mut behind = hyper(dir)?;
    let mut front = certificate.nginx("ssl", behind.port, dir)?;
    let watch = Watch::ports(&[front.port, behind.port], dir)?;
    let clients = load(front.port, dir)?;
    let records = nested::finish(watch, front.port, clients.len())?;
    nested::end(&mut front)?;
    behind.stop()?;
    nested::judge(&records, &behind.truth()?, &clients, 1, dir)
}

/// A library is a file like any other: without the right to be executed, and replaced while it is used.
fn r12_r43_library_replaced(dir: &Path) -> Result<()> {
    let library = library_of_python()?;
    let copy = dir.join(library.file_name().context("a library has a name")?);
    fs::copy(&library, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o644))?;
    let certificate = Certificate::new(dir)?;
    let serve = |name: &str| {
        let mut command = peer::python("odd.py", &["tls"])?;
        command.env("LD_LIBRARY_PATH", dir);
        certificate.serve(name, command, dir)
    };
    let mut old = serve("old")?;
    let mut watch = Watch::ports(&[old.port], dir)?;
    wait_attached(&mut watch)?;
    let target = copy.display().to_string();
    let is_copy = watch.agent.status()?.probes.iter().any(|probe| probe.target.as_ref() == Some(&target));
    ensure!(is_copy, "the server does not use {target}: the test would be empty");
    let first = load_part(old.port, 10, 2, true, "before", dir)?;
    let replacement = dir.join("replacement");
    fs::copy(&library, &replacement)?;
    fs::rename(&replacement, &copy)?;
    let second = load_part(old.port, 10, 2, false, "after", dir)?;
    expect_all(watch, &mut old, &[first, second].concat(), 20, dir)?;
    // The next agent finds the server by a file that has no name any more, and a new one by the new file.
    let (mut late, mut new) = (serve_deleted(&serve, &copy, &library)?, serve("new")?);
    let mut watch = Watch::ports(&[late.port, new.port], dir)?;
    watch.wait_status("the agent to attach to both files", |status| {
        status
            .probes
            .iter()
            .filter(|probe| probe.program == "tls_return" && probe.state == "attached")
            .count()
            == 2
    })?;
    let late_clients = load_part(late.port, 10, 2, true, "late", dir)?;
    let new_clients = load_part(new.port, 10, 2, true, "new", dir)?;
    watch.records(late.port, 10)?;
    watch.records(new.port, 10)?;
    let late_records = watch.follower.records(late.port)?;
    let new_records = watch.finish(new.port)?;
    for (peer, clients, records) in
        [(&mut late, late_clients, late_records), (&mut new, new_clients, new_records)]
    {
        peer.stop()?;
        judge(&stacks::compare::Report::new(&peer.truth()?, &clients, &records), 10, dir)?;
    }
    Ok(())
}

/// A server whose library is deleted once it runs; another file takes its place.
fn serve_deleted(serve: &dyn Fn(&str) -> Result<Peer>, copy: &Path, library: &Path) -> Result<Peer> {
    let peer = serve("late")?;
    fs::remove_file(copy)?;
    fs::copy(library, copy)?;
    Ok(peer)
}

/// The file that Python's `ssl` maps.
fn library_of_python() -> Result<PathBuf> {
    let script = "import ssl; print(next(l.split()[5] for l in open('/proc/self/maps') if 'libssl' in l))";
    let output = Command::new(machine::python()?).args(["-c", script]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Connections that were there before the agent: requests on them are seen from the first that is read whole.
fn r62_older_than_the_agent(dir: &Path) -> Result<()> {
    let mut peer = python_peer("asgi.py", &["raw", "asyncio", "h11"], dir)?;
    let gate = dir.join("gate");
    let script = "import socket, ssl, sys, os, time\n\
        c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE\n\
        s = c.wrap_socket(socket.create_connection(('127.0.0.1', int(sys.argv[1]))))\n\
        def ask(name):\n\
        \x20   b = b'{\"model\": \"m\", \"max_tokens\": 8, \"messages\": [], \"stream\": true}'\n\
        \x20   s.sendall(b'POST /v1/chat/completions HTTP/1.1\\r\\nhost: p\\r\\nx-request-id: %s\\r\\ncontent-length: %d\\r\\n\\r\\n' % (name, len(b)) + b)\n\
        \x20   got = b''\n\
        \x20   while not got.endswith(b'0\\r\\n\\r\\n'): got += s.recv(4096) or sys.exit('closed')\n\
        ask(b'before'); open(sys.argv[2] + '.ready', 'w').close()\n\
        while not os.path.exists(sys.argv[2]): time.sleep(0.01)\n\
        ask(b'b'); ask(b'c')\n";
    let mut command = Command::new(machine::python()?);
    command.args(["-c", script, &peer.port.to_string()]).arg(&gate);
    let mut client = Process::start("older", command, dir)?;
    system::wait::until("the first answer", LIMIT, || {
        client.check_alive()?;
        Ok(dir.join("gate.ready").exists().then_some(()))
    })?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    wait_attached(&mut watch)?;
    fs::write(&gate, "")?;
    ensure!(client.wait(LIMIT)?.success(), "the client failed: {}", client.log());
    let expected =
        ["b POST /v1/chat/completions 200 ok [\"mid_stream\"]", "c POST /v1/chat/completions 200 ok"];
    crate::http::expect_facts(watch, &mut peer, &expected).map(drop)
}

/// Plaintext of TLS goes nowhere: a secret in a request and its answer is in no recording, log, answer or metric.
fn secret_stays(dir: &Path) -> Result<()> {
    const SECRET: &str = "xyzzy-7f3a-plugh";
    let config = dir.join("stagelens.toml");
    // A ring buffer so small that records come to lie where others were.
    fs::write(&config, "[log]\nlevel = \"trace\"\n[ring]\nsize_bytes = 131072\n")?;
    let mut peer = python_peer("asgi.py", &["raw", "uvloop", "httptools"], dir)?;
    let port = peer.port.to_string();
    let arguments = ["--config".to_owned(), config.display().to_string(), "--port".to_owned(), port];
    let mut watch = Watch::launch(&arguments, dir)?;
    watch.wait_ports(&[peer.port])?;
    wait_attached(&mut watch)?;
    let mut command = Command::new(machine::python()?);
    command.args(["-c", SECRETIVE, &peer.port.to_string(), SECRET]);
    let mut client = Process::start("secretive", command, dir)?;
    ensure!(client.wait(LIMIT)?.success(), "the client failed: {}", client.log());
    let lines = format!("{:?}", watch.records(peer.port, 20)?);
    let (status, metrics) = (watch.agent.get("/api/v1/status")?, watch.agent.metrics_text()?);
    let requests = watch.agent.get("/api/v1/requests")?;
    let recording = watch.agent.recording().to_owned();
    let records = watch.finish(peer.port)?;
    peer.stop()?;
    ensure!(records.iter().filter(|r| r.status == Some(200)).count() == 20, "{records:#?}");
    let places = [
        ("the recording", fs::read(recording)?),
        ("the log", fs::read(dir.join("stagelens.log"))?),
        ("the records", lines.into_bytes()),
        ("the API", [status, requests, metrics].concat().into_bytes()),
    ];
    for (place, bytes) in places {
        let is_there = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
        ensure!(!is_there, "the secret is in {place}");
    }
    Ok(())
}

/// Asks with a secret wherever a client may put one.
const SECRETIVE: &str = r#"
import json, socket, ssl, sys
port, secret = int(sys.argv[1]), sys.argv[2]
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
sock = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
for number in range(20):
    prompt = (secret + " ") * (1 + number * 60)
    body = json.dumps({"model": "m", "max_tokens": 8, "stream": number % 2 == 0, "user": secret,
                       "messages": [{"role": "user", "content": prompt}]}).encode()
    head = (f"POST /v1/chat/completions?key={secret} HTTP/1.1\r\nhost: p\r\nauthorization: Bearer {secret}\r\n"
            f"cookie: a={secret}\r\nx-request-id: s{number}\r\ncontent-length: {len(body)}\r\n\r\n")
    sock.sendall(head.encode() + body)
    got = b""
    while not (got.endswith(b"0\r\n\r\n") or got.endswith(b"}}")):
        got += sock.recv(65536)
"#;

/// What nobody decrypts in sight is said to be so, and gives no records.
fn off_is_opaque(dir: &Path) -> Result<()> {
    let config = dir.join("stagelens.toml");
    fs::write(&config, "[socket]\ntls = \"off\"\n")?;
    let mut peer = python_peer("asgi.py", &["raw", "asyncio", "h11"], dir)?;
    let port = peer.port.to_string();
    let arguments = ["--config".to_owned(), config.display().to_string(), "--port".to_owned(), port];
    let mut watch = Watch::launch(&arguments, dir)?;
    watch.wait_ports(&[peer.port])?;
    load_part(peer.port, 20, 4, true, "kept", dir)?;
    load_part(peer.port, 6, 2, false, "single", dir)?;
    watch.wait_status("all connections to be opaque", |status| {
        let expected = Tls { connections: 10, opaque: 10, ..Tls::default() };
        status.tls.values().copied().collect::<Vec<_>>() == [expected]
    })?;
    let metrics = watch.agent.get("/metrics")?;
    ensure!(metrics.contains("state=\"opaque\"} 10"), "the metrics do not say so:\n{metrics}");
    let records = watch.finish(peer.port)?;
    ensure!(records.is_empty(), "records of what nobody saw: {records:#?}");
    peer.stop()
}
