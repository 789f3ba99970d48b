//! Libraries that come late and programs that change, and TLS that is out of sight.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use stacks::machine;
use stacks::peer::{self, Peer};
use stacks::raw::{Raw, chat};
use stacks::watch::Watch;
use system::agent::{Probe, Tls};
use system::process::Process;
use system::{host, wait};

use super::{Certificate, LIMIT, all_in_sight, load, load_part, tls, wait_attached};
use crate::expect_all;

/// rustls has no functions that could be probed: how many connections nobody sees into is said by service, and there is
/// no record of what was not seen.
pub(super) fn rustls_is_opaque(dir: &Path) -> Result<()> {
    let command = Command::new(env!("CARGO_BIN_EXE_stacks-hyper"));
    let mut peer = Certificate::new(dir)?.serve("hyper", command, dir)?;
    let mut clear = crate::servers::hyper(&fresh(dir, "clear")?)?;
    let mut watch = Watch::ports(&[peer.port, clear.port], dir)?;
    load_part(peer.port, 20, 4, true, "kept", dir)?;
    load_part(peer.port, 6, 2, false, "single", dir)?;
    let service = service_of(&watch, peer.port)?;
    watch.wait_status("all connections to be opaque", |status| {
        let expected = Tls { connections: 10, opaque: 10, ..Tls::default() };
        status.tls.get(&service) == Some(&expected)
    })?;
    // The same program without TLS, beside it.
    let mut raw = Raw::connect(clear.port)?;
    raw.send(chat("clear", true))?;
    raw.until("0\r\n\r\n")?;
    watch.records(clear.port, 1)?;
    let records = watch.follower.records(peer.port)?;
    ensure!(records.is_empty(), "records of what nobody saw: {records:#?}");
    let records = watch.finish(clear.port)?;
    ensure!(records.len() == 1, "{records:#?}");
    peer.stop()?;
    clear.stop()
}

fn fresh(dir: &Path, name: &str) -> Result<std::path::PathBuf> {
    let dir = dir.join(name);
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

fn service_of(watch: &Watch, port: u16) -> Result<String> {
    let services = watch.agent.status()?.services;
    let service = services.into_iter().find(|service| service.ports.contains(&port));
    Ok(service.context("the service is watched")?.name)
}

/// A program that loads the library long after it is watched.
pub(super) fn library_loaded_late(dir: &Path) -> Result<()> {
    let command = peer::python("odd.py", &["tls_late"])?;
    let mut peer = Certificate::new(dir)?.serve("odd", command, dir)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    let mut raw = Raw::connect(peer.port)?;
    raw.send(chat("clear", true))?;
    raw.until("0\r\n\r\n")?;
    watch.records(peer.port, 1)?;
    let maps = fs::read_to_string(format!("/proc/{}/maps", peer.process.pid()))?;
    ensure!(!maps.contains("libssl"), "the library is loaded already: the test would be empty");
    shake_hands(peer.port, dir)?;
    wait_attached(&mut watch)?;
    let clients = load(peer.port, dir)?;
    watch.records(peer.port, 1 + clients.len())?;
    let tls = tls(&watch)?;
    expect_all(watch, &mut peer, &clients, 1 + clients.len(), dir)?;
    all_in_sight(tls)
}

/// A connection without a request.
fn shake_hands(port: u16, dir: &Path) -> Result<()> {
    let script = "import socket, ssl, sys\n\
        c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE\n\
        c.wrap_socket(socket.create_connection(('127.0.0.1', int(sys.argv[1])))).close()\n";
    let mut command = Command::new(machine::python()?);
    command.args(["-c", script, &port.to_string()]);
    let mut client = Process::start("hands", command, dir)?;
    ensure!(client.wait(LIMIT)?.success(), "the client failed: {}", client.log());
    Ok(())
}

/// A program becomes another while connections of its library are open: nothing of them is left, and the new image's,
/// which may lie at the same addresses, are connections of their own.
pub(super) fn exec_over_connections(dir: &Path) -> Result<()> {
    let python = peer::python("odd.py", &["tls_exec"])?;
    // Without randomness, so that the images are alike.
    let mut command = Command::new(host::tool("setarch")?);
    command.arg("-R").arg(python.get_program()).args(python.get_args());
    let mut peer = Certificate::new(dir)?.serve("odd", command, dir)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    wait_attached(&mut watch)?;
    let (agent, pid) = (watch.agent.process.pid(), peer.process.pid());
    let mut before = load_part(peer.port, 10, 1, false, "before", dir)?;
    let gate = dir.join("gate");
    let mut client = holder(peer.port, &gate, dir)?;
    let known = tls_connections(agent, pid)?;
    ensure!(known > 0, "the agent knows no connection: the test would be empty");
    let image = fs::read(format!("/proc/{pid}/cmdline"))?;
    peer.process.signal(Signal::USR1)?;
    wait::until("the new image", LIMIT, || {
        Ok((fs::read(format!("/proc/{pid}/cmdline"))? != image).then_some(()))
    })?;
    let left = tls_connections(agent, pid)?;
    ensure!(left == 0, "{left} of {known} connections are still known after exec");
    fs::write(&gate, "")?;
    client.wait(LIMIT)?;
    before.extend(load_part(peer.port, 20, 1, false, "after", dir)?);
    // One more by the client that stayed.
    watch.records(peer.port, 31)?;
    let tls = tls(&watch)?;
    expect_all(watch, &mut peer, &before, 31, dir)?;
    all_in_sight(tls)
}

/// A client that asks once and stays until a file is there.
fn holder(port: u16, gate: &Path, dir: &Path) -> Result<Process> {
    let script = "import socket, ssl, sys, os, time\n\
        c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE\n\
        s = c.wrap_socket(socket.create_connection(('127.0.0.1', int(sys.argv[1]))))\n\
        b = b'{\"model\": \"m\", \"max_tokens\": 8, \"messages\": [], \"stream\": true}'\n\
        s.sendall(b'POST /v1/chat/completions HTTP/1.1\\r\\nhost: p\\r\\nx-request-id: held\\r\\ncontent-length: %d\\r\\n\\r\\n' % len(b) + b)\n\
        got = b''\n\
        while not got.endswith(b'0\\r\\n\\r\\n'): got += s.recv(4096)\n\
        open(sys.argv[2] + '.ready', 'w').close()\n\
        end = time.monotonic() + 60\n\
        while not os.path.exists(sys.argv[2]) and time.monotonic() < end: time.sleep(0.01)\n";
    let mut command = Command::new(machine::python()?);
    command.args(["-c", script, &port.to_string()]).arg(gate);
    let mut client = Process::start("holder", command, dir)?;
    let ready = gate.with_extension("ready");
    wait::until("the held answer", LIMIT, || {
        client.check_alive()?;
        Ok(ready.exists().then_some(()))
    })?;
    Ok(client)
}

/// Entries of a process in the kernel's table of TLS connections.
fn tls_connections(agent: u32, pid: u32) -> Result<usize> {
    let entries = crate::identity::map_entries(agent, "SSLS")?;
    let number = |byte: &Value| {
        byte.as_str().and_then(|hex| u32::from_str_radix(hex.trim_start_matches("0x"), 16).ok())
    };
    // The key begins with the process, as the kernel numbers it, in the machine's order.
    let is_its = |entry: &&Value| {
        let key: Vec<u32> = entry["key"].as_array().into_iter().flatten().filter_map(number).collect();
        key.iter().take(4).rev().fold(0, |id, byte| id << 8 | byte) == pid
            || entry["formatted"]["key"]["tgid"] == pid
    };
    Ok(entries.iter().filter(is_its).count())
}

/// A return probe in a program that Go linked could crash it: none is attached, which is said, and what it serves in
/// clear is seen as ever.
pub(super) fn r41_go(dir: &Path) -> Result<()> {
    let program = machine::compile("go_like.c", dir, &["-rdynamic"])?;
    let target = program.display().to_string();
    let mut peer = Peer::start("go_like", Command::new(&program), dir)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    let is_its = |probe: &&Probe| probe.target.as_ref() == Some(&target);
    let mut probes = Vec::new();
    wait::until("the program to be looked into", Duration::from_secs(30), || {
        probes = watch.agent.status()?.probes.into_iter().filter(|probe| is_its(&probe)).collect();
        Ok((!probes.is_empty()).then_some(()))
    })?;
    let returns = probes.iter().find(|probe| probe.program == "tls_return").context("no word of returns")?;
    let reason = returns.reason.as_deref().unwrap_or_default();
    ensure!(returns.state == "skipped" && reason.contains("linked by Go"), "{returns:#?}");
    let entry = probes.iter().find(|probe| probe.program == "tls_enter" && probe.state == "attached");
    ensure!(entry.is_none(), "entries without returns: {entry:#?}");
    for number in 0..20 {
        let mut raw = Raw::connect(peer.port)?;
        raw.send(chat(&format!("g{number}"), false))?;
        ensure!(raw.rest().ends_with("ok"), "the program does not answer");
    }
    watch.records(peer.port, 20)?;
    peer.process.check_alive()?;
    let records = watch.finish(peer.port)?;
    ensure!(records.len() == 20, "{} records of 20 requests", records.len());
    peer.process.kill(LIMIT)
}

/// Programs that use a probed library in a process with a filter that knows nothing of the system calls of probes.
pub(super) fn r25_clients_under_seccomp(dir: &Path) -> Result<()> {
    let command = peer::python("odd.py", &["tls"])?;
    let mut peer = Certificate::new(dir)?.serve("odd", command, dir)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    wait_attached(&mut watch)?;
    for number in 0..10 {
        let mut command = peer::python("seccomp.py", &[])?;
        command
            .arg(host::tool("curl")?)
            .args(["--silent", "--show-error", "--fail", "--insecure", "--max-time", "20", "--http1.1"])
            .args(["-H", &format!("x-request-id: s-{number}"), "--data", r#"{"messages":[],"max_tokens":8}"#])
            .arg(format!("https://127.0.0.1:{}/v1/chat/completions", peer.port))
            .stdout(std::process::Stdio::null());
        let mut client = Process::start("curl", command, dir)?;
        let status = client.wait(LIMIT)?;
        ensure!(status.success(), "curl ended with {status}: {}", client.log());
    }
    expect_all(watch, &mut peer, &[], 10, dir)
}

/// Of calls within calls on one thread each is seen with its own plaintext, three deep; what is deeper is counted, and
/// makes nothing up.
pub(super) fn read_within_another(dir: &Path) -> Result<()> {
    const SEEN: usize = 3;
    let mut peer = super::python_peer("tls_within.py", &["4"], dir)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    wait_attached(&mut watch)?;
    let script = "import socket, ssl, sys\n\
        c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE\n\
        all = [c.wrap_socket(socket.create_connection(('127.0.0.1', int(sys.argv[1])))) for _ in range(4)]\n\
        for n, s in enumerate(all):\n\
        \x20   b = b'{\"model\": \"m%d\", \"messages\": []}' % n\n\
        \x20   s.sendall(b'POST /v1/chat/completions HTTP/1.1\\r\\nx-request-id: w%d\\r\\ncontent-length: %d\\r\\n\\r\\n' % (n, len(b)) + b)\n\
        for s in all:\n\
        \x20   got = b''\n\
        \x20   while not got.endswith(b']}'): got += s.recv(4096) or sys.exit('closed')\n";
    let mut command = Command::new(machine::python()?);
    command.args(["-c", script, &peer.port.to_string()]);
    let mut client = Process::start("within", command, dir)?;
    ensure!(client.wait(LIMIT)?.success(), "the client failed: {}", client.log());
    let deep = |status: &system::agent::Status| status.health.kernel.get("tls_calls_too_deep") == Some(&1);
    watch.wait_status("the call that is too deep to be counted", deep)?;
    let named = |records: &[system::agent::Record]| records.iter().filter(|r| r.request_id.is_some()).count();
    watch.follower.wait("the requests", peer.port, LIMIT, |records| named(records) >= SEEN)?;
    let mut records = watch.finish(peer.port)?;
    peer.stop()?;
    records.retain(|record| record.request_id.is_some());
    records.sort_by(|a, b| a.request_id.cmp(&b.request_id));
    let said: Vec<String> = records.iter().map(crate::http::facts).collect();
    let want: Vec<String> = (0..SEEN).map(|n| format!("w{n} POST /v1/chat/completions 200 ok")).collect();
    ensure!(said == want, "{said:#?} instead of {want:#?}: {records:#?}");
    Ok(())
}
