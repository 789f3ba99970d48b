//! Golden tests: the committed recordings of the rig, taken through the whole core without root or BPF.
//!
//! Each recording has the request records it must give (`*.records.jsonl`, refreshed with `UPDATE_EXPECT=1`) and the
//! truth that the recorded server wrote about itself (`*.truth.jsonl`), so that a refreshed expectation that is
//! wrong still fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use agent::{
    export::json,
    pipeline::{Output, Pipeline, Settings},
    request::RequestRecord,
    source::recording::Reader,
};
use expect_test::expect_file;
use serde::Deserialize;

const RECORDINGS: [&str; 2] = ["demo-single", "demo-split"];
const MS: u64 = 1_000_000;

fn path(name: &str, ending: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings").join(format!("{name}.{ending}"))
}

/// Every request of a recording, and the core after it.
fn replay(name: &str) -> (Vec<RequestRecord>, Pipeline) {
    let mut reader = Reader::new(BufReader::new(File::open(path(name, "slrec")).unwrap())).unwrap();
    let mut pipeline = Pipeline::new(Settings {});
    let (mut record, mut out) = (Vec::new(), Vec::new());
    while reader.read(&mut record).unwrap() {
        let before = record.clone();
        pipeline.process(&mut record, &mut out);
        assert_eq!(before, record, "{name}: a recording is masked already");
    }
    let requests = out.into_iter().filter_map(|output| match output {
        Output::Request(request) => Some(*request),
        _ => None,
    });
    (requests.collect(), pipeline)
}

/// What the recorded server says of a request; times `[before, after]` the call.
#[derive(Deserialize)]
struct Truth {
    request_id: String,
    streaming: bool,
    outcome: String,
    t_last_read_ns: [u64; 2],
    t_first_token_write_ns: Option<[u64; 2]>,
    t_last_write_ns: Option<[u64; 2]>,
    output_tokens: u64,
}

fn truth(name: &str) -> BTreeMap<String, Truth> {
    let text = std::fs::read_to_string(path(name, "truth.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Truth>(line).unwrap());
    lines.map(|truth| (truth.request_id.clone(), truth)).collect()
}

/// What the client says of a request: times right before and after it was sent.
#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names of the file")]
struct Sent {
    request_id: String,
    t_send: u64,
    t_sent: u64,
}

/// When each request arrived, between its client's times: only the client can know.
fn arrivals(name: &str) -> BTreeMap<String, [u64; 2]> {
    let text = std::fs::read_to_string(path(name, "client.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Sent>(line).unwrap());
    lines.map(|sent| (sent.request_id, [sent.t_send, sent.t_sent])).collect()
}

/// Distance of a time from an interval.
fn distance(time: u64, [before, after]: [u64; 2]) -> u64 {
    before.saturating_sub(time).max(time.saturating_sub(after))
}

#[test]
fn records_are_the_expected_ones() {
    for name in RECORDINGS {
        let lines: String =
            replay(name).0.iter().map(|request| json::line(request).trim_end().to_owned() + "\n").collect();
        expect_file![path(name, "records.jsonl")].assert_eq(&lines);
    }
}

#[test]
fn every_true_request_is_seen_once_and_no_other() {
    for name in RECORDINGS {
        let (requests, _) = replay(name);
        let seen: Vec<&str> = requests.iter().filter_map(|r| r.request_id.as_deref()).collect();
        assert_eq!(seen.len(), requests.len(), "{name}: the load numbers all its requests");
        let once: BTreeSet<&str> = seen.iter().copied().collect();
        assert_eq!(once.len(), seen.len(), "{name}: none twice");
        let truth = truth(name);
        assert_eq!(once, truth.keys().map(String::as_str).collect(), "{name}");
    }
}

#[test]
fn times_and_outcomes_are_the_true_ones() {
    for name in RECORDINGS {
        let (truth, arrivals) = (truth(name), arrivals(name));
        for request in replay(name).0 {
            let id = request.request_id.as_deref().unwrap();
            let true_ = &truth[id];
            assert_eq!(request.streaming, Some(true_.streaming), "{id}");
            assert_eq!(json::name(request.outcome), true_.outcome, "{id}");
            assert_eq!(request.output_tokens, Some(true_.output_tokens), "{id}");
            let near = |time: Option<u64>, interval: Option<[u64; 2]>| match (time, interval) {
                (Some(time), Some(interval)) => distance(time, interval) < MS,
                (None, None) => true,
                _ => false,
            };
            assert!(near(request.t_first_byte_in_ns, Some(arrivals[id])), "{id}");
            assert!(near(request.t_read_done_ns, Some(true_.t_last_read_ns)), "{id}");
            assert!(near(request.t_first_token_ns, true_.t_first_token_write_ns), "{id}");
            assert!(near(request.t_last_byte_out_ns, true_.t_last_write_ns), "{id}");
        }
    }
}

#[test]
fn stages_add_up_and_none_is_negative() {
    for name in RECORDINGS {
        for request in replay(name).0 {
            let sum: f64 = request.stages.values().sum();
            let e2e = request.e2e_s.unwrap();
            assert!((sum - e2e).abs() < 1e-6, "{name}: {sum} against {e2e}");
            assert!(request.stages.values().all(|stage| *stage >= 0.0), "{name}: {:?}", request.stages);
        }
    }
}

#[test]
fn every_record_is_accounted_for() {
    for name in RECORDINGS {
        let (requests, pipeline) = replay(name);
        let health = pipeline.health();
        assert!(health.seen > requests.len() as u64);
        assert_eq!(health.seen, health.decoded + health.failed.values().sum::<u64>());
        assert!(health.failed.is_empty(), "{name}: {:?}", health.failed);
    }
}

#[test]
fn replaying_twice_gives_the_same() {
    for name in RECORDINGS {
        let lines = || replay(name).0.iter().map(json::line).collect::<Vec<_>>();
        assert_eq!(lines(), lines());
    }
}
