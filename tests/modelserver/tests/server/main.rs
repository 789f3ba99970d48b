//! All shapes as processes, on the simulated device: answers, truth lines, aborts, drain, a dead engine.
//!
//! Needs `libcuda.so` of `tests/fakecuda`: `LIBCUDA`, or in the target folder (`cargo build -p fakecuda`).

#![cfg(test)]

mod client;
mod rig;

use std::time::{Duration, Instant};

use client::Client;
use rig::{Line, Rig, SHAPES};
use serde_json::json;

fn prompt(words: usize) -> String {
    vec!["word"; words].join(" ")
}

fn completion(id: &str, words: usize, tokens: u32, stream: bool) -> String {
    let body = json!({ "model": "m", "prompt": prompt(words), "max_tokens": tokens, "stream": stream });
    client::post("/v1/completions", id, &body.to_string())
}

#[test]
fn streams_and_whole_answers_agree_with_each_other_and_the_truth() {
    for shape in SHAPES {
        let Some(rig) = Rig::start(shape, "agree", &["--decode-us", "2000"]) else { return };
        let mut client = rig.client();
        let streamed = client.ask(&completion("stream", 40, 6, true));
        let whole = client.ask(&completion("whole", 40, 6, false));
        assert_eq!(streamed.text("text"), whole.json()["choices"][0]["text"].as_str().unwrap());
        assert_eq!(streamed.tokens("text"), 6);
        assert_eq!(
            whole.json()["usage"],
            json!({"prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46})
        );
        let lines = rig.stop();
        for (id, streaming) in [("stream", true), ("whole", false)] {
            let line = &lines[id];
            line.check();
            assert_eq!((line.count("steps"), line.count("output_tokens")), (6, 6), "{id}");
            assert_eq!(line.counts("tokens_per_write").iter().sum::<u64>(), if streaming { 6 } else { 0 });
            assert!(line.number("prefill_s") >= 40.0 * 20e-6, "{line:?}");
            // Together: a late return from the first wait shortens the rest.
            let forward = line.number("prefill_s") + line.number("decode_s");
            assert!(forward >= 40.0 * 20e-6 + 5.0 * 2e-3, "{line:?}");
            assert!(line.number("queue_s") < 1e-9, "nobody else was there: {line:?}");
        }
    }
}

#[test]
fn chat_streams_have_role_usage_and_end() {
    for shape in SHAPES {
        let Some(rig) = Rig::start(shape, "chat", &["--decode-us", "1000"]) else { return };
        let body = json!({
            "model": "m", "messages": [{ "role": "user", "content": "say something" }], "stream": true,
            "stream_options": { "include_usage": true }, "max_completion_tokens": 3,
        });
        let answer = rig.client().ask(&client::post("/v1/chat/completions", "chat", &body.to_string()));
        let events = answer.events();
        assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(answer.tokens("content"), 3);
        let reasons = events.iter().filter_map(|event| event["choices"][0]["finish_reason"].as_str());
        assert_eq!(reasons.collect::<Vec<_>>(), ["length"]);
        assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 3);
        assert_eq!(answer.chunks.last().unwrap(), "data: [DONE]\n\n");
        rig.stop()["chat"].check();
    }
}

#[test]
fn concurrent_requests_are_batched_or_queued_and_each_line_adds_up() {
    for shape in SHAPES {
        let Some(rig) = Rig::start(shape, "concurrent", &["--decode-us", "3000"]) else { return };
        let ids: Vec<String> = (0..8).map(|index| format!("c{index}")).collect();
        let mut clients: Vec<Client> = ids.iter().map(|_| rig.client()).collect();
        for (client, id) in clients.iter_mut().zip(&ids) {
            client.send(&completion(id, 50, 5, true));
        }
        for client in &mut clients {
            assert_eq!(client.answer().tokens("text"), 5);
        }
        let lines = rig.stop();
        assert_eq!(lines.len(), 8);
        lines.values().for_each(Line::check);
        let total = |names: &[&str]| -> f64 {
            lines.values().flat_map(|line| names.iter().map(|name| line.number(name))).sum()
        };
        let (queue, forward) = (total(&["queue_s"]), total(&["prefill_s", "decode_s"]));
        let batch = lines.values().flat_map(|line| line.counts("batch_sizes")).max().unwrap();
        if shape == "single" {
            assert_eq!(batch, 1);
            // The k-th request waits for k others: 28 of 8.
            assert!(queue > 2.5 * forward && queue < 3.6 * forward, "{queue} {forward}");
        } else {
            // How long they wait is the machine's matter: those that come within a step are one batch.
            assert!(batch > 2, "largest batch {batch}");
        }
    }
}

#[test]
fn long_prompts_are_prefilled_in_parts() {
    let extra = ["--step-tokens", "100", "--decode-us", "1000"];
    let Some(rig) = Rig::start("split", "parts", &extra) else { return };
    rig.client().ask(&completion("long", 250, 2, true));
    let line = &rig.stop()["long"];
    line.check();
    assert_eq!((line.count("steps"), line.count("output_tokens")), (4, 2));
    assert!(line.number("prefill_s") >= 250.0 * 20e-6);
}

#[test]
fn pipelined_requests_are_answered_in_order_with_their_own_stamps() {
    for shape in SHAPES {
        let Some(rig) = Rig::start(shape, "pipeline", &["--decode-us", "1000"]) else { return };
        let mut client = rig.client();
        client.send(&format!("{}{}", completion("p1", 5, 2, true), completion("p2", 5, 3, false)));
        assert_eq!(client.answer().tokens("text"), 2);
        assert_eq!(client.answer().json()["usage"]["completion_tokens"], 3);
        let lines = rig.stop();
        assert_eq!(lines["p1"].pair("t_first_read_ns"), lines["p2"].pair("t_last_read_ns"));
        assert!(lines["p2"].number("t_handoff_ns") >= lines["p1"].pair("t_last_write_ns").1);
        lines.values().for_each(Line::check);
    }
}

#[test]
fn what_is_no_valid_request_gets_a_status_and_a_line() {
    for shape in SHAPES {
        let Some(rig) = Rig::start(shape, "errors", &[]) else { return };
        let mut client = rig.client();
        let cases = [
            (client::post("/v1/completions", "json", "{"), 400),
            (client::post("/v1/completions", "model", r#"{"prompt":"a"}"#), 400),
            (client::post("/v1/nothing", "path", "{}"), 404),
            ("GET /v1/completions HTTP/1.1\r\nx-request-id: method\r\n\r\n".to_owned(), 405),
            ("GET /health HTTP/1.1\r\n\r\n".to_owned(), 200),
            ("\x01\x02\r\n\r\n".to_owned(), 400),
        ];
        for (request, status) in &cases {
            assert_eq!(client.ask(request).status, *status, "{request:?}");
        }
        assert!(client.is_closed());
        let lines = rig.stop();
        for (id, status) in [("json", 400), ("model", 400), ("path", 404), ("method", 405), ("", 400)] {
            assert_eq!(
                (lines[id].count("status"), lines[id].text("outcome")),
                (status, "client_4xx"),
                "{id}"
            );
        }
        assert_eq!(lines.len(), 5, "/health is no request");
    }
}

#[test]
fn requests_beyond_the_queue_are_refused() {
    for shape in SHAPES {
        let Some(rig) = Rig::start(shape, "full", &["--max-batch", "1", "--max-queue", "1"]) else { return };
        let mut clients = [rig.client(), rig.client(), rig.client()];
        clients[0].send(&completion("a", 5, 20, true));
        clients[0].read_until("data:");
        // The second waits; nothing tells a client so before the third is refused.
        clients[1].send(&completion("b", 5, 1, false));
        rig.wait_for_metric("modelserver_requests_in_engine", 2);
        assert_eq!(clients[2].ask(&completion("c", 5, 1, false)).status, 503);
        assert_eq!(clients[1].answer().status, 200);
        drop(clients);
        let lines = rig.stop();
        assert_eq!(lines["c"].text("outcome"), "server_5xx");
        assert!(lines["b"].number("queue_s") > 0.0);
    }
}

#[test]
fn a_client_that_leaves_stops_the_generation() {
    for shape in SHAPES {
        let Some(rig) = Rig::start(shape, "abort", &[]) else { return };
        let mut client = rig.client();
        client.send(&completion("gone", 5, 10_000, true));
        client.read_until("data:");
        drop(client);
        rig.client().ask(&completion("next", 5, 2, true));
        let lines = rig.stop();
        let gone = &lines["gone"];
        assert_eq!(gone.text("outcome"), "client_disconnect");
        assert!(gone.count("output_tokens") < 1000 && gone.number("t_cancel_ns") > 0.0);
        gone.check();
        lines["next"].check();
    }
}

#[test]
fn sigterm_lets_requests_finish() {
    for shape in SHAPES {
        let Some(rig) = Rig::start(shape, "drain", &["--decode-us", "5000"]) else { return };
        let (mut client, idle) = (rig.client(), rig.client());
        client.send(&completion("last", 5, 30, true));
        client.read_until("data:");
        let (port, lines) = (rig.port, std::thread::spawn(move || rig.stop()));
        assert_eq!(client.answer().tokens("text"), 30);
        assert!(client.is_closed() && { idle }.is_closed());
        lines.join().unwrap()["last"].check();
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}

#[test]
fn a_late_loop_merges_tokens_and_says_so() {
    let extra = ["--decode-us", "2000", "--stall-us", "15000", "--stall-every", "4"];
    let Some(rig) = Rig::start("split", "merge", &extra) else { return };
    let answer = rig.client().ask(&completion("merged", 5, 40, true));
    let line = &rig.stop()["merged"];
    line.check();
    let tokens = line.counts("tokens_per_write");
    assert_eq!(tokens.iter().sum::<u64>(), 40);
    assert!(tokens.iter().any(|&count| count > 1), "{tokens:?}");
    assert_eq!(answer.contents("text").len(), tokens.len());
}

#[test]
fn a_slow_reader_blocks_nobody_else() {
    for shape in SHAPES {
        let extra = ["--decode-us", "200", "--send-buffer", "4096"];
        let Some(rig) = Rig::start(shape, "slow", &extra) else { return };
        let mut slow = rig.client();
        slow.set_receive_buffer(4096);
        // More than the buffers of socket and server hold.
        slow.send(&completion("slow", 5, 1500, true));
        slow.read_until("data:");
        rig.wait_for_metric("modelserver_connections_blocked", 1);
        // As long as it takes the slow one's tokens to fill what the server holds for it, in the same steps.
        rig.client().ask(&completion("other", 5, 1000, true));
        assert_eq!(slow.answer().tokens("text"), 1500);
        let line = &rig.stop()["slow"];
        line.check();
        assert!(line.number("write_blocked_s") > 0.0);
        assert!(line.counts("tokens_per_write").iter().any(|&tokens| tokens > 1));
    }
}

#[test]
fn a_driver_that_is_loaded_late_finds_the_requests_waiting() {
    for shape in SHAPES {
        let started = Instant::now();
        let Some(rig) = Rig::start(shape, "late", &["--dlopen-delay-ms", "700"]) else { return };
        let mut client = rig.client();
        assert_eq!(client.ask("GET /health HTTP/1.1\r\n\r\n").status, 503);
        assert_eq!(client.ask(&completion("early", 5, 2, true)).tokens("text"), 2);
        assert!(started.elapsed() > Duration::from_millis(650));
        assert_eq!(client.ask("GET /health HTTP/1.1\r\n\r\n").status, 200);
        let line = &rig.stop()["early"];
        line.check();
        assert!(line.number("queue_s") < 1e-9);
    }
}

#[test]
fn a_dead_engine_ends_streams_with_an_error_and_the_server() {
    let Some(mut rig) = Rig::start("split", "dead", &[]) else { return };
    let mut client = rig.client();
    client.send(&completion("lost", 5, 1000, true));
    client.read_until("data:");
    rig.kill_engine();
    let answer = client.answer();
    assert!(answer.events().last().unwrap()["error"]["message"].as_str().unwrap().contains("engine"));
    assert!(client.is_closed());
    assert!(!rig.wait().success());
    assert_eq!(rig.lines()["lost"].text("outcome"), "in_band_error");
}

#[test]
fn ranks_replicas_and_models_have_engines_of_their_own() {
    let cases: [(&str, &[&str], usize); 4] = [
        ("sharded", &["--ranks", "2"], 2),
        ("split", &["--replicas", "2"], 2),
        ("split", &["--models", "small,large"], 2),
        ("split", &["--sidecar"], 2),
    ];
    for (shape, extra, processes) in cases {
        let name = format!("engines{}", extra.concat());
        let Some(rig) = Rig::start(shape, &name, extra) else { return };
        assert_eq!(rig.children().len(), processes, "{extra:?}");
        let mut clients = [rig.client(), rig.client()];
        for (client, id) in clients.iter_mut().zip(["small", "large"]) {
            let body = json!({ "model": id, "prompt": prompt(9), "max_tokens": 8, "stream": true });
            client.send(&client::post("/v1/completions", id, &body.to_string()));
        }
        for client in &mut clients {
            assert_eq!(client.answer().tokens("text"), 8, "{extra:?}");
        }
        let lines = rig.stop();
        lines.values().for_each(Line::check);
        let alone = lines.values().all(|line| line.counts("batch_sizes").iter().all(|batch| *batch == 1));
        assert!(alone || matches!(extra[0], "--ranks" | "--sidecar"), "each has its own engine: {lines:?}");
    }
}

#[test]
fn a_probe_of_the_engine_runs_a_step_and_is_no_request() {
    let Some(rig) = Rig::start("chain", "probe", &["--decode-us", "1000"]) else { return };
    assert_eq!(rig.client().ask("GET /health_generate HTTP/1.1\r\n\r\n").status, 200);
    rig.wait_for_metric("modelserver_steps_total", 1);
    assert!(rig.stop().is_empty());
}
