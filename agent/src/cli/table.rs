//! Finished requests as a table for people: one line each, times in milliseconds.

use std::{collections::BTreeSet, fmt::Write as _};

use crate::{export::json, request::RequestRecord};

/// Lines between two headings on a terminal.
const HEADING_EVERY: usize = 40;

/// Stages with a column of their own; all others are in `OTHER`, so that a row still adds up.
const STAGES: [(&str, &str); 7] = [
    ("NET_IN", "network_in_s"),
    ("PREPROC", "preprocess_s"),
    ("QUEUE", "queue_s"),
    ("PREFILL", "prefill_s"),
    ("DECODE", "decode_s"),
    ("POSTPROC", "postprocess_s"),
    ("NET_OUT", "network_out_s"),
];

/// Prefill and decode in one, where they cannot be told apart: shown under `DECODE` with a star.
const FORWARD: &str = "forward_s";

/// Makes the lines of a table.
#[derive(Debug)]
pub(super) struct Table {
    repeat_heading: bool,
    rows: usize,
}

impl Table {
    /// `terminal`: the heading comes again and again, since it scrolls away.
    pub(super) fn new(terminal: bool) -> Self {
        Self { repeat_heading: terminal, rows: 0 }
    }

    /// The line of a request, with a heading before it when one is due.
    pub(super) fn row(&mut self, record: &RequestRecord) -> String {
        let due = self.rows == 0 || self.repeat_heading && self.rows.is_multiple_of(HEADING_EVERY);
        self.rows += 1;
        let mut text = if due { heading() } else { String::new() };
        text.push_str(&line(record));
        text
    }
}

fn heading() -> String {
    let mut text = format!(
        "{:<12} {:<14} {:<14} {:>3} {:<12} {:>8} {:>8} {:>7} {:>5} {:>5} |",
        "TIME(UTC)", "SERVICE", "MODEL", "ST", "OUTCOME", "E2E(ms)", "TTFT", "TBT_P50", "IN", "OUT"
    );
    for (title, _) in STAGES {
        let _ = write!(text, " {title:>8}");
    }
    let _ = writeln!(text, " {:>8} | STAGES", "OTHER");
    text
}

fn line(record: &RequestRecord) -> String {
    let mut text = format!(
        "{:<12} {:<14} {:<14} {:>3} {:<12} {:>8} {:>8} {:>7} {:>5} {:>5} |",
        time(record.ts.as_deref()),
        short_service(&record.service, 14),
        short(record.model.as_deref().unwrap_or("-"), 14),
        number(record.status),
        short(&record.outcome.map_or("-".into(), json::name), 12),
        milliseconds(record.e2e_s),
        milliseconds(record.ttft_s),
        milliseconds(record.tbt_p50_s),
        number(record.input_tokens),
        number(record.output_tokens),
    );
    let forward = record.stages.get(FORWARD).copied();
    for (_, stage) in STAGES {
        let own = record.stages.get(stage).copied();
        let cell = match forward {
            Some(forward) if stage == "decode_s" && own.is_none() => milliseconds(Some(forward)) + "*",
            _ => milliseconds(own),
        };
        let _ = write!(text, " {cell:>8}");
    }
    let _ = writeln!(text, " {:>8} | {}", milliseconds(other(record)), remarks(record));
    text
}

/// Everything that has no column.
fn other(record: &RequestRecord) -> Option<f64> {
    let shown: BTreeSet<_> = STAGES.iter().map(|(_, stage)| *stage).chain([FORWARD]).collect();
    record
        .stages
        .iter()
        .filter(|(stage, _)| !shown.contains(stage.as_str()))
        .map(|(_, s)| *s)
        .reduce(|a, b| a + b)
}

fn remarks(record: &RequestRecord) -> String {
    let mut words = vec![record.confidence.map_or("-".into(), json::name)];
    words.extend(record.flags.iter().map(json::name));
    words.join(",")
}

/// Time of day of an RFC 3339 stamp, to the millisecond.
fn time(ts: Option<&str>) -> &str {
    ts.and_then(|ts| ts.get(11..23)).unwrap_or("-")
}

fn milliseconds(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".into(),
        Some(seconds) if seconds >= 100.0 => format!("{:.0}", seconds * 1e3),
        Some(seconds) => format!("{:.2}", seconds * 1e3),
    }
}

fn number<T: ToString>(number: Option<T>) -> String {
    number.map_or("-".into(), |number| number.to_string())
}

/// At most `width` characters, the last of them an ellipsis when some are missing. Control characters of a name
/// that came from a target must not reach a terminal.
fn short(text: &str, width: usize) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if clean.chars().count() <= width {
        return clean;
    }
    clean.chars().take(width - 1).chain(['…']).collect()
}

/// The same for a service's name, where what tells two of them apart, the port, is at the end.
fn short_service(name: &str, width: usize) -> String {
    let port = name.rfind(':').map_or("", |at| &name[at..]);
    if name.chars().count() <= width || port.is_empty() || port.len() > 6 {
        return short(name, width);
    }
    short(&name[..name.len() - port.len()], width - port.len()) + port
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::record::{Confidence, Flag, Outcome};

    fn record() -> RequestRecord {
        RequestRecord {
            ts: Some("2026-01-02T03:04:05.678901234Z".into()),
            service: "modelserver".into(),
            model: Some("a-model-with-a-very-long-name".into()),
            status: Some(200),
            outcome: Some(Outcome::Ok),
            e2e_s: Some(0.5),
            ttft_s: Some(0.1),
            tbt_p50_s: Some(0.008),
            input_tokens: Some(64),
            output_tokens: Some(32),
            stages: [
                ("network_in_s", 0.0),
                ("preprocess_s", 0.001),
                ("queue_s", 0.05),
                ("prefill_s", 0.04),
                ("decode_s", 0.4),
                ("postprocess_s", 0.004),
                ("network_out_s", 0.0),
                ("unattributed_s", 0.003),
                ("accept_wait_s", 0.002),
            ]
            .map(|(stage, seconds)| (stage.to_owned(), seconds))
            .into(),
            confidence: Some(Confidence::Exact),
            flags: vec![Flag::MidStream],
            ..RequestRecord::default()
        }
    }

    #[test]
    fn a_row_shows_every_stage_once() {
        let mut table = Table::new(false);
        let mut text = table.row(&record());
        let unsure = RequestRecord {
            stages: [("forward_s".to_owned(), 0.44)].into(),
            confidence: Some(Confidence::Bounded),
            flags: Vec::new(),
            ..record()
        };
        text += &table.row(&unsure);
        text += &table.row(&RequestRecord::default());
        expect_test::expect![[r"
            TIME(UTC)    SERVICE        MODEL           ST OUTCOME       E2E(ms)     TTFT TBT_P50    IN   OUT |   NET_IN  PREPROC    QUEUE  PREFILL   DECODE POSTPROC  NET_OUT    OTHER | STAGES
            03:04:05.678 modelserver    a-model-with-… 200 ok             500.00   100.00    8.00    64    32 |     0.00     1.00    50.00    40.00   400.00     4.00     0.00     5.00 | exact,mid_stream
            03:04:05.678 modelserver    a-model-with-… 200 ok             500.00   100.00    8.00    64    32 |        -        -        -        -  440.00*        -        -        - | bounded
            -                           -                - -                   -        -       -     -     - |        -        -        -        -        -        -        -        - | -
        "]].assert_eq(&text);
    }

    #[test]
    fn the_heading_comes_again_on_a_terminal_only() {
        for (terminal, want) in [(false, 1), (true, 3)] {
            let mut table = Table::new(terminal);
            let text: String =
                (0..=2 * HEADING_EVERY).map(|_| table.row(&RequestRecord::default())).collect();
            assert_eq!(text.lines().filter(|line| line.starts_with("TIME")).count(), want);
        }
    }

    #[test]
    fn names_are_cut_and_cleaned() {
        for (text, want) in [("abc", "abc"), ("abcdef", "abc…"), ("äöüß", "äöüß"), ("a\x1b[1", "a?[1")]
        {
            assert_eq!(short(text, 4), want);
        }
        let services = [
            ("vllm:8000", "vllm:8000"),
            ("modelserver:36803", "modelse…:36803"),
            ("a-very-long-name", "a-very-long-n…"),
            ("\x1bmodelserver:36803", "?models…:36803"),
            ("modelserver:not-a-port", "modelserver:n…"),
        ];
        for (name, want) in services {
            assert_eq!(short_service(name, 14), want);
        }
    }
}
