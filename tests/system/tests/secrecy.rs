//! Text of prompts and credentials goes nowhere.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::agent::{command, replay};
use system::rig::{Load, ServerOptions, Shape};
use system::run::{SETTLE_LIMIT, Stage};
use system::sink::Sink;

const LIMIT: Duration = Duration::from_mins(1);
const SECRET: &str = "xyzzy-7f3a-plugh";

/// A secret in prompts, headers and a query string is in no recording, log, answer of the API, or metric.
pub(crate) fn secret_stays(dir: &Path) -> Result<()> {
    let config = dir.join("stagelens.toml");
    // A ring buffer so small that records come to lie where others were.
    fs::write(&config, "[log]\nlevel = \"trace\"\n[ring]\nsize_bytes = 131072\n")?;
    let config = config.to_str().context("the path is UTF-8")?;
    let stage = Stage::set(&ServerOptions::new(Shape::Split), dir, &["--config", config])?;
    let answer = send_by_hand(stage.server.port)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "the server did not take the request: {answer}");
    let api = |stage: &Stage| -> Result<String> {
        Ok(stage.agent.get("/api/v1/requests")? + &stage.agent.get("/api/v1/status")?)
    };
    let early = api(&stage)?;
    let log = dir.join("stagelens.log");
    let load = Load::requests(2, 20).with("secret", SECRET);
    let finished = stage.play("split", &load, dir, LIMIT)?;
    ensure!(finished.report.missed == 0 && finished.report.requests_true > 10, "{:#?}", finished.report);
    let places = [
        ("the recording", fs::read(dir.join("run.slrec"))?),
        ("the log", fs::read(log)?),
        ("the records", finished.lines.join("\n").into_bytes()),
        ("the metrics", finished.metrics.into_bytes()),
        ("the API", early.into_bytes()),
    ];
    for (place, bytes) in places {
        ensure!(!contains(&bytes, SECRET.as_bytes()), "the secret is in {place}");
    }
    Ok(())
}

/// A request with the secret wherever a client may put one.
fn send_by_hand(port: u16) -> Result<String> {
    let body = format!(
        r#"{{"model":"m","max_tokens":4,"user":"{SECRET}","messages":[{{"role":"user","content":"hello {SECRET} bye"}}]}}"#
    );
    let request = format!(
        "POST /v1/chat/completions?api_key={SECRET} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {SECRET}\r\n\
         Cookie: session={SECRET}\r\nX-Api-Key: {SECRET}\r\nX-Request-Id: by-hand\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// No letter of it is what masked text consists of, so that every part of it can be looked for.
const PLANTED: &str = "Hunter2qW7Plugh";
/// Of the same, in a body where only digits may be.
const NUMBER: &str = "7391846250917364";
/// So many characters of it in a row are its own.
const PART: usize = 6;

/// Secrets wherever a client or a server may put one: every kind of body, header, framing and garbage, in HTTP/1,
/// HTTP/2 and gRPC. No part of one is in anything that the agent writes.
pub(crate) fn planted(dir: &Path) -> Result<()> {
    let requests = requests();
    let answers = requests.iter().map(|(_, request, answer)| (leak(&request[..MARK]), answer.clone()));
    let mut sink = Sink::start(answers.collect())?;
    let mut agent = sink.watched(dir, "[log]\nlevel = \"trace\"\n")?;
    let mut follower = agent.follow(dir)?;
    for (name, request, answer) in &requests {
        exchange(&sink, request, !answer.is_empty()).with_context(|| format!("while sending {name}"))?;
    }
    follower.wait("the last record", sink.port, SETTLE_LIMIT, |records| {
        records.iter().any(|record| record.path.as_deref() == Some("/last"))
    })?;
    let url = format!("http://{}", agent.address());
    let printed = |arguments: &[&str]| -> Result<Vec<u8>> {
        let output = command(arguments)?;
        Ok([output.stdout, output.stderr].concat())
    };
    let mut places = vec![
        ("a record", follower.lines().join("\n").into_bytes()),
        ("/api/v1/requests", agent.get("/api/v1/requests")?.into_bytes()),
        ("/api/v1/status", agent.get("/api/v1/status")?.into_bytes()),
        ("/", agent.get("/")?.into_bytes()),
        ("the metrics", agent.get("/metrics")?.into_bytes()),
        ("the metrics as text", agent.metrics_text()?.into_bytes()),
        ("`requests`", printed(&["requests", "--url", &url])?),
        ("`doctor`", printed(&["doctor"])?),
    ];
    let known = agent.status()?.health;
    ensure!(known.dropped() == 0, "records were lost, so nothing can be said: {known:#?}");
    agent.stop()?;
    sink.stop()?;
    let recording = fs::read(agent.recording())?;
    let streams = streams(&recording)?;
    ensure!(streams.iter().any(|bytes| contains(bytes, b"/last")), "the recording has no payload");
    places.extend(streams.into_iter().map(|bytes| ("what a connection sent, in the recording", bytes)));
    places.push(("the recording", recording));
    places.push(("the log", fs::read(dir.join("stagelens.log"))?));
    places.push(("`replay --json`", replay(agent.recording())?.into_bytes()));
    let path = agent.recording().to_str().context("the path is UTF-8")?;
    places.push(("`replay`", printed(&["replay", path])?));
    for (place, bytes) in &places {
        for part in parts() {
            ensure!(!contains(bytes, &part), "{:?} is in {place}", String::from_utf8_lossy(&part));
        }
    }
    Ok(())
}

/// Sends it in one write, waits for the answer if there is one, and for the end.
fn exchange(sink: &Sink, request: &[u8], answered: bool) -> Result<()> {
    let mut stream = sink.connect()?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(request)?;
    if answered {
        ensure!(stream.read(&mut [0; 64])? > 0, "no answer");
    }
    stream.shutdown(Shutdown::Write)?;
    stream.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Every part of the secrets, as they are and in the codes in which a tool might write bytes.
fn parts() -> Vec<Vec<u8>> {
    let texts = [PLANTED, NUMBER];
    let plain = texts.iter().flat_map(|text| text.as_bytes().windows(PART).map(<[u8]>::to_vec));
    let hex = texts.iter().map(|text| text.bytes().flat_map(|b| format!("{b:02x}").into_bytes()).collect());
    // Whatever stands before it moves it by up to two octets within its groups of three.
    let base64 = texts.iter().flat_map(|text| (0..3).map(|skip| base64(&text.as_bytes()[skip..])));
    plain.chain(hex).chain(base64).collect()
}

/// Of whole groups only, without padding.
fn base64(bytes: &[u8]) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let groups = bytes.as_chunks::<3>().0.iter();
    let digits = groups.flat_map(|[a, b, c]| {
        let group = u32::from_be_bytes([0, *a, *b, *c]);
        [18, 12, 6, 0].map(|shift| LETTERS[(group >> shift & 63) as usize])
    });
    digits.collect()
}

/// The captured bytes of each direction of each connection in a recording, as if no record ended anywhere.
fn streams(recording: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut streams: BTreeMap<(Vec<u8>, u8), Vec<u8>> = BTreeMap::new();
    let mut rest = &recording[16..];
    while let Some((len, behind)) = rest.split_first_chunk::<4>() {
        let len = usize::try_from(u32::from_le_bytes(*len))?;
        let (record, next) = behind.split_at_checked(len).context("the recording is cut")?;
        rest = next;
        // `wire::socket::Data`: kind 1, the connection at 24, the direction at 86, bytes from 88 on.
        if record.get(2..4) == Some(&[1, 0]) && record.len() >= 88 {
            let stream = streams.entry((record[24..40].to_vec(), record[86])).or_default();
            stream.extend_from_slice(&record[88..]);
        }
    }
    Ok(streams.into_values().collect())
}

/// Octets by which the server knows a request.
const MARK: usize = 30;

/// Answers are looked up as long as the test runs.
fn leak(mark: &[u8]) -> &'static [u8] {
    Box::leak(mark.to_vec().into_boxed_slice())
}

type Exchange = (&'static str, Vec<u8>, Vec<u8>);

fn requests() -> Vec<Exchange> {
    let mut all = Vec::new();
    let mut add = |name, headers: &str, body: &[u8], answer: Vec<u8>| {
        let number = all.len();
        let line = format!("POST /{number:02}/v1/chat/completions?key={PLANTED}&{PLANTED}= HTTP/1.1\r\n");
        let length = format!("Content-Length: {}\r\n\r\n", body.len());
        all.push((name, [line.as_bytes(), headers.as_bytes(), length.as_bytes(), body].concat(), answer));
    };
    let json = "Content-Type: application/json\r\n";
    let tool = format!(
        r#"{{"id":"{PLANTED}","function":{{"name":"{PLANTED}","arguments":"{{\\"a\\":\\"{PLANTED}\\"}}"}}}}"#
    );
    let chat = format!(
        r#"{{"model":"m","messages":[{{"role":"system","content":"{PLANTED}"}},{{"role":"user","content":[{{"type":"text","text":"{PLANTED}"}}]}},{{"role":"assistant","tool_calls":[{tool}]}}],"user":"{PLANTED}","seed":{NUMBER},"{PLANTED}":1,"stop":["{PLANTED}"]}}"#
    );
    let headers = format!(
        "{json}Authorization: Bearer {PLANTED}\r\nCookie: a={PLANTED}; b={PLANTED}\r\nX-Api-Key: {PLANTED}\r\nHost: {PLANTED}\r\n\
         User-Agent: {PLANTED}\r\nAccept: {PLANTED}\r\nDate: {PLANTED}\r\n{PLANTED}: a\r\nX: a\r\n {PLANTED}\r\nX-{PLANTED}: {PLANTED}\r\n"
    );
    let answer = format!(
        r#"{{"model":"m","choices":[{{"message":{{"content":"{PLANTED}","tool_calls":[{tool}]}}}}],"usage":{{"completion_tokens":2}}}}"#
    );
    let set = format!("{json}Set-Cookie: {PLANTED}\r\nServer: {PLANTED}\r\nX-{PLANTED}: a\r\n");
    add("a chat", &headers, chat.as_bytes(), ok(&set, answer.as_bytes()));
    let events = format!(
        ": {PLANTED}\nid: {PLANTED}\nevent: {PLANTED}\ndata: {{\"choices\":[{{\"delta\":{{\"content\":\"{PLANTED}\"}}}}]}}\n\ndata: {PLANTED}\n\n{PLANTED}\n\n"
    );
    add("a stream", json, chat.as_bytes(), ok("Content-Type: text/event-stream\r\n", events.as_bytes()));
    let lines = format!(
        "{{\"message\":{{\"content\":\"{PLANTED}\"}},\"done\":false}}\n{PLANTED}\n{{\"context\":[{NUMBER}],\"done\":true}}\n"
    );
    add("lines", json, chat.as_bytes(), ok("Content-Type: application/x-ndjson\r\n", lines.as_bytes()));
    let error = format!(
        r#"{{"error":{{"message":"{PLANTED}","param":"{PLANTED}","code":"{PLANTED}","type":"{PLANTED}"}}}}"#
    );
    add("an error", json, format!(r#"{{"prompt":"{PLANTED}"#).as_bytes(), ok(json, error.as_bytes()));
    let form = format!(
        "--{PLANTED}\r\nContent-Disposition: form-data; name=\"{PLANTED}\"\r\n\r\n{PLANTED}\r\n--{PLANTED}--"
    );
    let multipart = format!("Content-Type: multipart/form-data; boundary={PLANTED}\r\n");
    add("a form of parts", &multipart, form.as_bytes(), ok(&multipart, form.as_bytes()));
    let form = format!("user={PLANTED}&password={PLANTED}&pin={NUMBER}");
    add(
        "a form",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        form.as_bytes(),
        ok("", form.as_bytes()),
    );
    let unknown =
        format!("Content-Type: application/{PLANTED}; a={PLANTED}\r\nContent-Encoding: {PLANTED}\r\n");
    add("an unknown type", &unknown, PLANTED.as_bytes(), ok(&unknown, format!("\0{PLANTED}").as_bytes()));
    let long = format!("{{\"model\":\"m\",\"prompt\":\"{}\"}}", PLANTED.repeat(2000));
    add("a long one", json, long.as_bytes(), ok(json, long.as_bytes()));
    add(
        "garbage for an answer",
        json,
        b"{}",
        format!("{PLANTED} HTTP/1.1 200 {PLANTED}\r\n\r\n").into_bytes(),
    );
    add(
        "a cut head for an answer",
        json,
        b"{}",
        format!("HTTP/1.1 200 {PLANTED}\r\nX: {PLANTED}").into_bytes(),
    );
    let chunks = format!("5;{PLANTED}={PLANTED}\r\n{{}}   \r\n0\r\n{PLANTED}: {PLANTED}\r\n\r\n");
    let head = format!("POST /90/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
    let answered = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
    all.push(("chunks", head.into_bytes(), answered.into_bytes()));
    all.extend(http2());
    for (name, bytes) in [
        ("a line", format!("login {PLANTED}\r\npassword {NUMBER}\r\n")),
        ("a method", format!("{PLANTED} / HTTP/1.1\r\n\r\n")),
        ("a version", format!("GET /91 {PLANTED}\r\n\r\n{PLANTED}")),
        (
            "a target",
            format!("GET http://u:{PLANTED}@{PLANTED}/92?{PLANTED}#{PLANTED} HTTP/1.1\r\n\r\n{PLANTED}"),
        ),
        ("binary", format!("\x16\x03\x01\x02\0{PLANTED}\0\0{PLANTED}")),
    ] {
        all.push((name, bytes.into_bytes(), Vec::new()));
    }
    all.push(("the last", b"POST /last HTTP/1.1\r\nContent-Length: 0\r\n\r\n".to_vec(), ok("", b"")));
    all
}

fn ok(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 {PLANTED}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let [.., a, b, c] = payload.len().to_be_bytes();
    [&[a, b, c, kind, flags, 0, 0, 0, 1], payload].concat()
}

/// A header field, by its first octet: 0x40 goes to the table, 0 does not, 0x10 never does.
fn field(first: u8, name: &str, value: &str) -> Vec<u8> {
    let len = |text: &str| u8::try_from(text.len()).unwrap_or(0);
    [&[first, len(name)], name.as_bytes(), &[len(value)], value.as_bytes()].concat()
}

fn http2() -> Vec<Exchange> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let path = |path: &str| field(0x40, ":path", &format!("{path}?{PLANTED}"));
    let secrets = [
        field(0x40, "authorization", PLANTED),
        field(0, "cookie", PLANTED),
        field(0x10, "x-api-key", PLANTED),
        field(0x40, PLANTED, PLANTED),
        // By their indices in the table.
        vec![0xbe, 0xbf],
    ]
    .concat();
    let message =
        |field: &[u8]| [&[0, 0, 0, 0][..], &[u8::try_from(field.len()).unwrap_or(0)], field].concat();
    let infer = message(&[b"\x0a\x01m\x12\x0f", PLANTED.as_bytes(), b"\x1a\x10", NUMBER.as_bytes()].concat());
    let post = |to: &str| [&[0x83][..], &path(to), &secrets].concat();
    let answer = |content: &str| [&[0x88][..], &field(0, "content-type", content), &secrets].concat();
    let json = format!(r#"{{"prompt":"{PLANTED}"}}"#);
    let padded = [&[7][..], json.as_bytes(), &PLANTED.as_bytes()[..7]].concat();
    let trailers = [field(0, "grpc-status", "0"), field(0, "grpc-message", PLANTED)].concat();
    // The server knows whom to answer by the flags of the settings.
    let http =
        [PREFACE, &frame(4, 0, b""), &frame(1, 4, &post("/v1/completions")), &frame(0, 9, &padded)].concat();
    let grpc_path = "/inference.GRPCInferenceService/ModelInfer";
    let grpc = [PREFACE, &frame(4, 1, b""), &frame(1, 4, &post(grpc_path)), &frame(0, 1, &infer)].concat();
    let answered = [
        frame(4, 0, b""),
        frame(1, 4, &answer("application/grpc")),
        frame(0, 0, &infer),
        frame(1, 5, &trailers),
    ]
    .concat();
    let go_away =
        [frame(7, 0, &[&[0; 8], PLANTED.as_bytes()].concat()), frame(99, 0, PLANTED.as_bytes())].concat();
    vec![("HTTP/2", http, [answered.clone(), go_away].concat()), ("gRPC", grpc, answered)]
}
