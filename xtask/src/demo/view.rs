//! The demo's tables, as text.

use std::fmt::{Display, Write};

use system::accuracy::{self, Joined, Pair, Report, STAGES};

/// Rows of the table of requests.
const SHOWN: usize = 16;

/// The whole view.
pub(crate) fn render(joined: &Joined, report: &Report) -> String {
    let mut page = Page::default();
    requests(&mut page, &joined.pairs);
    times(&mut page, report);
    stages(&mut page, report);
    counts(&mut page, report);
    page.0
}

/// The lines that are the same in every view: whoever keeps an old one sees by them whether it still is of this form.
pub(crate) fn headings() -> Vec<String> {
    let empty = render(&Joined::default(), &accuracy::compare(&Joined::default()));
    let is_heading = |line: &&str| line.starts_with("request ") || line.contains("p50 true");
    empty.lines().filter(is_heading).map(str::to_owned).collect()
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, text: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{text}");
    }
}

fn requests(page: &mut Page, pairs: &[Pair]) {
    let mut pairs: Vec<&Pair> = pairs.iter().collect();
    pairs.sort_by_key(|pair| pair.truth.t_first_read_ns);
    let shown = &pairs[pairs.len().saturating_sub(SHOWN)..];
    page.line(format_args!(
        "Requests as the agent saw them (last {} of {}), milliseconds",
        shown.len(),
        pairs.len()
    ));
    page.line(format_args!(
        "{:<16} {:>5} {:>5} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  confidence",
        "request", "in", "out", "queue", "preproc", "prefill", "decode", "postproc", "other", "e2e", "TTFT"
    ));
    for pair in shown {
        page.line(request(pair));
    }
}

fn request(pair: &Pair) -> String {
    let record = &pair.record;
    let named = STAGES.map(|stage| format!("{stage}_s"));
    let other: f64 =
        record.stages.iter().filter(|(stage, _)| !named.contains(stage)).map(|(_, seconds)| seconds).sum();
    let [preprocess, queue, prefill, decode, postprocess] =
        STAGES.map(|stage| milliseconds(record.stage(stage)));
    let count = |tokens: Option<u64>| tokens.map_or_else(|| "-".to_owned(), |tokens| tokens.to_string());
    format!(
        "{:<16} {:>5} {:>5} {queue:>9} {preprocess:>9} {prefill:>9} {decode:>9} {postprocess:>9} {:>9} {:>9} {:>9}  {}",
        shortened(record.request_id.as_deref().unwrap_or("-")),
        count(record.input_tokens),
        count(record.output_tokens),
        milliseconds(Some(other)),
        milliseconds(record.e2e_s),
        milliseconds(record.ttft_s),
        record.confidence.as_deref().unwrap_or("-"),
    )
}

/// The end of an id tells requests apart.
fn shortened(id: &str) -> String {
    let letters: Vec<char> = id.chars().collect();
    letters[letters.len().saturating_sub(16)..].iter().collect()
}

/// What is not known is not zero.
fn milliseconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.3}", seconds * 1e3))
}

fn times(page: &mut Page, report: &Report) {
    page.line("\nAgent against truth: times, milliseconds (errors in microseconds)");
    page.line(format_args!(
        "{:<6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "", "p50", "p50 true", "p99", "p99 true", "error p50", "error p99"
    ));
    let rows = [
        ("TTFT", report.ttft_ms, report.ttft_ms_true, report.ttft_err_us_p50, report.ttft_err_us_p99),
        ("TBT", report.tbt_ms, report.tbt_ms_true, report.tbt_err_us_p50, report.tbt_err_us_p99),
        ("e2e", report.e2e_ms, report.e2e_ms_true, report.e2e_err_us_p50, report.e2e_err_us_p99),
    ];
    for (name, [p50, p99], [true50, true99], error50, error99) in rows {
        page.line(format_args!(
            "{name:<6} {p50:>10.3} {true50:>10.3} {p99:>10.3} {true99:>10.3} {error50:>10.1} {error99:>10.1}"
        ));
    }
    page.line(format_args!(
        "An error is the distance to the [before, after] of the server's own call (of the client's, for arrival); the width of that, which nobody can see below, \
         is {:.1} us at p50 and {:.1} us at p99.",
        report.noise_floor_us_p50, report.noise_floor_us_p99
    ));
}

fn stages(page: &mut Page, report: &Report) {
    page.line("\nAgent against truth: stages, milliseconds");
    page.line(format_args!(
        "{:<12} {:>10} {:>10} {:>10} {:>10} {:>9} {:>7}",
        "", "p50", "p50 true", "error p50", "error p99", "relative", "absent"
    ));
    for stage in STAGES {
        page.line(format_args!(
            "{stage:<12} {:>10.3} {:>10.3} {:>10.3} {:>10.3} {:>8.1}% {:>7}",
            report.stage_ms_p50[stage],
            report.stage_ms_p50_true[stage],
            report.stage_err_ms_p50[stage],
            report.stage_err_ms_p99[stage],
            report.stage_err_rel_p50[stage] * 100.0,
            report.stage_absent[stage]
        ));
    }
    page.line(format_args!(
        "\"relative\" is the median error against the true length (at least 1 ms). The stages of a request add up to \
         its e2e within {:.3} us.",
        report.stage_sum_err_us_max
    ));
}

fn counts(page: &mut Page, report: &Report) {
    let confidence: Vec<String> =
        report.confidence.iter().map(|(name, count)| format!("{count} {name}")).collect();
    page.line(format_args!(
        "\n{} requests, {} seen, {} missed, {} reported twice; confidence: {}; {} of {} events dropped; agent CPU {:.2} s",
        report.requests_true,
        report.requests_seen,
        report.missed,
        report.duplicated,
        confidence.join(", "),
        report.events_dropped,
        report.events_seen,
        report.agent_cpu_s
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_view_has_three_tables() {
        assert_eq!(headings().len(), 3);
    }

    #[test]
    fn unknown_is_not_zero() {
        assert_eq!(milliseconds(None), "-");
        assert_eq!(milliseconds(Some(0.0)), "0.000");
    }
}
