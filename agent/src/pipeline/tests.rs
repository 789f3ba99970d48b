//! From record bytes to request records.

use std::mem::offset_of;

use wire::{Header, Kind, cuda, socket, tls};
use zerocopy::IntoBytes;

use super::*;
use crate::{
    decode::{ListenPort, Observation, ProcessSeen},
    request::record::{Confidence, Outcome},
    track::{Client, Exchange, ExchangeId},
};

const MS: u64 = 1_000_000;
const PID: u32 = 10;
const ID: socket::SockId = socket::SockId { sock: 7, birth_ns: 95 * MS };

fn header(kind: Kind, len: usize, ms: u64) -> Header {
    let len = u32::try_from(len).unwrap();
    Header { abi: wire::ABI, kind: kind as u16, len, time_ns: ms * MS, tgid: PID, tid: PID }
}

fn service() -> Vec<u8> {
    let seen = ProcessSeen {
        pid: PID,
        start_ticks: 1,
        comm: "llama-server".into(),
        service: "key".into(),
        service_name: "llama".into(),
        container: None,
        cuda: true,
        ports: vec![ListenPort { netns: 1, port: 8000 }],
    };
    Observation::Process(seen).to_record(MS)
}

fn open() -> Vec<u8> {
    let header = header(Kind::SocketOpen, size_of::<socket::Open>(), 95);
    let open = socket::Open {
        header,
        id: ID,
        local_addr: [127; 16],
        peer_addr: [10; 16],
        netns: 1,
        local_port: 8000,
        peer_port: 4321,
        family: 2,
        role: socket::ROLE_ACCEPTED,
        flags: 0,
        reserved: 0,
    };
    open.as_bytes().to_vec()
}

fn data(ms: u64, dir: u8, offset: &mut usize, text: &str) -> Vec<u8> {
    let len = u16::try_from(text.len()).unwrap();
    let data = socket::Data {
        header: header(Kind::SocketData, size_of::<socket::Data>() + text.len(), ms),
        id: ID,
        offset: *offset as u64,
        network: socket::Network::default(),
        result: i32::from(len),
        requested: u32::from(len),
        head_len: len,
        tail_len: 0,
        syscall: 0,
        dir,
        flags: 0,
    };
    *offset += text.len();
    [data.as_bytes(), text.as_bytes()].concat()
}

fn step(begin: u64, end: u64) -> Vec<u8> {
    let step = cuda::Step {
        header: header(Kind::Step, size_of::<cuda::Step>(), end),
        work: cuda::Work { launches: 9, copies: 1, d2h_bytes: 4, ..cuda::Work::default() },
        enter_ns: end * MS - 1,
        first_ns: begin * MS,
        last_ns: begin * MS,
        stream: 1,
        event: 0,
        graph: 0,
        row: 0,
        flags: 0,
        result: 0,
        context: 0,
    };
    step.as_bytes().to_vec()
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn event(content: &str) -> String {
    chunk(&format!(
        "data: {{\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}}}}]}}\n\n"
    ))
}

/// A stream of two tokens by a server of one thread, behind a step that began before the request was read.
fn records() -> Vec<Vec<u8>> {
    let (mut read, mut written) = (0, 0);
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"the secret"}]}"#;
    let request = format!(
        "POST /v1/chat/completions?k=v HTTP/1.1\r\nhost: a\r\nx-request-id: r-1\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut send = |ms, text: &str| data(ms, socket::DIR_SEND, &mut written, text);
    vec![
        Observation::Clock { wall_ns: 1_700_000_000_000_000_000 }.to_record(0),
        service(),
        open(),
        data(100, socket::DIR_RECV, &mut read, &request),
        step(90, 104),
        send(105, head),
        step(110, 140),
        send(141, &event("one")),
        step(142, 150),
        send(151, &event("two")),
        send(152, &(chunk("data: [DONE]\n\n") + "0\r\n\r\n")),
        Observation::End.to_record(200 * MS),
    ]
}

fn run(records: &mut [Vec<u8>]) -> (Vec<RequestRecord>, Pipeline) {
    let (mut pipeline, mut out) = (Pipeline::new(Settings {}), Vec::new());
    for record in records {
        pipeline.process(record, &mut out);
    }
    let requests = out.into_iter().filter_map(|o| if let Output::Request(r) = o { Some(*r) } else { None });
    (requests.collect(), pipeline)
}

#[test]
fn a_request_from_bytes() {
    let (requests, pipeline) = run(&mut records());
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((request.service.as_str(), request.comm.as_str()), ("llama", "llama-server"));
    assert_eq!(request.path.as_deref(), Some("/v1/chat/completions"));
    assert_eq!((request.request_id.as_deref(), request.outcome), (Some("r-1"), Some(Outcome::Ok)));
    assert_eq!((request.confidence, request.steps), (Some(Confidence::Exact), Some(2)));
    let stages = serde_json::to_string(&request.stages).unwrap();
    let want = r#"{"decode_s":0.01,"network_in_s":0.0,"network_out_s":0.0,"postprocess_s":0.002,"#.to_owned()
        + r#""prefill_s":0.03,"preprocess_s":0.006,"queue_s":0.004,"unattributed_s":0.0}"#;
    assert_eq!(stages, want);
    assert_eq!((pipeline.health().seen, pipeline.health().decoded), (12, 12));
    assert_eq!(pipeline.health().requests.get("exact"), Some(&1));
}

/// What a recording holds is the record after processing: it must give the same, and hold no text.
#[test]
fn the_masked_records_give_the_same() {
    let mut records = records();
    let (live, _) = run(&mut records);
    assert!(records.iter().all(|r| !String::from_utf8_lossy(r).contains("secret")));
    let (replayed, _) = run(&mut records);
    assert_eq!(serde_json::to_string(&live).unwrap(), serde_json::to_string(&replayed).unwrap());
}

#[test]
fn every_record_is_decoded_or_failed() {
    let mut records = records();
    records[4][0] ^= 1;
    records[6].truncate(40);
    records.push(Vec::new());
    let (requests, pipeline) = run(&mut records);
    let health = pipeline.health();
    assert_eq!(health.seen, 13);
    assert_eq!(health.decoded + health.failed.values().sum::<u64>(), 13);
    assert_eq!(health.failed.iter().map(|(k, n)| (*k, *n)).collect::<Vec<_>>(), [("abi", 1), ("short", 2)]);
    assert_eq!(requests.len(), 1, "the request is there, with less known of it");
    assert_ne!(requests[0].confidence, Some(Confidence::Exact));
}

/// They go into the recording as well, and nothing has masked their payload.
#[test]
fn a_record_that_fails_has_no_text_and_fails_again() {
    let (abi, kind) = (offset_of!(Header, abi), offset_of!(Header, kind));
    let (head_len, dir) = (offset_of!(socket::Data, head_len), offset_of!(socket::Data, dir));
    for (at, reason) in [(abi, "abi"), (kind, "unknown_kind"), (head_len, "short"), (dir, "bad_field")] {
        let mut record = data(5, socket::DIR_RECV, &mut 0, "a secret");
        record[at] = 77;
        record.resize(300, b's');
        for _live_and_replay in 0..2 {
            let (_, pipeline) = run(std::slice::from_mut(&mut record));
            assert_eq!(
                pipeline.health().failed.get(reason),
                Some(&1),
                "{reason}: {:?}",
                pipeline.health().failed
            );
            assert!(!String::from_utf8_lossy(&record).contains('s'), "{reason}");
        }
    }
}

/// Two containers may run servers of one name; what was counted of one that ended stays.
#[test]
fn tls_of_services_of_one_name_is_added_up() {
    let service = |pid, key: &str| {
        let seen = ProcessSeen {
            pid,
            start_ticks: 1,
            comm: "python3".into(),
            service: key.into(),
            service_name: "python3:8000".into(),
            container: None,
            cuda: false,
            ports: Vec::new(),
        };
        Observation::Process(seen).to_record(MS)
    };
    let found = |pid, finding, bytes| {
        let header = Header { tgid: pid, ..header(Kind::TlsVerdict, size_of::<tls::Verdict>(), 2) };
        tls::Verdict { header, id: ID, bytes, finding, reserved: [0; 7] }.as_bytes().to_vec()
    };
    let mut records = vec![service(1, "a"), service(2, "b")];
    for (pid, bytes) in [(1, 30), (2, 40)] {
        records.extend([found(pid, tls::SEEN, 0), found(pid, tls::UNLINKED, bytes)]);
    }
    let (_, pipeline) = run(&mut records);
    let want = TlsCounts { connections: 2, unlinked_calls: 2, unlinked_bytes: 70, ..TlsCounts::default() };
    assert_eq!(pipeline.tls().into_iter().collect::<Vec<_>>(), [("python3:8000".to_owned(), want)]);
}

#[test]
fn in_flight_by_name() {
    let mut all = records();
    let (_, pipeline) = run(&mut all[..7]);
    assert_eq!(pipeline.in_flight().into_iter().collect::<Vec<_>>(), [("llama".to_owned(), 1)]);
}

/// It waits for a request that does not end, and then for an acknowledgement that does not come.
#[test]
fn the_end_hands_out_what_was_nested_and_awaits_its_delivery() {
    let mut pipeline = Pipeline::new(Settings {});
    let (outer, inner) = (ExchangeId(1), ExchangeId(2));
    let client = Some(Client { pid: PID, tid: PID });
    let exchange = Exchange { id: Some(inner), client, awaits_delivery: true, ..Exchange::default() };
    let sight = Box::new(exchange.sight());
    let (service, time_ns, tid) = (ServiceId(0), 2 * MS, 11);
    pipeline.tracked = vec![
        Tracked::Begun { exchange: outer, pid: PID, listener: None, time_ns: MS },
        Tracked::Begun { exchange: inner, pid: 11, listener: None, time_ns },
        Tracked::RequestRead { exchange: inner, service, time_ns, tid, client, sight },
        Tracked::Finished(Box::new(exchange)),
    ];
    let mut out = Vec::new();
    pipeline.process(&mut self::service(), &mut out);
    assert!(out.is_empty(), "{out:?}");
    pipeline.process(&mut Observation::End.to_record(200 * MS), &mut out);
    assert!(matches!(out.as_slice(), [Output::Request(_)]), "{out:?}");
    assert_eq!(pipeline.health().limits.get("deliveries_unfinished"), Some(&1));
}
