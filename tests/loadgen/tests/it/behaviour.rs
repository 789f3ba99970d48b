//! What is sent, and what is written about the answer.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpListener;

use serde_json::Value;

use crate::server::{loadgen, run};

const SSE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunk(data: &str) -> String {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len())
}

fn content(text: &str) -> String {
    chunk(&format!(r#"{{"choices":[{{"delta":{{"content":"{text}"}},"finish_reason":null}}]}}"#))
}

/// Head, a role, `n` tokens, usage, the end.
fn stream(n: usize) -> Vec<String> {
    let mut pieces = vec![SSE.to_owned(), content("")];
    pieces.extend((0..n).map(|_| content("word ")));
    pieces.push(chunk(r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#));
    pieces.push(chunk(r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}}"#));
    pieces.push(chunk("[DONE]"));
    pieces.push("0\r\n\r\n".to_owned());
    pieces
}

fn plain(status: &str, body: &str) -> Vec<String> {
    vec![format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())]
}

fn time(line: &Value, name: &str) -> u64 {
    line[name].as_u64().unwrap_or_else(|| panic!("{name} in {line}"))
}

#[test]
fn streams_are_timed_and_counted() {
    let (lines, seen, summary) =
        run("--requests 12 --concurrency 3 --input-tokens 4-6", |_, _| Some(stream(9)));
    assert_eq!((lines.len(), seen.len()), (12, 12));
    let ids: BTreeSet<&str> = lines.iter().map(|l| l["request_id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 12);
    for line in &lines {
        assert_eq!(
            (&line["outcome"], &line["status"], &line["chunks"]),
            (&"ok".into(), &200.into(), &9.into())
        );
        assert_eq!(
            (&line["usage"]["completion_tokens"], &line["finish_reason"]),
            (&9.into(), &"length".into())
        );
        let times = ["t_send", "t_first_byte", "t_first_token", "t_last_byte"].map(|name| time(line, name));
        assert!(times.is_sorted(), "{line}");
        let id = format!("x-request-id: {}\r\n", line["request_id"].as_str().unwrap());
        let request = seen.iter().find(|s| s.head.contains(&id)).unwrap();
        assert!(request.head.starts_with("post /v1/chat/completions http/1.1\r\n"));
        assert_eq!(request.body["max_tokens"], line["max_tokens"]);
        assert_eq!(request.body["stream_options"]["include_usage"], true);
        let words = request.body["messages"][0]["content"].as_str().unwrap().split(' ').count();
        assert_eq!((words as u64, (4..=6).contains(&words)), (time(line, "input_tokens"), true));
    }
    assert!(seen.iter().map(|s| s.connection).collect::<BTreeSet<_>>().len() <= 3, "connections are kept");
    assert!(summary.starts_with("12 requests in ") && summary.contains("| ok 12 | ttft p50"), "{summary}");
}

#[test]
fn the_seed_decides_what_is_asked() {
    let prompts = |seed: u32| -> BTreeSet<String> {
        let args = format!("--requests 6 --concurrency 2 --seed {seed} --stream-ratio 0.5 --secret s3cret");
        let (_, seen, _) =
            run(&args, |_, _| Some(plain("200 OK", r#"{"choices":[{"message":{"content":"a"}}]}"#)));
        assert!(seen.iter().all(|s| s.body["messages"][0]["content"].as_str().unwrap().contains("s3cret")));
        seen.iter().map(|s| s.body.to_string()).collect()
    };
    assert_eq!(prompts(1), prompts(1));
    assert_ne!(prompts(1), prompts(2));
}

#[test]
fn outcomes_are_told_apart() {
    let (event_error, cut) = (chunk(r#"{"error":{"message":"engine died"}}"#), content("x"));
    let cases: Vec<(&str, Option<Vec<String>>, &str)> = vec![
        ("1.0", Some(plain("429 Too Many", r#"{"error":{"message":"slow down"}}"#)), "client_4xx"),
        ("1.0", Some(plain("503 Unavailable", "no")), "server_5xx"),
        ("1.0", Some(plain("504 Gateway Timeout", "")), "timeout"),
        (
            "0.0",
            Some(plain("200 OK", r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#)),
            "ok",
        ),
        ("0.0", Some(plain("200 OK", r#"{"choices":[{"message":{"content":""}}]}"#)), "empty_output"),
        ("0.0", Some(plain("200 OK", r#"{"error":"no"}"#)), "in_band_error"),
        ("1.0", Some(vec![SSE.to_owned(), event_error, "0\r\n\r\n".to_owned()]), "in_band_error"),
        ("1.0", Some(vec![SSE.to_owned(), cut, "0\r\n\r\n".to_owned()]), "truncated"),
        ("1.0", Some(vec!["SMTP hello\r\n\r\n".to_owned()]), "protocol_error"),
        ("1.0", None, "connection_failed"),
    ];
    for (streams, answer, want) in cases {
        let told = format!("{answer:?}");
        let (lines, ..) = run(&format!("--requests 1 --stream-ratio {streams}"), move |_, _| answer.clone());
        assert_eq!(lines[0]["outcome"], want, "{told} {}", lines[0]);
        assert_eq!(lines[0]["error"].is_null(), want == "ok" || want == "empty_output", "{}", lines[0]);
        assert_eq!(
            lines[0]["t_first_token"].is_null(),
            want != "truncated",
            "plain answers have none: {told}"
        );
    }
}

#[test]
fn an_answer_cut_by_the_server_is_truncated() {
    let cut = |_, n| (n == 0).then(|| vec![SSE.to_owned(), content("a"), "3\r\nda".to_owned()]);
    // The time limit stands for a server that never goes on.
    let (lines, ..) = run("--requests 1 --timeout 0.3", cut);
    assert_eq!((&lines[0]["outcome"], &lines[0]["chunks"]), (&"timeout".into(), &1.into()));
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all((SSE.to_owned() + &content("a")).as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // Keeps the socket until the client has seen the end: no reset.
        stream
    });
    let output = loadgen(&format!("--port {port} --requests 1"));
    drop(server.join().unwrap());
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&line["outcome"], &line["chunks"]), (&"truncated".into(), &1.into()));
}

#[test]
fn impatient_clients_go_away() {
    // Far more than the socket buffers hold, so that the server must notice.
    let (lines, seen, _) =
        run("--requests 3 --abort-ratio 1 --output-tokens 4", |_, _| Some(stream(400_000)));
    for line in &lines {
        assert_eq!(line["outcome"], "client_disconnect");
        assert!(line["chunks"].as_u64().unwrap() >= 1);
    }
    assert!(seen.iter().all(|s| s.gone) && seen.len() == 3);
    let never = |_, _| Some(vec![String::new()]);
    let (lines, ..) = run("--requests 2 --abort-ratio 1 --stream-ratio 0", never);
    assert!(lines.iter().all(|l| l["outcome"] == "client_disconnect" && l["t_first_byte"].is_null()));
}

#[test]
fn slow_clients_take_long_and_use_their_own_connection() {
    let (lines, seen, _) = run("--requests 2 --slow-ratio 1 --slow-pause-ms 5", |_, _| Some(stream(50)));
    for line in &lines {
        assert_eq!((&line["outcome"], &line["slow"]), (&"ok".into(), &true.into()));
        // About 4.5 kB in reads of 128 bytes, 5 ms apart.
        assert!(time(line, "t_last_byte") - time(line, "t_first_byte") >= 100_000_000);
    }
    assert_ne!(seen[0].connection, seen[1].connection);
}

#[test]
fn connections_last_as_long_as_asked() {
    let connections = |args: &str| -> Vec<usize> {
        let (_, seen, _) = run(&format!("--requests 6 {args}"), |_, _| Some(stream(1)));
        seen.iter().map(|s| s.connection).collect()
    };
    assert_eq!(connections(""), [0; 6]);
    assert_eq!(connections("--close-every 2"), [0, 0, 1, 1, 2, 2]);
    assert_eq!(connections("--keep-alive false"), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn an_idle_connection_closed_by_the_server_costs_a_retry() {
    let (lines, seen, _) = run("--requests 2", |_, n| (n == 0).then(|| stream(1)));
    let told: Vec<_> =
        lines.iter().map(|l| (l["outcome"].as_str().unwrap(), l["retries"].as_u64())).collect();
    assert_eq!(told, [("ok", Some(0)), ("ok", Some(1))]);
    assert_eq!(seen.len(), 3);
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let (lines, _, summary) = run("--requests 100 --open-loop 200 --concurrency 16", |_, _| Some(stream(1)));
    let dues: Vec<u64> = lines.iter().map(|l| time(l, "t_due")).collect();
    let span = dues.iter().max().unwrap() - dues.iter().min().unwrap();
    assert!((250_000_000..1_000_000_000).contains(&span), "100 arrivals at 200/s: {span} ns");
    assert!(lines.iter().all(|l| time(l, "t_send") >= time(l, "t_due")));
    assert!(summary.contains("started late"), "{summary}");
}

#[test]
fn nobody_there_is_a_line_and_not_a_crash() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let output = loadgen(&format!("--port {port} --requests 2"));
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(lines.matches("cannot connect to 127.0.0.1").count(), 2, "{lines}");
    let refused = loadgen("--port 80 --requests 1 --host 198.51.100.7");
    assert!(!refused.status.success() && String::from_utf8(refused.stderr).unwrap().contains("loopback"));
}
