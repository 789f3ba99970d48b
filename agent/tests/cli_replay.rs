//! The real binary over recordings made by hand.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use agent::{
    decode::{ListenPort, Observation, ProcessSeen},
    request::{
        RequestRecord,
        record::{Confidence, Outcome},
    },
    source::recording::Writer,
};
use wire::{
    Header, Kind,
    cuda::{Step, Work},
    socket::{self, SockId},
};
use zerocopy::IntoBytes as _;

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

/// The only process and thread of the recorded server.
const PID: u32 = 4711;
const PORT: u16 = 8000;
const CONNECTION: SockId = SockId { sock: 0xfff0, birth_ns: 900_000_000 };
/// When the request is read.
const READ_NS: u64 = 1_000_000_000;

fn header(kind: Kind, len: usize, time_ns: u64) -> Header {
    Header { abi: wire::ABI, kind: kind as u16, len: len.try_into().unwrap(), time_ns, tgid: PID, tid: PID }
}

fn open(time_ns: u64) -> Vec<u8> {
    let mut loopback = [0; 16];
    loopback[..4].copy_from_slice(&[127, 0, 0, 1]);
    socket::Open {
        header: header(Kind::SocketOpen, size_of::<socket::Open>(), time_ns),
        id: CONNECTION,
        local_addr: loopback,
        peer_addr: loopback,
        netns: 1,
        local_port: PORT,
        peer_port: 50_000,
        family: 2,
        role: socket::ROLE_ACCEPTED,
        flags: 0,
        reserved: 0,
    }
    .as_bytes()
    .to_vec()
}

/// What goes over the connection, with the running offset of each direction.
#[derive(Default)]
struct Wire {
    offsets: [u64; 2],
}

impl Wire {
    fn data(&mut self, dir: u8, time_ns: u64, bytes: &str) -> Vec<u8> {
        let offset = &mut self.offsets[usize::from(dir)];
        let data = socket::Data {
            header: header(Kind::SocketData, size_of::<socket::Data>() + bytes.len(), time_ns),
            id: CONNECTION,
            offset: *offset,
            result: bytes.len().try_into().unwrap(),
            requested: 0,
            head_len: bytes.len().try_into().unwrap(),
            tail_len: 0,
            syscall: 0,
            dir,
            flags: 0,
        };
        *offset += bytes.len() as u64;
        [data.as_bytes(), bytes.as_bytes()].concat()
    }
}

fn step(first_ns: u64, result_ns: u64) -> Vec<u8> {
    Step {
        header: header(Kind::Step, size_of::<Step>(), result_ns),
        work: Work { launches: 10, copies: 1, d2h_bytes: 4, ..Work::default() },
        enter_ns: first_ns + 1_000,
        first_ns,
        last_ns: first_ns + 500,
        stream: 1,
        event: 0,
        graph: 0,
        row: 0,
        flags: 0,
        result: 0,
    }
    .as_bytes()
    .to_vec()
}

/// One streaming request of a server with one thread: 1 ms of preparation, a prefill of 10 ms, two decode steps.
fn one_request() -> Vec<Vec<u8>> {
    let start = Observation::Start {
        agent: "0".into(),
        kernel: "6".into(),
        rows: vec!["cuStreamSynchronize".into()],
    };
    let server = Observation::Process(ProcessSeen {
        pid: PID,
        start_ticks: 1,
        comm: "server".into(),
        service: "s".into(),
        service_name: "server".into(),
        container: None,
        cuda: true,
        ports: vec![ListenPort { netns: 1, port: PORT }],
    });
    let body = r#"{"model":"tiny","stream":true,"messages":[{"role":"user","content":"a secret prompt"}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-request-id: r-1\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let chunk = |data: &str| format!("{:x}\r\ndata: {data}\n\n\r\n", data.len() + 8);
    let token = |text: &str| {
        chunk(&format!(
            r#"{{"object":"chat.completion.chunk","model":"tiny","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#
        ))
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let finish = r#"{"object":"chat.completion.chunk","model":"tiny","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let usage = r#"{"object":"chat.completion.chunk","model":"tiny","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}"#;
    let end = chunk(finish) + &chunk(usage) + &chunk("[DONE]") + "0\r\n\r\n";
    let (us, mut wire) = (|us: u64| READ_NS + us * 1_000, Wire::default());
    vec![
        start.to_record(1),
        server.to_record(2),
        Observation::Clock { wall_ns: 1_700_000_000_000_000_000 }.to_record(READ_NS - 100_000_000),
        open(READ_NS),
        wire.data(socket::DIR_RECV, READ_NS, &request),
        step(us(1_000), us(11_000)),
        wire.data(socket::DIR_SEND, us(11_200), &(head.to_owned() + &token("a secret answer"))),
        step(us(11_500), us(16_500)),
        wire.data(socket::DIR_SEND, us(16_700), &token("b")),
        step(us(17_000), us(22_000)),
        wire.data(socket::DIR_SEND, us(22_200), &(token("c") + &end)),
        Observation::Clock { wall_ns: 1_700_000_000_300_000_000 }.to_record(READ_NS + 200_000_000),
        Observation::End.to_record(READ_NS + 300_000_000),
    ]
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
