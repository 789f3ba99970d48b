//! `diagnose` and `changes`: what a running daemon found, and what changed on its node.

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use anyhow::Context as _;
use serde::de::DeserializeOwned;

use super::{Outcome, client, failure::Failure, output::Output};
use crate::{
    diagnose::{Change, Evidence, Finding, State, Unit},
    export::{
        findings::{Changes, Findings},
        json,
    },
};

/// Exit code where a finding goes on.
const ACTIVE: u8 = 1;
/// Numbers shown of a finding: the others are in its JSON.
const EVIDENCE: usize = 5;

/// Flags of both commands.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only what went on, or happened, so long ago at most, as in 15m or 2h.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    since: Option<Duration>,
    /// The JSON of the API.
    #[arg(long)]
    json: bool,
    /// The daemon's API.
    #[arg(long, value_name = "URL", default_value = client::DEFAULT_URL)]
    url: String,
}

/// Exits 1 when a finding goes on.
pub(super) fn diagnose(args: &Args) -> Outcome {
    let (text, told): (String, Findings) = ask(args, "findings")?;
    let mut out = Output::new();
    if args.json {
        out.line(text)?;
    } else if told.findings.is_empty() {
        out.line("nothing was found")?;
    }
    let findings = told.findings.iter().filter(|_| !args.json);
    findings.zip(1..).flat_map(|(each, n)| finding(n, each)).try_for_each(|line| out.line(line))?;
    out.flush()?;
    let active = told.findings.iter().any(|each| each.state == State::Active);
    Ok(if active { ExitCode::from(ACTIVE) } else { ExitCode::SUCCESS })
}

/// The time line.
pub(super) fn changes(args: &Args) -> Outcome {
    let (text, told): (String, Changes) = ask(args, "changes")?;
    let mut out = Output::new();
    if args.json {
        out.line(text)?;
    } else if told.changes.is_empty() {
        out.line("nothing has changed since the agent has watched")?;
    }
    if !args.json && told.gone > 0 {
        out.line(format!("{} older changes are not kept any more", told.gone))?;
    }
    told.changes.iter().filter(|_| !args.json).try_for_each(|each| out.line(change(each)))?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn ask<T: DeserializeOwned>(args: &Args, what: &str) -> Result<(String, T), Failure> {
    let since = args.since.map_or(String::new(), |since| format!("?since={}", since.as_secs()));
    let text = client::text(&args.url, &format!("/api/v1/{what}{since}"))?;
    let told = serde_json::from_str(&text)
        .with_context(|| format!("the agent's answer is not a list of {what}; is it of another version?"))
        .map_err(Failure::failed)?;
    Ok((text, told))
}

/// A finding in at most ten lines.
fn finding(n: usize, found: &Finding) -> Vec<String> {
    let mut lines = vec![head(n, found), format!("   {}", found.summary)];
    lines.extend(found.evidence.iter().take(EVIDENCE).map(|it| format!("   - {}", evidence(it))));
    lines.extend(found.changes.first().map(|it| format!("   changed before: {}", change(it))));
    let lacks = found.incomplete.join("; ");
    lines.extend((!lacks.is_empty()).then(|| format!("   evidence incomplete: {lacks}")));
    lines.push(format!("   look next: {}", found.next));
    lines
}

fn head(n: usize, found: &Finding) -> String {
    let mut line = format!("{n}. {}", found.rule);
    for name in [&found.service, &found.model_name].into_iter().flatten().filter(|name| !name.is_empty()) {
        let _ = write!(line, "  {name}");
    }
    let since = wall(found.opened_ns);
    let _ = match found.closed_ns {
        Some(closed) => write!(line, "  from {since} to {}", wall(closed)),
        None => write!(line, "  since {since}"),
    };
    if let Some((seconds, ratio)) = found.explains_s.zip(found.explains_ratio) {
        let _ = write!(
            line,
            "  explains {:.0} % of what requests take longer ({:.0} ms)",
            ratio * 100.0,
            seconds * 1e3
        );
    }
    let _ = write!(line, "  confidence {}", json::name(found.confidence));
    line
}

fn evidence(it: &Evidence) -> String {
    let usual = it.usual.map_or(String::new(), |usual| format!(", usually {}", number(usual, it.unit)));
    format!("{}: {}{usual}", it.what, number(it.value, it.unit))
}

fn number(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Seconds if value >= 10.0 => format!("{value:.1} s"),
        Unit::Seconds => format!("{:.1} ms", value * 1e3),
        Unit::Bytes => format!("{:.1} MiB", value / f64::from(1 << 20)),
        Unit::Tokens => format!("{value:.0} tokens"),
        Unit::TokensPerSecond => format!("{value:.0} tokens/s"),
        Unit::Ratio if value > 1.0 => format!("{value:.2}"),
        Unit::Ratio => format!("{:.1} %", value * 100.0),
        Unit::Count => format!("{value:.1}"),
        Unit::PerSecond => format!("{value:.2}/s"),
        Unit::Hertz => format!("{:.0} MHz", value / 1e6),
    }
}

fn change(it: &Change) -> String {
    let mut line = format!("{}  {}", wall(it.at_ns), it.text);
    for of in [&it.service, &it.device].into_iter().flatten() {
        let _ = write!(line, "  {of}");
    }
    line
}

/// Time of day, UTC.
fn wall(ns: u64) -> String {
    if ns == 0 {
        return "?".into();
    }
    humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + Duration::from_nanos(ns)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::{Basis, Kind, Likelihood, What};

    #[test]
    fn a_finding_is_ten_lines_at_most_and_says_what_it_lacks() {
        let number = |what: &str, value, usual, unit| Evidence { what: what.into(), value, usual, unit };
        let came = Change {
            at_ns: 1_700_000_000_000_000_000,
            what: What::NeighbourCame,
            service: Some("train".into()),
            device: None,
            text: "python (process 9) uses a GPU".into(),
        };
        let found = Finding {
            id: 1,
            rule: "gpu_contention".into(),
            kind: Kind::Cause,
            service: Some("svc".into()),
            model_name: None,
            state: State::Active,
            summary: "python works on the same GPU".into(),
            evidence: (0..9)
                .map(|n| number("queue, mean", 0.5 + f64::from(n), Some(0.005), Unit::Seconds))
                .collect(),
            confidence: Likelihood::High,
            incomplete: vec!["3.0 % of all records of the last half minute were lost".into()],
            explains_s: Some(0.88),
            explains_ratio: Some(0.9),
            basis: Some(Basis::Rolling),
            next: "move it".into(),
            changes: vec![came.clone(), came],
            requests: Vec::new(),
            opened_ns: 1_700_000_005_000_000_000,
            last_ns: 0,
            closed_ns: None,
            score: 0.9,
        };
        let lines = finding(1, &found);
        assert!(lines.len() <= 10, "{lines:#?}");
        assert_eq!(
            lines[0],
            "1. gpu_contention  svc  since 2023-11-14T22:13:25Z  explains 90 % of what requests take longer (880 ms)  \
             confidence high"
        );
        assert_eq!(lines[2], "   - queue, mean: 500.0 ms, usually 5.0 ms");
        assert_eq!(
            lines[7..],
            [
                "   changed before: 2023-11-14T22:13:20Z  python (process 9) uses a GPU  train",
                "   evidence incomplete: 3.0 % of all records of the last half minute were lost",
                "   look next: move it"
            ]
        );
    }
}
