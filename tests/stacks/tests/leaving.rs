//! Exchanges of HTTP/1.1 that one side leaves before they are over.

use std::path::Path;

use anyhow::{Result, ensure};
use stacks::machine::Need;
use stacks::raw::{self, Raw, post};

use crate::Test;
use crate::http::{STREAM_END, expect_facts, odd, talk};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("half_closed_client", Need::Python, half_closed_client),
    ("upload_aborted", Need::Python, upload_aborted),
    ("abort_in_mid_stream", Need::Python, abort_in_mid_stream),
    ("client_leaves_before_the_answer", Need::Python, client_leaves_before_the_answer),
    ("clients_give_up_at_their_deadline", Need::Python, clients_give_up_at_their_deadline),
    ("r4_close_without_answer", Need::Python, r4_close_without_answer),
    ("r60_stream_without_its_end", Need::Python, r60_stream_without_its_end),
];

/// Clients that say that nothing more comes, and wait for their answer, at once or for a while.
fn half_closed_client(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    for (number, wait) in ["0", "0.1", "0.3"].into_iter().enumerate() {
        let mut raw = Raw::connect(peer.port)?;
        let slow = format!("x-slow: {wait}\r\n");
        raw.send(post("/slow", &format!("h{number}"), &slow, &raw::body(number == 1, 8)))?;
        raw.end()?;
        ensure!(raw.rest().starts_with("HTTP/1.1 200"), "the peer did not answer");
    }
    let expected = ["h0 POST /slow 200 ok", "h1 POST /slow 200 ok", "h2 POST /slow 200 ok"];
    let records = expect_facts(watch, &mut peer, &expected)?;
    let late = records.iter().find(|record| record.t_acked_ns.is_none());
    ensure!(late.is_none(), "an answer that was acknowledged is not said to be: {late:#?}");
    Ok(())
}

/// Clients that leave in the middle of what they send, by a close or a reset.
fn upload_aborted(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    for number in 0..4 {
        let mut raw = Raw::connect(peer.port)?;
        let request = post("/v1/chat/completions", &format!("a{number}"), "", &" ".repeat(20_000));
        raw.send(&request[..9000])?;
    }
    let facts: Vec<String> =
        (0..4).map(|n| format!("a{n} POST /v1/chat/completions - client_disconnect")).collect();
    let expected: Vec<&str> = facts.iter().map(String::as_str).collect();
    expect_facts(watch, &mut peer, &expected).map(drop)
}

fn abort_in_mid_stream(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    for number in 0..10 {
        let mut raw = Raw::connect(peer.port)?;
        let body = raw::body(true, 8);
        raw.send(post("/endless/v1/chat/completions", &format!("a{number}"), "", &body))?;
        raw.until("lorem")?;
        if number % 2 == 0 {
            raw.end()?;
        }
    }
    let facts: Vec<String> =
        (0..10).map(|n| format!("a{n} POST /endless/v1/chat/completions 200 client_disconnect")).collect();
    let expected: Vec<&str> = facts.iter().map(String::as_str).collect();
    let records = expect_facts(watch, &mut peer, &expected)?;
    let silent = records.iter().find(|record| record.ttft_s.is_none());
    ensure!(silent.is_none(), "an aborted stream has a first token too: {silent:#?}");
    Ok(())
}

fn client_leaves_before_the_answer(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    for number in 0..5 {
        let mut raw = Raw::connect(peer.port)?;
        raw.send(post("/slow", &format!("l{number}"), "x-slow: 0.2\r\n", &raw::body(false, 8)))?;
        drop(raw);
    }
    let mut watch = watch;
    let records = watch.records(peer.port, 5)?;
    let invented = records.iter().find(|r| r.outcome.as_deref() != Some("client_disconnect"));
    ensure!(records.len() == 5 && invented.is_none(), "{records:#?}");
    watch.finish(peer.port)?;
    peer.stop()
}

/// Clients that wait half a second and no longer: what that is shows once several have done so; what only looks like
/// it, one that leaves sooner, stays a client that left. No status is made up.
fn clients_give_up_at_their_deadline(dir: &Path) -> Result<()> {
    const WAIT: f64 = 0.5;
    let (mut peer, mut watch) = odd("threads", dir)?;
    let wait = |id: &str, seconds: f64| -> Result<()> {
        let mut raw = Raw::connect(peer.port)?;
        raw.send(post("/slow", id, "x-slow: 1.5\r\n", &raw::body(false, 8)))?;
        std::thread::sleep(std::time::Duration::from_secs_f64(seconds));
        Ok(())
    };
    for number in 0..6 {
        wait(&format!("d{number}"), WAIT)?;
    }
    wait("left", 0.3)?;
    let mut records = watch.records(peer.port, 7)?;
    records.sort_by(|a, b| a.request_id.cmp(&b.request_id));
    let outcomes: Vec<&str> = records.iter().filter_map(|r| r.outcome.as_deref()).collect();
    let (gone, ran_out) = ("client_disconnect", "timeout");
    ensure!(outcomes == [gone, gone, gone, ran_out, ran_out, ran_out, gone], "{records:#?}");
    let last = &records[5];
    let (deadline, samples) = (last.client_deadline_s.unwrap_or_default(), last.client_deadline_samples);
    // A sleep ends late, never early.
    ensure!((WAIT - 0.001..WAIT + 0.1).contains(&deadline) && samples == Some(6), "{last:#?}");
    let metrics = watch.agent.metrics_text()?;
    let exported = metrics.lines().any(|line| line.starts_with("inference_client_deadline_seconds{"));
    ensure!(
        exported && !metrics.contains("\"499\""),
        "the metrics do not have the deadline, or an invented status"
    );
    watch.finish(peer.port)?;
    peer.stop()
}

/// No answer is no status: nothing is made up, and one-shot connections that were answered are never taken for such.
fn r4_close_without_answer(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let mut expected = Vec::new();
    for number in 10..60 {
        let (path, facts) = match number % 5 {
            0 => ("/reluctant", "- truncated"),
            _ => ("/v1/chat/completions", "200 ok"),
        };
        let mut raw = Raw::connect(peer.port)?;
        raw.send(post(path, &format!("n{number}"), "connection: close\r\n", &raw::body(number % 2 == 0, 8)))?;
        raw.rest();
        expected.push(format!("n{number} POST {path} {facts}"));
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    expect_facts(watch, &mut peer, &expected).map(drop)
}

/// The framing is whole, the stream of events is not; and a server that crashes in the middle.
fn r60_stream_without_its_end(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    let request = |way: &str, id| post(&format!("/{way}/v1/chat/completions"), id, "", &raw::body(true, 8));
    talk(peer.port, &[(request("unmarked", "a"), STREAM_END)])?;
    let mut raw = Raw::connect(peer.port)?;
    raw.send(request("halfway", "b"))?;
    raw.rest();
    let expected = [
        "a POST /unmarked/v1/chat/completions 200 truncated",
        "b POST /halfway/v1/chat/completions 200 truncated",
    ];
    expect_facts(watch, &mut peer, &expected).map(drop)
}
