//! Streams whose events are longer than what is captured of a call, or end in an error, on bare sockets.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use stacks::compare::Report;
use stacks::gaps;
use stacks::machine::Need;
use stacks::raw::{self, Raw, post};
use stacks::truth::Truth;
use system::agent::Record;

use crate::{
    Test,
    http::{STREAM_END, expect_facts, odd},
    judge,
};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("events_of_3000_bytes", Need::Python, events_of_3000_bytes),
    ("text_that_repeats_itself_to_20_kb", Need::Python, text_that_repeats_itself_to_20_kb),
    ("an_error_then_a_close", Need::Python, an_error_then_a_close),
];

/// What the kernel's time of a write may lie outside of the server's own two, ns.
const TOLERANCE_NS: u64 = 200_000;

/// The first stream on a connection shows that its events are long: it has its first token, and is flagged. Those
/// behind it are whole.
fn events_of_3000_bytes(dir: &Path) -> Result<()> {
    let request = |n| post("/long_events/v1/chat/completions", &format!("l{n}"), "", &raw::body(true, 40));
    first_shows_the_rest(dir, request)
}

fn text_that_repeats_itself_to_20_kb(dir: &Path) -> Result<()> {
    let body = r#"{"text":"a","sampling_params":{"max_new_tokens":140},"words":24,"stream":true}"#;
    first_shows_the_rest(dir, |n| post("/generate", &format!("l{n}"), "", body))
}

fn first_shows_the_rest(dir: &Path, request: impl Fn(usize) -> String) -> Result<()> {
    const STREAMS: usize = 8;
    let (mut peer, mut watch) = odd("threads", dir)?;
    let mut raw = Raw::connect(peer.port)?;
    for n in 0..STREAMS {
        raw.send(request(n))?;
        raw.until(STREAM_END)?;
        // What it showed is known once its record is there; and one of them fits into the ring whatever happens.
        watch.records(peer.port, n + 1)?;
    }
    let recording = watch.agent.recording().to_owned();
    let records = watch.finish(peer.port)?;
    peer.stop()?;
    let truths = peer.truth()?;
    let (first, rest): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| record.request_id.as_deref() == Some("l0"));
    let truth = truths.first().context("the peer answered nothing")?;
    first_is_right(first.first().context("the first stream is missed")?, truth)?;
    let mut report = Report::new(&truths[1..], &[], &rest);
    report.every_gap(&truths[1..], &gaps::measured(&recording, peer.port)?);
    judge(&report, STREAMS - 1, dir)
}

/// It has what can be known, and nothing else.
fn first_is_right(record: &Record, truth: &Truth) -> Result<()> {
    ensure!(record.outcome.as_deref() == Some("ok") && record.flags == ["gap"], "{record:#?}");
    let [before, after] = truth.t_first_token_write_ns.context("no first token")?;
    let said = record.t_first_token_ns.context("no first token is said")?;
    let window = before.saturating_sub(TOLERANCE_NS)..=after + TOLERANCE_NS;
    ensure!(window.contains(&said), "the first token at {said}, written within {before}..{after}");
    ensure!(record.tbt_max_s.is_none(), "a gap that may not be one of tokens: {record:#?}");
    Ok(())
}

/// Whoever closes first, and though neither the marker nor the end of the framing comes.
fn an_error_then_a_close(dir: &Path) -> Result<()> {
    let (mut peer, watch) = odd("threads", dir)?;
    for n in 0..10 {
        let way = if n % 2 == 0 { "failing" } else { "failing_slowly" };
        let mut raw = Raw::connect(peer.port)?;
        raw.send(post(&format!("/{way}/v1/chat/completions"), &format!("e{n}"), "", &raw::body(true, 5)))?;
        raw.until("broke")?;
        if n % 2 == 0 {
            raw.rest();
        }
    }
    let facts: Vec<String> = (0..10)
        .map(|n| if n % 2 == 0 { (n, "failing") } else { (n, "failing_slowly") })
        .map(|(n, way)| format!("e{n} POST /{way}/v1/chat/completions 200 in_band_error"))
        .collect();
    let expected: Vec<&str> = facts.iter().map(String::as_str).collect();
    let records = expect_facts(watch, &mut peer, &expected)?;
    let silent = records.iter().find(|record| record.ttft_s.is_none());
    ensure!(silent.is_none(), "what came before the error has a first token: {silent:#?}");
    Ok(())
}
