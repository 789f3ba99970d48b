//! What the agent said beside what was true.
//!
//! The truth of a moment is an interval (the server's clock before and after the call), so the error of a value is
//! its distance to that interval, and the interval's width is the noise floor: what no observer could tell apart.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::agent::Record;
use crate::statistics::{largest, quantile};
use crate::truth::{Interval, Stamp, Truth};

/// Stages that are compared.
pub const STAGES: [&str; 5] = ["preprocess", "queue", "prefill", "decode", "postprocess"];

/// A stage shorter than this has no meaningful relative error: it is divided by this instead.
const SHORTEST_STAGE_S: f64 = 1e-3;

/// One request, both views.
#[derive(Clone, Debug)]
pub struct Pair {
    /// What was true.
    pub truth: Truth,
    /// What the agent said.
    pub record: Record,
}

impl Pair {
    fn begin(&self) -> Option<Stamp> {
        self.truth.begin(self.record.observes_arrival())
    }

    /// True time to first token, from where the record counts.
    pub fn ttft(&self) -> Option<Interval> {
        self.truth.ttft(self.begin()?)
    }

    /// True end to end, likewise.
    pub fn e2e(&self) -> Option<Interval> {
        self.truth.e2e(self.begin()?)
    }
}

/// Truth and records, joined by request id.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// Requests that both know.
    pub pairs: Vec<Pair>,
    /// Ids that only the server knows.
    pub missed: Vec<String>,
    /// Ids that the agent reported more than once.
    pub duplicated: Vec<String>,
    /// Records without an id, or with one that the server does not know.
    pub unmatched: usize,
}

/// Joins them. A request without an id cannot be told from others: it is left out here and counts as `unmatched`
/// there.
pub fn join(truths: &[Truth], records: &[Record]) -> Joined {
    let mut by_id: HashMap<&str, Vec<&Record>> = HashMap::new();
    for record in records {
        by_id.entry(record.request_id.as_deref().unwrap_or_default()).or_default().push(record);
    }
    let mut joined = Joined::default();
    for truth in truths {
        let Some(id) = truth.request_id.as_deref() else { continue };
        match by_id.remove(id).as_deref() {
            None | Some([]) => joined.missed.push(id.to_owned()),
            Some([record, more @ ..]) => {
                joined.pairs.push(Pair { truth: truth.clone(), record: (*record).clone() });
                if !more.is_empty() {
                    joined.duplicated.push(id.to_owned());
                }
            }
        }
    }
    joined.unmatched = by_id.values().map(Vec::len).sum();
    joined
}

/// The comparison in numbers: the object that `cargo xtask demo --json` prints as its last line.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Shape of the server.
    pub shape: String,
    /// Requests in flight.
    pub concurrency: u32,
    /// Requests the server finished.
    pub requests_true: usize,
    /// Of those, how many the agent reported.
    pub requests_seen: usize,
    /// Of those, how many it did not.
    pub missed: usize,
    /// Requests it reported more than once.
    pub duplicated: usize,
    /// Records of this server without a counterpart in the truth.
    pub unmatched: usize,
    /// Requests whose outcome it named differently.
    pub outcome_differs: usize,
    /// Errors of time to first token.
    pub ttft_err_us_p50: f64,
    /// The same.
    pub ttft_err_us_p99: f64,
    /// Streaming requests with a first token that the agent gave no TTFT for.
    pub ttft_absent: usize,
    /// Errors of a request's median time between tokens.
    pub tbt_err_us_p50: f64,
    /// The same.
    pub tbt_err_us_p99: f64,
    /// Errors of end to end.
    pub e2e_err_us_p50: f64,
    /// The same.
    pub e2e_err_us_p99: f64,
    /// Requests without an end-to-end time.
    pub e2e_absent: usize,
    /// Largest difference between the sum of a request's stages and its end-to-end time.
    pub stage_sum_err_us_max: f64,
    /// Median error of a stage, relative to its true length (to 1 ms where that is less).
    pub stage_err_rel_p50: BTreeMap<&'static str, f64>,
    /// Median error of a stage, milliseconds.
    pub stage_err_ms_p50: BTreeMap<&'static str, f64>,
    /// 99th percentile of that.
    pub stage_err_ms_p99: BTreeMap<&'static str, f64>,
    /// Median length of a stage, milliseconds: what the agent says.
    pub stage_ms_p50: BTreeMap<&'static str, f64>,
    /// What is true.
    pub stage_ms_p50_true: BTreeMap<&'static str, f64>,
    /// Requests for which the agent gave no value for the stage.
    pub stage_absent: BTreeMap<&'static str, usize>,
    /// Requests by how their arrival is known.
    pub arrival: BTreeMap<String, usize>,
    /// Errors of the wait between arrival and read.
    pub accept_wait_err_us_p50: f64,
    /// The same.
    pub accept_wait_err_us_p99: f64,
    /// Width of the truth of TTFT and end to end.
    pub noise_floor_us_p50: f64,
    /// The same.
    pub noise_floor_us_p99: f64,
    /// Requests by how sure the agent is.
    pub confidence: BTreeMap<String, usize>,
    /// Records that were lost in the kernel or could not be decoded.
    pub events_dropped: u64,
    /// Records the agent took.
    pub events_seen: u64,
    /// CPU time of the agent during the run, seconds.
    pub agent_cpu_s: f64,
    /// Median and 99th percentile of TTFT, milliseconds: what the agent says.
    pub ttft_ms: [f64; 2],
    /// What is true.
    pub ttft_ms_true: [f64; 2],
    /// Median of the requests' median time between tokens, and 99th percentile of their longest, milliseconds.
    pub tbt_ms: [f64; 2],
    /// What is true.
    pub tbt_ms_true: [f64; 2],
    /// Median and 99th percentile of end to end, milliseconds.
    pub e2e_ms: [f64; 2],
    /// What is true.
    pub e2e_ms_true: [f64; 2],
}

/// Compares; what is known of the run itself (shape, drops, CPU) is for the caller to fill in.
pub fn compare(joined: &Joined) -> Report {
    let pairs = &joined.pairs;
    let mut report = Report {
        requests_true: pairs.len() + joined.missed.len(),
        requests_seen: pairs.len(),
        missed: joined.missed.len(),
        duplicated: joined.duplicated.len(),
        unmatched: joined.unmatched,
        outcome_differs: pairs.iter().filter(|pair| !same_outcome(pair)).count(),
        stage_sum_err_us_max: largest(&collect(pairs, sum_error)) * 1e6,
        ..Report::default()
    };
    compare_times(pairs, &mut report);
    compare_stages(pairs, &mut report);
    compare_percentiles(pairs, &mut report);
    for pair in pairs {
        let confidence = pair.record.confidence.clone().unwrap_or_else(|| "absent".into());
        *report.confidence.entry(confidence).or_default() += 1;
        let arrival = pair.record.arrival.clone().unwrap_or_else(|| "absent".into());
        *report.arrival.entry(arrival).or_default() += 1;
    }
    report
}

/// Only a request that both sides call complete must be called so by both; the names of failures differ, since the
/// server cannot know everything about its client.
fn same_outcome(pair: &Pair) -> bool {
    (pair.truth.outcome == "ok") == (pair.record.outcome.as_deref() == Some("ok"))
}

fn compare_times(pairs: &[Pair], report: &mut Report) {
    let ttft = collect(pairs, |pair| Some(pair.ttft()?.distance(pair.record.ttft_s?)));
    let tbt = collect(pairs, |pair| Some(median_tbt(&pair.truth)?.distance(pair.record.tbt_p50_s?)));
    let e2e = collect(pairs, |pair| Some(pair.e2e()?.distance(pair.record.e2e_s?)));
    [report.ttft_err_us_p50, report.ttft_err_us_p99] = spread(&ttft, 1e6);
    [report.tbt_err_us_p50, report.tbt_err_us_p99] = spread(&tbt, 1e6);
    [report.e2e_err_us_p50, report.e2e_err_us_p99] = spread(&e2e, 1e6);
    let accept_wait =
        collect(pairs, |pair| Some(pair.truth.accept_wait()?.distance(pair.record.stage("accept_wait")?)));
    [report.accept_wait_err_us_p50, report.accept_wait_err_us_p99] = spread(&accept_wait, 1e6);
    let has_ttft = |pair: &&Pair| pair.truth.streaming && pair.ttft().is_some();
    report.ttft_absent = pairs.iter().filter(has_ttft).filter(|pair| pair.record.ttft_s.is_none()).count();
    report.e2e_absent =
        pairs.iter().filter(|pair| pair.e2e().is_some() && pair.record.e2e_s.is_none()).count();
    let mut widths = collect(pairs, |pair| Some(pair.ttft()?.width()));
    widths.extend(collect(pairs, |pair| Some(pair.e2e()?.width())));
    [report.noise_floor_us_p50, report.noise_floor_us_p99] = spread(&widths, 1e6);
}

fn compare_stages(pairs: &[Pair], report: &mut Report) {
    for stage in STAGES {
        let both = pairs.iter().filter_map(|pair| Some((pair.truth.stage(stage)?, pair.record.stage(stage))));
        let (mut absolute, mut relative, mut absent) = (Vec::new(), Vec::new(), 0);
        for (truth, seen) in both {
            match seen {
                Some(seen) => {
                    let error = (seen - truth).abs();
                    absolute.push(error);
                    relative.push(error / truth.max(SHORTEST_STAGE_S));
                }
                None => absent += 1,
            }
        }
        let [p50, p99] = spread(&absolute, 1e3);
        report.stage_err_ms_p50.insert(stage, p50);
        report.stage_err_ms_p99.insert(stage, p99);
        report.stage_err_rel_p50.insert(stage, spread(&relative, 1.0)[0]);
        report.stage_absent.insert(stage, absent);
        let seen = collect(pairs, |pair| pair.record.stage(stage));
        let truth = collect(pairs, |pair| pair.truth.stage(stage));
        report.stage_ms_p50.insert(stage, spread(&seen, 1e3)[0]);
        report.stage_ms_p50_true.insert(stage, spread(&truth, 1e3)[0]);
    }
}

fn compare_percentiles(pairs: &[Pair], report: &mut Report) {
    report.ttft_ms = spread(&collect(pairs, |pair| pair.record.ttft_s), 1e3);
    report.ttft_ms_true = spread(&collect(pairs, |pair| Some(pair.ttft()?.middle())), 1e3);
    report.e2e_ms = spread(&collect(pairs, |pair| pair.record.e2e_s), 1e3);
    report.e2e_ms_true = spread(&collect(pairs, |pair| Some(pair.e2e()?.middle())), 1e3);
    let medians = collect(pairs, |pair| pair.record.tbt_p50_s);
    let longest = collect(pairs, |pair| pair.record.tbt_max_s);
    report.tbt_ms = [spread(&medians, 1e3)[0], spread(&longest, 1e3)[1]];
    let medians = collect(pairs, |pair| Some(median_tbt(&pair.truth)?.middle()));
    let longest = collect(pairs, |pair| pair.truth.tbt().iter().map(|gap| gap.middle()).reduce(f64::max));
    report.tbt_ms_true = [spread(&medians, 1e3)[0], spread(&longest, 1e3)[1]];
}

/// The gap with the median middle.
fn median_tbt(truth: &Truth) -> Option<Interval> {
    let mut gaps = truth.tbt();
    gaps.sort_by(|left, right| left.middle().total_cmp(&right.middle()));
    gaps.get(gaps.len().checked_sub(1)? / 2).copied()
}

fn sum_error(pair: &Pair) -> Option<f64> {
    let stages = &pair.record.stages;
    (!stages.is_empty()).then_some(())?;
    Some((stages.values().sum::<f64>() - pair.record.e2e_s?).abs())
}

fn collect(pairs: &[Pair], value: impl Fn(&Pair) -> Option<f64>) -> Vec<f64> {
    pairs.iter().filter_map(value).collect()
}

/// Median and 99th percentile in another unit; 0 without values, which the `absent` counts tell apart.
fn spread(values: &[f64], unit: f64) -> [f64; 2] {
    [0.5, 0.99].map(|q| quantile(values, q).unwrap_or_default() * unit)
}

impl Report {
    /// What of the product's promise does not hold, a clause each. Empty when all holds.
    pub fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut want = |holds: bool, text: String| {
            if !holds {
                found.push(text);
            }
        };
        want(self.requests_true > 0, "no request was made".into());
        want(self.missed == 0, format!("{} requests missed", self.missed));
        want(self.duplicated == 0, format!("{} requests reported twice", self.duplicated));
        want(self.unmatched == 0, format!("{} records of requests that never were", self.unmatched));
        want(self.outcome_differs == 0, format!("{} outcomes differ", self.outcome_differs));
        want(self.events_dropped == 0, format!("{} events dropped", self.events_dropped));
        want(self.ttft_absent == 0, format!("{} requests without TTFT", self.ttft_absent));
        want(self.e2e_absent == 0, format!("{} requests without end-to-end time", self.e2e_absent));
        want(self.ttft_err_us_p99 <= 1000.0, format!("TTFT is {:.0} us off at p99", self.ttft_err_us_p99));
        want(
            self.e2e_err_us_p99 <= 1000.0,
            format!("end to end is {:.0} us off at p99", self.e2e_err_us_p99),
        );
        want(
            self.stage_sum_err_us_max <= 1.0,
            format!("stages miss e2e by {:.3} us", self.stage_sum_err_us_max),
        );
        if self.concurrency == 1 {
            for stage in ["queue", "prefill", "decode"] {
                let (ms, relative) = (self.stage_err_ms_p50[stage], self.stage_err_rel_p50[stage]);
                want(
                    ms <= 1.0 || relative <= 0.05,
                    format!("{stage} is {ms:.2} ms ({:.0} %) off", relative * 100.0),
                );
                want(
                    self.stage_absent[stage] == 0,
                    format!("{stage} is absent {} times", self.stage_absent[stage]),
                );
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(id: &str) -> Truth {
        Truth {
            request_id: Some(id.into()),
            streaming: true,
            outcome: "ok".into(),
            t_first_read_ns: Some([0, 1_000]),
            t_first_token_write_ns: Some([10_000_000, 10_001_000]),
            t_last_write_ns: Some([50_000_000, 50_001_000]),
            content_write_ns: vec![[10_000_000, 10_001_000], [50_000_000, 50_001_000]],
            queue_s: Some(0.0),
            prefill_s: Some(0.01),
            decode_s: Some(0.04),
            ..Truth::default()
        }
    }

    fn record(id: &str) -> Record {
        let stages = [("queue_s", 0.0), ("prefill_s", 0.01), ("decode_s", 0.04)];
        Record {
            request_id: Some(id.into()),
            outcome: Some("ok".into()),
            ttft_s: Some(0.010_000_5),
            e2e_s: Some(0.05),
            stages: stages.map(|(name, seconds)| (name.to_owned(), seconds)).into(),
            ..Record::default()
        }
    }

    fn report(truths: &[Truth], records: &[Record]) -> Report {
        Report { concurrency: 1, ..compare(&join(truths, records)) }
    }

    #[test]
    fn a_true_record_breaks_no_promise() {
        assert_eq!(report(&[truth("a")], &[record("a")]).violations(), Vec::<String>::new());
    }

    #[test]
    fn each_promise_is_checked() {
        let cases: [(&str, Vec<Record>); 8] = [
            ("1 requests missed", vec![]),
            ("reported twice", vec![record("a"), record("a")]),
            ("never were", vec![record("a"), record("b")]),
            ("TTFT is 2000 us off", vec![Record { ttft_s: Some(0.012_001), ..record("a") }]),
            ("without TTFT", vec![Record { ttft_s: None, ..record("a") }]),
            ("outcomes differ", vec![Record { outcome: Some("truncated".into()), ..record("a") }]),
            (
                "stages miss e2e",
                vec![Record { stages: [("queue_s".to_owned(), 0.04)].into(), ..record("a") }],
            ),
            (
                "decode is absent",
                vec![Record { stages: [("queue_s".to_owned(), 0.05)].into(), ..record("a") }],
            ),
        ];
        for (expected, records) in cases {
            let found = report(&[truth("a")], &records).violations();
            assert!(found.iter().any(|text| text.contains(expected)), "{expected}: {found:?}");
        }
    }

    #[test]
    fn short_stages_are_measured_against_a_millisecond() {
        let mut seen = record("a");
        seen.stages.insert("queue_s".into(), 0.0001);
        let report = report(&[truth("a")], &[seen]);
        assert!((report.stage_err_rel_p50["queue"] - 0.1).abs() < 1e-9);
    }
}
