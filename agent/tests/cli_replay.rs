//! The real binary over recordings made by hand.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use agent::{
    decode::Observation,
    request::{
        RequestRecord,
        record::{Confidence, Outcome},
    },
    source::recording::Writer,
};
use wire::{Header, Kind};
use zerocopy::IntoBytes as _;

#[path = "hand/request.rs"]
mod hand;

use hand::{PID, PORT, header, one_request};

fn replay(path: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stagelens")).arg("replay").arg(path).args(args).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

fn recording(records: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, u64::MAX).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    file
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn frame() -> [Vec<u8>; 3] {
    let start = Observation::Start { agent: "0".into(), kernel: "6".into(), rows: Vec::new() };
    [start.to_record(1), Observation::Clock { wall_ns: 2 }.to_record(2), Observation::End.to_record(3)]
}

#[test]
fn what_is_not_a_recording_is_said_in_one_line() {
    let dir = Dir::new();
    let good = recording(&frame());
    let mut other_abi = good.clone();
    other_abi[8] = 99;
    let mut later = good.clone();
    later[7] = 9;
    for (name, bytes, want) in [
        ("text", &b"this is not a recording"[..], "not a stagelens recording"),
        ("empty", b"", "not a stagelens recording"),
        ("abi", &other_abi, "records of ABI 99, this agent reads ABI"),
        ("version", &later, "format version 9, this agent reads version 1"),
    ] {
        let path = dir.file(name, bytes);
        for args in [&[][..], &["--json"]] {
            let output = replay(&path, args);
            assert_eq!(output.status.code(), Some(1), "{name}");
            let message = stderr(&output);
            assert!(
                message.starts_with(&format!("stagelens: cannot replay {}: ", path.display())),
                "{message}"
            );
            assert!(message.contains(want) && message.lines().count() == 1, "{message}");
            assert_eq!(stdout(&output), "");
        }
    }
    let output = replay(Path::new("/nonexistent/r"), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("No such file"), "{}", stderr(&output));
}

#[test]
fn a_truncated_recording_is_used_up_to_the_cut_and_said() {
    let dir = Dir::new();
    let mut bytes = recording(&frame());
    bytes.truncate(bytes.len() - 1);
    let output = replay(&dir.file("cut", &bytes), &[]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(
        message.contains("ends inside record 2") && message.contains("the 2 records before it are complete")
    );
    assert!(stdout(&output).contains("0 requests"), "{}", stdout(&output));
}

/// To the nanosecond: seconds are sums of numbers that are not exact in binary.
fn nanoseconds(seconds: Option<f64>) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "milliseconds of a test")]
    seconds.map(|seconds| (seconds * 1e9).round() as i64)
}

#[test]
fn a_request_comes_out_with_its_stages() {
    let dir = Dir::new();
    let output = replay(&dir.file("one", &recording(&one_request())), &["--json"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let lines: Vec<_> = stdout(&output).lines().collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(!lines[0].contains("secret"), "{}", lines[0]);
    let record: RequestRecord = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(record.request_id.as_deref(), Some("r-1"));
    assert_eq!((record.pid, record.local_port, record.status), (PID, Some(PORT), Some(200)));
    assert_eq!((record.model.as_deref(), record.service.as_str()), (Some("tiny"), "server"));
    assert_eq!((record.outcome, record.confidence), (Some(Outcome::Ok), Some(Confidence::Exact)));
    assert_eq!((record.input_tokens, record.output_tokens, record.chunks), (Some(9), Some(3), Some(3)));
    assert_eq!(record.ts.as_deref(), Some("2023-11-14T22:13:20.100000000Z"));
    assert_eq!(nanoseconds(record.e2e_s), Some(22_200_000));
    assert_eq!(nanoseconds(record.ttft_s), Some(11_200_000));
    assert_eq!(nanoseconds(record.tbt_max_s), Some(5_500_000));
    let stages: BTreeMap<_, _> =
        record.stages.iter().map(|(stage, &s)| (stage.as_str(), nanoseconds(Some(s)).unwrap())).collect();
    for (stage, ns) in [
        ("preprocess_s", 1_000_000),
        ("queue_s", 0),
        ("prefill_s", 10_000_000),
        ("decode_s", 11_000_000),
        ("postprocess_s", 200_000),
    ] {
        assert_eq!(stages.get(stage), Some(&ns), "{stage}: {stages:?}");
    }
    assert_eq!(stages.values().sum::<i64>(), 22_200_000, "{stages:?}");
}

#[test]
fn for_people_it_is_a_table_with_percentiles() {
    let dir = Dir::new();
    let output = replay(&dir.file("one", &recording(&one_request())), &[]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let text = stdout(&output);
    let row = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("no {name} in\n{text}"));
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("ttft"), ["1", "11.200", "11.200", "11.200", "11.200"]);
    assert_eq!(row("tbt"), ["2", "5.500", "5.500", "5.500", "5.500"]);
    assert_eq!(row("prefill"), ["1", "10.000", "10.000", "10.000", "10.000"]);
    assert!(text.contains("1 requests, 1 ok"), "{text}");
    assert!(text.contains("13 records, 0 of them not decodable; 0 lost in the kernel"), "{text}");
}

#[test]
fn garbage_between_records_is_counted_and_harms_nothing() {
    let dir = Dir::new();
    let want = replay(&dir.file("good", &recording(&one_request())), &["--json"]);
    let mut records = one_request();
    let unknown = header(Kind::Step, size_of::<Header>(), 1);
    records.insert(3, b"x".to_vec());
    records.insert(6, Header { kind: 0x7777, ..unknown }.as_bytes().to_vec());
    records.insert(8, Header { abi: 99, ..unknown }.as_bytes().to_vec());
    let path = dir.file("garbage", &recording(&records));
    let output = replay(&path, &["--json"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), stdout(&want)));
    let table = replay(&path, &[]);
    assert!(stdout(&table).contains("16 records, 3 of them not decodable"), "{}", stdout(&table));
}

#[test]
fn a_recording_without_its_end_still_gives_its_requests() {
    let dir = Dir::new();
    let want = replay(&dir.file("good", &recording(&one_request())), &["--json"]);
    assert_eq!(stdout(&want).lines().count(), 1);
    let mut records = one_request();
    records.truncate(records.len() - 2);
    let output = replay(&dir.file("killed", &recording(&records)), &["--json"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), stdout(&want)));
}
