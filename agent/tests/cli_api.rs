//! The HTTP API over a store that is filled by hand, with the real binary as its client.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use agent::{
    decode::{DeviceSeen, Event, NvmlSeen, NvmlSource, NvmlState, Observation, Stamp},
    device::Devices,
    export::{Export, http, process, prometheus, snapshot::Snapshot},
    health::Health,
    pipeline::Output,
    probe,
    request::RequestRecord,
};

struct Server {
    export: Arc<Export>,
    address: SocketAddr,
    runtime: tokio::runtime::Runtime,
}

impl Server {
    fn start(keep: usize) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let settings = prometheus::Settings { max_series: 100, ..prometheus::Settings::default() };
        let export = Export::new(keep, &settings);
        let listener = runtime.block_on(http::bind(([127, 0, 0, 1], 0).into())).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(http::serve(listener, Arc::clone(&export), std::future::pending()));
        Self { export, address, runtime }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Status, headers and body.
    fn get(&self, path: &str, accept: &str) -> (u16, BTreeMap<String, String>, String) {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let response = agent.get(self.url(path)).header("accept", accept).call().unwrap();
        let header = |(name, value): (&ureq::http::HeaderName, &ureq::http::HeaderValue)| {
            (name.to_string(), value.to_str().unwrap().to_owned())
        };
        let headers = response.headers().iter().map(header).collect();
        (response.status().as_u16(), headers, response.into_body().read_to_string().unwrap())
    }

    fn finish_request(&self, id: &str) {
        let record =
            RequestRecord { request_id: Some(id.into()), ttft_s: Some(0.25), ..RequestRecord::default() };
        self.export.take(&Output::Request(Box::new(record)));
    }

    fn publish(&self, probes: probe::Status) {
        let mut health = Health { seen: 3, decoded: 2, ..Health::default() };
        health.fail("short");
        health.kernel = [("drop_step_ring_full".to_owned(), 5)].into();
        self.export.snapshot.publish(Snapshot {
            taken_ns: process::monotonic_ns(),
            health,
            probes,
            devices: devices(),
            ..Snapshot::default()
        });
    }

    fn requests(&self, args: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_stagelens"))
            .args(["requests", "--url", &self.url("")])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

/// One device of which nothing is known but what it is.
fn devices() -> Devices {
    let (source, seen) = (NvmlSource::default(), DeviceSeen::default());
    let told = [
        NvmlSeen::Source(NvmlSource { state: NvmlState::On, ..source }),
        NvmlSeen::Device(DeviceSeen { uuid: "GPU-a".into(), name: Some("H200".into()), ..seen }),
    ];
    let mut devices = Devices::default();
    for seen in told {
        let at = Stamp { time_ns: 0, tgid: 0, tid: 0 };
        let event = Event::Observation(at, Box::new(Observation::Nvml(seen)));
        devices.observe(&event, &mut Health::default());
    }
    devices
}

fn ids(lines: &str) -> Vec<String> {
    let id = |line: &str| serde_json::from_str::<RequestRecord>(line).unwrap().request_id.unwrap();
    lines.lines().map(id).collect()
}

#[test]
fn requests_can_be_limited_and_continued() {
    let server = Server::start(3);
    for id in ["a", "b", "c", "d"] {
        server.finish_request(id);
    }
    for (query, want, next) in [
        ("", &["b", "c", "d"][..], "4"),
        ("?limit=2", &["c", "d"], "4"),
        ("?limit=0", &[], "4"),
        ("?since_seq=3", &["d"], "4"),
        ("?since_seq=4", &[], "4"),
        ("?since_seq=1&limit=1", &["d"], "4"),
        ("?follow=0", &["b", "c", "d"], "4"),
    ] {
        let (status, headers, body) = server.get(&format!("/api/v1/requests{query}"), "*/*");
        assert_eq!((status, &*headers["content-type"]), (200, "application/x-ndjson"), "{query}");
        assert_eq!(headers[http::NEXT_SEQ], next, "{query}");
        assert_eq!(ids(&body), want, "{query}");
    }
    for query in ["?limit=x", "?limt=1", "?follow=yes"] {
        let (status, _, body) = server.get(&format!("/api/v1/requests{query}"), "*/*");
        assert_eq!(status, 400, "{query}");
        assert!(body.contains("parameters: limit=N"), "{body}");
    }
}

#[test]
fn the_client_prints_the_same_bytes_or_a_table() {
    let server = Server::start(10);
    server.finish_request("a");
    server.finish_request("b");
    let (_, _, api) = server.get("/api/v1/requests", "*/*");
    let json = server.requests(&["--json"]).wait_with_output().unwrap();
    assert!(json.status.success());
    assert_eq!(str::from_utf8(&json.stdout).unwrap(), api);
    let json = server.requests(&["--json", "--limit", "1"]).wait_with_output().unwrap();
    assert_eq!(ids(str::from_utf8(&json.stdout).unwrap()), ["b"]);
    let table = server.requests(&[]).wait_with_output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.starts_with("TIME(UTC)") && table.contains(" 250.00 "), "{table}");
}

#[test]
fn a_follower_gets_what_is_kept_then_what_comes_and_ends_with_the_run() {
    let server = Server::start(10);
    server.finish_request("kept");
    let mut client = server.requests(&["--follow", "--json"]);
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut next = || ids(&lines.next().unwrap().unwrap());
    assert_eq!(next(), ["kept"]);
    server.finish_request("new");
    assert_eq!(next(), ["new"]);
    server.finish_request("last");
    server.export.store.close();
    assert_eq!(next(), ["last"]);
    assert!(lines.next().is_none());
    assert!(client.wait().unwrap().success());
}

#[test]
fn a_slow_follower_holds_up_nobody_and_its_loss_is_counted() {
    let (keep, count) = (50, 30_000_u64);
    let server = Server::start(keep);
    let mut slow = TcpStream::connect(server.address).unwrap();
    slow.write_all(b"GET /api/v1/requests?follow=1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .unwrap();
    while server.export.store.followers() == 0 {
        std::thread::yield_now();
    }
    let line = format!("{{\"x\":\"{}\"}}\n", "y".repeat(1000));
    let start = Instant::now();
    for _ in 0..count {
        server.export.store.push(line.clone());
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(10), "the writer was held up for {took:?}");
    server.export.store.close();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    let got = answer.matches("{\"x\":").count() as u64;
    let missed = server.export.store.missed();
    assert!(missed > 0, "30 MB do not fit a socket: the follower must have missed some");
    assert_eq!(got + missed, count);
    let (_, _, metrics) = server.get("/metrics", "text/plain");
    assert!(metrics.contains(&format!("stagelens_api_follower_missed_total {missed}\n")), "{metrics}");
}

#[test]
fn a_client_whose_reader_goes_away_ends_well() {
    let server = Server::start(20_000);
    for _ in 0..20_000 {
        server.finish_request("x");
    }
    let mut client = server.requests(&["--json"]);
    let mut first = [0; 10];
    let mut stdout = client.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = client.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

#[test]
fn readiness_and_liveness() {
    let server = Server::start(10);
    let ready = || {
        let (status, _, body) = server.get("/readyz", "*/*");
        (status, body)
    };
    assert_eq!(ready(), (503, "not ready: the pipeline has not started yet\n".into()));
    let missing = vec!["the first discovery pass is not done".to_owned()];
    server.publish(probe::Status { missing, ..probe::Status::default() });
    assert_eq!(ready(), (503, "not ready: the first discovery pass is not done\n".into()));
    server.publish(probe::Status { ready: true, ..probe::Status::default() });
    assert_eq!(ready(), (200, "ready\n".into()));
    let (status, _, body) = server.get("/livez", "*/*");
    assert_eq!((status, &*body), (200, "ok\n"));
    let (status, _, body) = server.get("/", "*/*");
    assert_eq!(status, 200);
    for endpoint in ["/metrics", "/api/v1/requests", "/api/v1/status", "/livez", "/readyz"] {
        assert!(body.contains(endpoint), "{body}");
    }
    assert_eq!(server.get("/nonsense", "*/*").0, 404);
}

#[test]
fn status_has_the_fields_that_others_rely_on() {
    let server = Server::start(10);
    server.finish_request("a");
    server.publish(probe::Status { ready: true, ring_bytes: 65536, ..probe::Status::default() });
    let (status, headers, body) = server.get("/api/v1/status", "*/*");
    assert_eq!((status, &*headers["content-type"]), (200, "application/json"));
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(body["ready"], true);
    assert!(body["uptime_s"].as_f64().unwrap() >= 0.0);
    assert!(body["services"].is_array() && body["probes"].is_array());
    let health = serde_json::json!(
        {"seen": 3, "decoded": 2, "failed": {"short": 1}, "ignored": {}, "limits": {}, "requests": {},
         "kernel": {"drop_step_ring_full": 5}}
    );
    assert_eq!(body["health"], health);
    assert_eq!(body["ring"], serde_json::json!({"size_bytes": 65536, "dropped": 5}));
    assert_eq!(body["requests"]["last_seq"], 1);
}

#[test]
fn gpus_are_served_and_printed() {
    let server = Server::start(1);
    let gpu = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stagelens"));
        let output = command.args(["gpu", "--url", &server.url("")]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    // Before the pipeline runs nothing is known.
    assert_eq!(server.get("/api/v1/gpus", "*/*").2, r#"{"nvml":{"state":"off"},"gpus":[]}"#);
    assert_eq!(gpu(&[]), "NVML off\n");

    server.publish(probe::Status::default());
    let (status, headers, body) = server.get("/api/v1/gpus", "*/*");
    assert_eq!((status, &*headers["content-type"]), (200, "application/json"));
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(json["nvml"]["state"], "on");
    assert_eq!((&json["gpus"][0]["uuid"], &json["gpus"][0]["name"]), (&"GPU-a".into(), &"H200".into()));
    assert!(json["gpus"][0].get("utilization_ratio").is_none(), "{body}");
    assert_eq!(gpu(&[]), "NVML on\nGPU 0 GPU-a, H200\n");
    assert_eq!(gpu(&["--json"]), body + "\n");
}

#[test]
fn metrics_come_in_the_form_that_is_asked_for() {
    let server = Server::start(10);
    server.finish_request("a");
    let labels = r#"model_name="unknown",model_version="unknown",streaming="unknown",input_range="unknown""#;
    let line = format!("inference_ttft_seconds_sum{{{labels}}} 0.25");
    for (accept, content_type, ends) in [
        ("*/*", "application/openmetrics-text; version=1.0.0; charset=utf-8", "\n# EOF\n"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4; charset=utf-8", "\n"),
    ] {
        let (status, headers, body) = server.get("/metrics", accept);
        assert_eq!((status, &*headers["content-type"]), (200, content_type));
        assert!(body.ends_with(ends) && body.lines().any(|l| l == line), "{body}");
        assert_eq!(body.contains("# EOF"), content_type.starts_with("application"));
    }
}

#[test]
fn an_address_that_is_taken_is_named() {
    let server = Server::start(1);
    let error = server.runtime.block_on(http::bind(server.address)).unwrap_err();
    assert!(error.to_string().contains(&server.address.to_string()), "{error}");
}
