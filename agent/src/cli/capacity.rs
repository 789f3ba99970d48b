//! `capacity`: how much more each model can take, from what a running daemon has seen.

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use anyhow::Context as _;

use super::{Outcome, client, failure::Failure, output::Output};
use crate::{
    diagnose::{
        Stats,
        capacity::{Batching, Point, Told},
    },
    export::{capacity::Answer, json},
};

/// Flags of the command.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this service.
    #[arg(long)]
    service: Option<String>,
    /// Only this model.
    #[arg(long)]
    model: Option<String>,
    /// Only so far back, in steps of ten minutes; an hour is kept.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    window: Option<Duration>,
    /// Time to first token that 99 of 100 requests must keep.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    ttft: Option<Duration>,
    /// Time between tokens that steps must keep.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    tbt: Option<Duration>,
    /// The JSON of the API.
    #[arg(long)]
    json: bool,
    /// The daemon's API.
    #[arg(long, value_name = "URL", default_value = client::DEFAULT_URL)]
    url: String,
}

pub(super) fn capacity(args: &Args) -> Outcome {
    let text = client::text(&args.url, &path(args))?;
    let answer: Answer = serde_json::from_str(&text)
        .context("the agent's answer is not what models can take; is it of another version?")
        .map_err(Failure::failed)?;
    let answer = answer.only(args.service.as_deref(), args.model.as_deref());
    let mut out = Output::new();
    if args.json {
        out.line(json::line(&answer).trim_end())?;
    } else {
        let lines: Vec<String> = answer.models.iter().flat_map(lines).collect();
        if lines.is_empty() {
            out.line("no finished requests yet")?;
        }
        lines.into_iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Names are no part of it: they may hold anything, and are picked from the answer.
fn path(args: &Args) -> String {
    let seconds = |name: &str, of: Option<Duration>| of.map(|of| format!("{name}={}", of.as_secs_f64()));
    let window = args.window.map(|window| format!("window={}", window.as_secs()));
    let all = [window, seconds("ttft", args.ttft), seconds("tbt", args.tbt)];
    let all: Vec<String> = all.into_iter().flatten().collect();
    format!("/api/v1/capacity?{}", all.join("&"))
}

fn lines(told: &Told) -> Vec<String> {
    let model = if told.model.is_empty() { "(no model named)" } else { &told.model };
    let mut lines = vec![format!(
        "{}  {model}  {} requests in {:.0} s of work",
        told.service, told.requests, told.busy_s
    )];
    lines.push(format!(
        "  {:>9} {:>7} {:>9} {:>10} {:>22} {:>22}",
        "IN_FLIGHT", "SECONDS", "REQ/S", "TOKENS/S", "E2E p50/p95/p99 (ms)", "TTFT p50/p95/p99 (ms)"
    ));
    lines.extend(told.points.iter().map(point));
    lines.push(format!("  {}", verdict(told)));
    lines.extend(
        told.slo_concurrency.map(|at| format!("  the time to first token was kept up to {at:.1} in flight")),
    );
    lines.extend(told.batch.as_ref().map(|batch| format!("  {}", cost(batch))));
    lines.extend(told.scissors.iter().map(|it| {
        format!(
            "  p99 took off from {:.0} ms to {:.0} ms at {:.1} requests/s ({:.1} before)",
            it.p99_s_before * 1e3,
            it.p99_s * 1e3,
            it.requests_per_s,
            it.requests_per_s_before
        )
    }));
    lines
}

fn point(it: &Point) -> String {
    let three = |stats: Option<Stats>| {
        let ms = |s: f64| s * 1e3;
        let told = |s: Stats| format!("{:.0}/{:.0}/{:.0}", ms(s.p50), ms(s.p95), ms(s.p99));
        stats.map_or("-".into(), told)
    };
    format!(
        "  {:>9.1} {:>7.0} {:>9.2} {:>10.0} {:>22} {:>22}",
        it.concurrency,
        it.seconds,
        it.requests_per_s,
        it.output_tokens_per_s,
        three(it.e2e_s),
        three(it.ttft_s)
    )
}

fn verdict(told: &Told) -> String {
    if let Some(refusal) = &told.refusal {
        return format!("no knee is told: {refusal}");
    }
    let Some(knee) = &told.knee else { return "no knee is told".into() };
    let mut text = format!(
        "knee at {:.1} in flight, {:.2} requests/s (the fit explains {:.0} %)",
        knee.concurrency,
        knee.requests_per_s,
        knee.r2 * 100.0
    );
    for (what, at) in [("suggested", told.suggested_concurrency), ("alarm at", told.alarm_concurrency)] {
        if let Some(at) = at {
            let _ = write!(text, "; {what} {at:.1}");
        }
    }
    text
}

fn cost(it: &Batching) -> String {
    let mut text = format!(
        "a decode step takes {:.2} ms and {:.3} ms for each request in it (batches of {} to {}, the line explains {:.0} %)",
        it.fixed_s * 1e3,
        it.per_request_s.max(0.0) * 1e3,
        it.seen[0],
        it.seen[1],
        it.r2 * 100.0
    );
    if let Some(batch) = it.suggested_batch {
        let _ = write!(text, "; suggested batch {batch}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::capacity::{Knee, Method, Refusal};

    #[test]
    fn a_knee_or_why_there_is_none() {
        let knee = Knee {
            concurrency: 8.04,
            requests_per_s: 80.2,
            method: Method::Saturation,
            r2: 0.99,
            alone_per_s: 10.0,
        };
        let told = Told {
            service: "svc".into(),
            suggested_concurrency: Some(8.04),
            alarm_concurrency: Some(6.43),
            knee: Some(knee),
            ..Told::default()
        };
        assert_eq!(
            verdict(&told),
            "knee at 8.0 in flight, 80.20 requests/s (the fit explains 99 %); suggested 8.0; alarm at 6.4"
        );
        let refused = Told { refusal: Some(Refusal::StillGrows { most: 4.0 }), ..Told::default() };
        assert_eq!(
            verdict(&refused),
            "no knee is told: throughput still grows at 4.0 requests in flight, the most there were"
        );
    }
}
