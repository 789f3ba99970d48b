//! The catalogue of bugs that agents of this kind are known for, and what stands for each row here.
//!
//! A test is named after its rows (`rN_…`), in this crate or beside the code (`agent`). A row without one says why.
//!
//! | row | what fails elsewhere | test, or why there is none |
//! |---|---|---|
//! | 1 | a gRPC stream ends with its headers | `r1_grpc_stream_ends_with_its_trailers` |
//! | 2 | concurrent HTTP/2 streams are not seen | `r2_concurrent_streams`, `r2_http2_tls_concurrent_streams` |
//! | 3 | a wrong duration where a read was missed | `r3_streams_200_agent_stopped` |
//! | 4 | an invented status 499 | `r4_close_without_answer`, `r4_r46_r54_many_connections` |
//! | 5 | connections older than the agent | `r5_agent_restart_with_open_connections` |
//! | 6, 47 | losses that nobody counts | `r6_r47_losses_are_counted` |
//! | 7 | splice and sendfile | `r7_sendfile_and_splice` |
//! | 8 | requests corrupted by injection | `r8_bytes_stay_as_they_are` (nothing is injected) |
//! | 9 | a server that begins before its client | `r9_server_begins_after_its_client` |
//! | 10 | the verifier refuses a program | `r10_every_program_is_loaded` |
//! | 11 | panics by stacks kept per processor | not here: needs kernels that have it; the build fails at 64 bytes of stack, `agent` `hazards` |
//! | 12 | libraries that are not executable | `r12_library_that_is_not_executable`, `r12_r43_tls_library_replaced` |
//! | 13, 14, 26, 39 | leaks by processes that come and go | `r13_r14_r26_r39_process_churn`; an exit under SELinux (39) needs SELinux |
//! | 15 | a reader that does not read | `r15_reader_that_does_not_read` |
//! | 16 | HTTP/2 and connections older than the agent | `r16_http2_older_than_the_agent` and three more |
//! | 17, 28, 38, 58 | other kernels' verifiers | not here: need those kernels |
//! | 18 | short-lived processes | `r18_short_lived_processes` |
//! | 19 | new replicas and workers | `r19_prefork_workers` |
//! | 20 | paths become series | `r20_many_paths` |
//! | 21 | installation without rights | not on one machine; `stagelens doctor` names each missing right |
//! | 22, 23 | locked memory and its limit | `r22_r23_without_the_right_to_raise_limits` |
//! | 24, 40 | return probes against seccomp | need kernels that have it: `agent` `hazards`; on others `r25_tls_clients_under_seccomp` |
//! | 25 | a client of a probed library crashes | `r25_tls_clients_under_seccomp` |
//! | 27 | hostile lengths | `r27_hostile_lengths`, and the fuzz targets |
//! | 29, 45, 52, 53 | cgroups that are not understood | `agent` `r29_engines_other_than_docker` and three more |
//! | 30 | listeners become series | `r30_many_listeners` |
//! | 31 | kernel 6.6.58 | needs it: `agent` `hazards` |
//! | 32 | large answers | `r32_large_answer` |
//! | 33 | Python's `_ex` functions | `r33_tls_uvicorn_asyncio` |
//! | 34 | the agent probes itself | `r34_agent_probes_itself` |
//! | 35 | plaintext of another connection | `r35_tls_threads` |
//! | 36 | what it costs, and sessions that are missing | `r36_streams_200` |
//! | 37 | pipelining, long-lived connections | `r37_pipelining` |
//! | 41 | return probes in Go | `r41_no_return_probes_in_go` |
//! | 42 | OpenSSL within Node | `r42_tls_node` |
//! | 43 | a file replaced while it is used | `r43_library_replaced_while_it_is_used`, `r12_r43_tls_library_replaced` |
//! | 44 | probes bound to what ran before `exec` | `r44_inherited_listener_and_exec` |
//! | 46, 54 | tables that fill with what is closed | `r4_r46_r54_many_connections` |
//! | 48 | room shared by whoever runs on a processor | `r48_gathered_side_by_side` |
//! | 49 | lockdown | needs a kernel in that state; `stagelens doctor` reads it |
//! | 50 | clocks | `r50_clocks` |
//! | 51 | `io_uring` | `r51_io_uring_whole`, `r51_io_uring_body` |
//! | 55 | 32-bit calls | `r55_32_bit_calls` |
//! | 56 | descriptors passed on | `r56_descriptor_passed_on` |
//! | 57 | probes on 5-byte nops | would harm the target where it fails: `agent` `hazards` |
//! | 59 | streams and whole answers in one histogram | `r59_streams_and_whole_answers` |
//! | 60 | events split, ends missing | `r60_events_split_across_writes`, `r60_stream_without_its_end` |
//! | 61 | a return that was missed | `agent` `r61_a_missed_return_does_not_shift_what_follows`: no peer can make the kernel miss one |
//! | 62 | a link that is not certain | `agent` `r62_without_a_proof_there_is_no_link`, `r62_tls_older_than_the_agent` |

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stacks::machine::Need;
use stacks::raw::{self, Raw, chat, post};
use stacks::watch::Watch;

use crate::http::odd;
use crate::{Test, expect_all};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("r8_bytes_stay_as_they_are", Need::Python, r8_bytes_stay_as_they_are),
    ("r9_server_begins_after_its_client", Need::Nothing, r9_server_begins_after_its_client),
    ("r10_every_program_is_loaded", Need::Python, r10_every_program_is_loaded),
    ("r30_many_listeners", Need::Python, r30_many_listeners),
    ("r48_gathered_side_by_side", Need::Python, r48_gathered_side_by_side),
];

const STREAM_END: &str = "0\r\n\r\n";

/// What a server gets is what its client sent, to the byte, whatever its length; and the same back.
fn r8_bytes_stay_as_they_are(dir: &Path) -> Result<()> {
    let (mut peer, mut watch) = odd("threads", dir)?;
    let mut raw = Raw::connect(peer.port)?;
    let lengths = [0, 1, 900, 1024, 1100, 1500, 4096, 9000, 65_536, 300_000];
    for (number, len) in lengths.into_iter().enumerate() {
        let body: String = ('!'..='~').cycle().skip(number * 7).take(len).collect();
        raw.send(post("/digest", &format!("b{number}"), "", &body))?;
        let sum = sha256(&body, dir)?;
        // Its line and the body behind it.
        let mut answer = raw.until(&format!(" {len}\n"))?;
        let (_, said) = answer.split_once("\r\n\r\n").context("an answer has a head")?;
        ensure!(said.starts_with(&sum), "{len} bytes came as others: {said:.80}");
        let end = answer.find(&format!(" {len}\n")).context("its line")? + format!(" {len}\n").len();
        while answer.len() < end + len {
            answer.push_str(&raw.some()?);
        }
        ensure!(answer[end..] == body, "{len} bytes went back as others");
    }
    watch.records(peer.port, lengths.len())?;
    let records = watch.finish(peer.port)?;
    ensure!(records.len() == lengths.len(), "{} records of {} requests", records.len(), lengths.len());
    peer.stop()
}

/// By the system's own tool.
fn sha256(text: &str, dir: &Path) -> Result<String> {
    let file = dir.join("body");
    std::fs::write(&file, text)?;
    let output = std::process::Command::new(system::host::tool("sha256sum")?).arg(&file).output()?;
    let sum = String::from_utf8(output.stdout)?;
    Ok(sum.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Both ends by one clock, from one point each: no request is there before it was sent.
fn r9_server_begins_after_its_client(dir: &Path) -> Result<()> {
    let mut peer = crate::servers::hyper(dir)?;
    let mut watch = Watch::ports(&[peer.port], dir)?;
    let clients = crate::servers::load(peer.port, dir)?;
    watch.records(peer.port, clients.len())?;
    let records = watch.finish(peer.port)?;
    for client in &clients {
        let record = records.iter().find(|record| record.request_id.as_ref() == Some(&client.request_id));
        let record = record.with_context(|| format!("{}: missed", client.request_id))?;
        let sent = client.t_send.context("a client knows when it sent")?;
        let began = record.t_first_byte_in_ns.context("no arrival")?;
        ensure!(began >= sent, "it began {} ns before it was sent: {record:#?}", sent - began);
    }
    peer.stop()
}

/// No program is refused by this kernel's verifier, and each tracepoint has its own.
fn r10_every_program_is_loaded(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let probes = watch.agent.status()?.probes;
    let broken = probes.iter().find(|probe| probe.state == "broken");
    ensure!(broken.is_none(), "{broken:#?}");
    for program in ["sock_state", "sock_destroy", "process_exec", "process_fork", "process_exit"] {
        let is_attached = probes.iter().any(|probe| probe.program == program && probe.state == "attached");
        ensure!(is_attached, "{program} is not attached: {probes:#?}");
    }
    drop(watch);
    peer.stop()
}

/// A process that listens on a thousand ports: they make no series, and nobody waits for the metrics or the status.
fn r30_many_listeners(dir: &Path) -> Result<()> {
    let (mut peer, mut watch) = odd("listeners", dir)?;
    let mut raw = Raw::connect(peer.port)?;
    raw.send(chat("l", true))?;
    raw.until(STREAM_END)?;
    watch.records(peer.port, 1)?;
    let known =
        |status: &system::agent::Status| status.services.iter().any(|service| service.ports.len() > 1000);
    watch.wait_status("all listeners to be known", known)?;
    let began = std::time::Instant::now();
    let lines = watch.agent.metrics_text()?.lines().count();
    ensure!(lines < 1000, "a thousand listeners made {lines} lines of metrics");
    watch.agent.status()?;
    ensure!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    expect_all(watch, &mut peer, &[], 1, dir)
}

/// Vectored writes of four processes at the same time on two processors: each is put together by itself.
fn r48_gathered_side_by_side(dir: &Path) -> Result<()> {
    const CLIENTS: usize = 4;
    const EACH: usize = 60;
    let (mut peer, watch) = odd("prefork", dir)?;
    let port = peer.port;
    let client = move |client: usize| -> Result<()> {
        let mut raw = Raw::connect(port)?;
        for number in 0..EACH {
            let body = raw::body(true, 16).replace("raw-model", &format!("model-of-{client}"));
            raw.send(post("/segments/v1/chat/completions", &format!("g{client}-{number}"), "", &body))?;
            raw.until(STREAM_END)?;
        }
        Ok(())
    };
    let clients: Vec<_> = (0..CLIENTS).map(|number| std::thread::spawn(move || client(number))).collect();
    for client in clients {
        client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
    }
    expect_all(watch, &mut peer, &[], CLIENTS * EACH, dir)
}
