//! The agent's records beside the peers' truth.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use system::agent::Record;
use system::rig::ClientView;
use system::statistics::quantile;
use system::truth::{Interval, Stamp};

use crate::truth::{Said, Truth};

/// What an agent's time may differ from the server's own, at the 99th percentile, µs.
const TOLERANCE_US: f64 = 200.0;

/// A run of at least this many requests must know its own times to within so much, at the median of each kind of
/// time, µs: a busy machine may delay any one of them by a scheduling slice.
const LOAD: usize = 100;
const MEDIAN_WIDTH_US: f64 = 1000.0;

/// Of the times of all runs of this process at least this share must be known to within the tolerance: else the
/// comparison with it says nothing. Not of each run's, since a peer that writes in another thread than it stamps has few.
const SHARP_SHARE: f64 = 0.05;

/// Times of peers that were compared with by this process, and those of them that are known to within the tolerance.
static STAMPS: AtomicUsize = AtomicUsize::new(0);
static SHARP: AtomicUsize = AtomicUsize::new(0);

/// What is wrong with the times of all peers that this process compared with, if anything is.
pub fn blunt() -> Option<String> {
    let [stamps, sharp] = [&STAMPS, &SHARP].map(|count| count.load(Ordering::Relaxed));
    let share = sharp as f64 / stamps.max(1) as f64;
    let percent = 100.0 * share;
    (stamps >= LOAD && share < SHARP_SHARE).then(|| {
        format!("only {percent:.1} % of the peers' {stamps} stamps are sharp enough to compare with")
    })
}

/// The comparison of one run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Requests the peer finished.
    pub requests: usize,
    /// Requests with a wrong, missing, or second record, and records of no request, in words.
    pub faults: Vec<String>,
    /// Distances to the truth by what was measured, µs.
    errors: BTreeMap<&'static str, Vec<f64>>,
    /// How wide the truth itself is, likewise, µs.
    widths: BTreeMap<&'static str, Vec<f64>>,
    /// By how much a client had something before the agent says it was written, µs.
    before_client: Vec<f64>,
}

impl Report {
    /// Joins by request id and compares. Clients may be none: then only the server's side is compared.
    pub fn new(truths: &[Truth], clients: &[ClientView], records: &[Record]) -> Self {
        let mut report = Self { requests: truths.len(), ..Self::default() };
        let mut by_id: HashMap<&str, Vec<&Record>> = HashMap::new();
        for record in records {
            by_id.entry(record.request_id.as_deref().unwrap_or_default()).or_default().push(record);
        }
        let clients: HashMap<&str, &ClientView> =
            clients.iter().map(|client| (client.request_id.as_str(), client)).collect();
        for truth in truths {
            let id = truth.request_id.as_deref().unwrap_or_default();
            match by_id.remove(id).as_deref() {
                Some([record]) => report.pair(id, truth, clients.get(id).copied(), record),
                Some(several) => report.fault(format!("{id}: {} records", several.len())),
                None => report.fault(format!("{id}: missed ({truth:?})")),
            }
        }
        STAMPS.fetch_add(report.stamps().count(), Ordering::Relaxed);
        SHARP.fetch_add(report.stamps().filter(|width| is_sharp(*width)).count(), Ordering::Relaxed);
        for (id, records) in by_id {
            report.fault(format!("{} records of no request, id {id:?}: {:?}", records.len(), records[0]));
        }
        report
    }

    fn fault(&mut self, text: String) {
        self.faults.push(text);
    }

    fn pair(&mut self, id: &str, truth: &Truth, client: Option<&ClientView>, record: &Record) {
        self.facts(id, truth, record);
        let first = truth.t_first_token_write_ns;
        self.time("first token", id, first, record.t_first_token_ns);
        self.time("last byte", id, truth.t_last_write_ns, record.t_last_byte_out_ns);
        self.gaps(id, truth, record);
        if let Some(client) = client {
            self.client(client, record);
        }
    }

    fn facts(&mut self, id: &str, truth: &Truth, record: &Record) {
        let said = |value: Option<&str>| value.unwrap_or("-").to_owned();
        // An error's answer names no stream; a request that asked for one is still one to some.
        let streaming = if truth.status == 200 { record.streaming } else { Some(truth.streaming) };
        let facts = [
            ("method", truth.method.clone(), said(record.method.as_deref())),
            ("path", truth.path.clone(), said(record.path.as_deref())),
            ("model", said(truth.model.as_deref()), said(record.model.as_deref())),
            ("status", truth.status.to_string(), optional(record.status.map(u64::from))),
            ("outcome", truth.outcome.clone(), said(record.outcome.as_deref())),
            (
                "streaming",
                truth.streaming.to_string(),
                streaming.map_or_else(|| "-".into(), |is| is.to_string()),
            ),
            ("flags", "[]".into(), format!("{:?}", record.flags)),
        ];
        self.equal(id, facts);
        if let Some(said) = &truth.said {
            self.said(id, said, record);
        }
    }

    /// What stands in the answer's body.
    fn said(&mut self, id: &str, is: &Said, says: &Record) {
        let word = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
        let facts = [
            ("api", is.api.clone(), word(&says.api)),
            ("model version", word(&is.model_version), word(&says.model_version)),
            ("finish reason", word(&is.finish_reason), word(&says.finish_reason)),
            ("input tokens", optional(is.input_tokens), optional(says.input_tokens)),
            ("output tokens", optional(is.output_tokens), optional(says.output_tokens)),
            ("source of the counts", word(&is.tokens_source), word(&says.tokens_source)),
        ];
        self.equal(id, facts);
    }

    fn equal(&mut self, id: &str, facts: impl IntoIterator<Item = (&'static str, String, String)>) {
        for (name, is, says) in facts {
            if is != says {
                self.fault(format!("{id}: {name} is {is}, the agent says {says}"));
            }
        }
    }

    fn time(&mut self, name: &'static str, id: &str, truth: Option<Stamp>, said: Option<u64>) {
        match (truth, said) {
            (Some([before, after]), Some(said)) => {
                let distance = before.saturating_sub(said).max(said.saturating_sub(after));
                self.errors.entry(name).or_default().push(distance as f64 / 1e3);
                self.widths.entry(name).or_default().push((after - before) as f64 / 1e3);
            }
            (Some(_), None) => self.fault(format!("{id}: no time of the {name}")),
            (None, Some(_)) => self.fault(format!("{id}: an invented time of the {name}")),
            (None, None) => {}
        }
    }

    fn gaps(&mut self, id: &str, truth: &Truth, record: &Record) {
        let gaps: Vec<Interval> =
            truth.content_write_ns.windows(2).map(|pair| Interval::between(pair[0], pair[1])).collect();
        let lows: Vec<f64> = gaps.iter().map(|gap| gap.low).collect();
        let highs: Vec<f64> = gaps.iter().map(|gap| gap.high).collect();
        for (name, q, said) in [("gap p50", 0.5, record.tbt_p50_s), ("gap max", 1.0, record.tbt_max_s)] {
            let (Some(low), Some(high)) = (quantile(&lows, q), quantile(&highs, q)) else { continue };
            match said {
                Some(said) => {
                    let distance = Interval { low, high }.distance(said) * 1e6;
                    self.errors.entry(name).or_default().push(distance);
                }
                None => self.fault(format!("{id}: no {name}")),
            }
        }
    }

    /// Compares each gap of each stream, by request id.
    pub fn every_gap(&mut self, truths: &[Truth], measured: &BTreeMap<String, Vec<f64>>) {
        for truth in truths.iter().filter(|truth| truth.content_write_ns.len() > 1) {
            let id = truth.request_id.as_deref().unwrap_or_default();
            let said = measured.get(id).map_or(&[][..], Vec::as_slice);
            let pairs = truth.content_write_ns.windows(2);
            if said.len() != pairs.len() {
                self.fault(format!("{id}: {} gaps, the agent says {}", pairs.len(), said.len()));
                continue;
            }
            let distances =
                pairs.zip(said).map(|(pair, said)| Interval::between(pair[0], pair[1]).distance(*said) * 1e6);
            self.errors.entry("each gap").or_default().extend(distances);
        }
    }

    fn client(&mut self, client: &ClientView, record: &Record) {
        let pairs = [
            (client.t_send, record.t_first_byte_in_ns),
            (record.t_first_token_ns, client.t_first_token),
            (record.t_last_byte_out_ns, client.t_last_byte),
        ];
        for (earlier, later) in pairs.into_iter().filter_map(|(earlier, later)| earlier.zip(later)) {
            self.before_client.push(earlier.saturating_sub(later) as f64 / 1e3);
        }
    }

    /// What does not hold.
    pub fn violations(&self) -> Vec<String> {
        let mut violations = self.faults.clone();
        let client = ("order of both ends", &self.before_client);
        for (name, errors) in self.errors.iter().map(|(name, errors)| (*name, errors)).chain([client]) {
            let p99 = quantile(errors, 0.99).unwrap_or_default();
            if p99 > TOLERANCE_US {
                violations.push(format!("{name}: {p99:.0} µs at p99, more than {TOLERANCE_US} µs"));
            }
        }
        if self.requests >= LOAD {
            violations.extend(self.widths.iter().filter_map(|(name, widths)| blurred(name, widths)));
        }
        violations
    }

    /// How wide each time of the truth is, µs.
    fn stamps(&self) -> impl Iterator<Item = f64> {
        self.widths.values().flatten().copied()
    }

    /// Share of the truth's times that are known to within the tolerance.
    fn sharp_share(&self) -> f64 {
        self.stamps().filter(|width| is_sharp(*width)).count() as f64 / self.stamps().count().max(1) as f64
    }
}

fn is_sharp(width: f64) -> bool {
    width <= TOLERANCE_US
}

/// What is wrong with the truth's own times of a kind, if anything is.
fn blurred(name: &str, widths: &[f64]) -> Option<String> {
    let median = quantile(widths, 0.5).filter(|median| *median > MEDIAN_WIDTH_US)?;
    Some(format!("{name}: the truth itself is {median:.0} µs wide at the median"))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests, {} faults", self.requests, self.faults.len())?;
        for (name, errors) in &self.errors {
            write!(f, "; {name} ")?;
            write_quantiles(f, errors)?;
        }
        write!(f, "; width of the truth ")?;
        write_quantiles(f, &self.stamps().collect::<Vec<_>>())?;
        write!(f, " ({:.0} % sharp)", 100.0 * self.sharp_share())?;
        write!(f, "; before the client ")?;
        write_quantiles(f, &self.before_client)
    }
}

fn optional(value: Option<u64>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

/// p50, p99 and the largest.
fn write_quantiles(f: &mut fmt::Formatter<'_>, values: &[f64]) -> fmt::Result {
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|q| quantile(values, q).unwrap_or_default());
    write!(f, "{p50:.0}/{p99:.0}/{max:.0} µs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth() -> Truth {
        Truth {
            request_id: Some("a".into()),
            method: "POST".into(),
            path: "/x".into(),
            status: 200,
            outcome: "ok".into(),
            streaming: true,
            t_first_token_write_ns: Some([1_000_000, 1_010_000]),
            t_last_write_ns: Some([3_000_000, 3_010_000]),
            said: Some(Said { api: "http".into(), output_tokens: Some(7), ..Said::default() }),
            ..Truth::default()
        }
    }

    fn record() -> Record {
        Record {
            request_id: Some("a".into()),
            method: Some("POST".into()),
            path: Some("/x".into()),
            status: Some(200),
            outcome: Some("ok".into()),
            streaming: Some(true),
            t_first_token_ns: Some(1_005_000),
            t_last_byte_out_ns: Some(3_005_000),
            api: Some("http".into()),
            output_tokens: Some(7),
            ..Record::default()
        }
    }

    #[test]
    fn what_agrees_is_no_violation() {
        assert_eq!(Report::new(&[truth()], &[], &[record()]).violations(), Vec::<String>::new());
    }

    #[test]
    fn each_gap_is_compared() {
        let stamps = |ms: &[u64]| ms.iter().map(|ms| [ms * 1_000_000, ms * 1_000_000 + 10_000]).collect();
        let truth = Truth { content_write_ns: stamps(&[1, 2, 4]), ..truth() };
        for (said, violation) in [
            (Some(vec![0.001, 0.002]), None),
            (Some(vec![0.001, 0.0025]), Some("each gap: 490 µs")),
            (Some(vec![0.003]), Some("2 gaps, the agent says 1")),
            (None, Some("2 gaps, the agent says 0")),
        ] {
            let mut report = Report::default();
            let measured = said.into_iter().map(|gaps| ("a".to_owned(), gaps)).collect();
            report.every_gap(std::slice::from_ref(&truth), &measured);
            let violations = report.violations();
            match violation {
                Some(part) => assert!(violations.iter().any(|text| text.contains(part)), "{violations:?}"),
                None => assert_eq!(violations, Vec::<String>::new()),
            }
        }
    }

    #[test]
    fn a_truth_that_is_vague_itself_is_none() {
        assert_eq!(blurred("x", &[10.0, 900.0, 5000.0]), None);
        assert!(blurred("x", &[10.0, 1100.0, 5000.0]).is_some_and(|text| text.contains("1100 µs")));
    }

    #[test]
    fn what_does_not_agree_is_said() {
        let late = Record { t_first_token_ns: Some(1_500_000), ..record() };
        let wrong = Record { outcome: Some("client_disconnect".into()), ..record() };
        let other = Record { request_id: None, ..record() };
        let uncounted = Record { output_tokens: None, ..record() };
        let blind = Record { t_last_byte_out_ns: None, ..record() };
        let vague = Record { streaming: None, ..record() };
        for (records, part) in [
            (vec![late], "490 µs at p99"),
            (vec![wrong], "outcome is ok, the agent says client_disconnect"),
            (vec![], "missed"),
            (vec![uncounted], "output tokens is 7, the agent says -"),
            (vec![record(), record()], "2 records"),
            (vec![record(), other], "records of no request"),
            (vec![blind], "no time of the last byte"),
            (vec![vague], "streaming is true, the agent says -"),
        ] {
            let violations = Report::new(&[truth()], &[], &records).violations();
            assert!(violations.iter().any(|text| text.contains(part)), "{part}: {violations:?}");
        }
    }
}
