//! One exchange of each API, streamed and not: what is known of it, whatever the writes it comes in.

mod engines;
mod messages;
mod openai;
mod others;

use std::fmt::Write as _;

use super::{
    framing::post,
    rig::Rig,
    streams::{END, chunk},
};
use crate::track::Exchange;

/// Parts of prompts and answers, none of which may stay.
const SECRETS: [&str; 2] = ["Geheim", "kabel"];
const SSE: &str = "text/event-stream";
const NDJSON: &str = "application/x-ndjson";
const JSON: &str = "application/json";

struct Case {
    name: &'static str,
    path: &'static str,
    request: &'static str,
    content_type: &'static str,
    /// Each is one write.
    answer: &'static [&'static str],
}

const fn case(
    name: &'static str,
    path: &'static str,
    request: &'static str,
    content_type: &'static str,
    answer: &'static [&'static str],
) -> Case {
    Case { name, path, request, content_type, answer }
}

/// How the answer is cut into writes.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// As in the case.
    Events,
    /// All in one write, the head included.
    One,
    /// In two.
    At(usize),
    /// A byte each.
    Bytes,
}

fn run(case: &Case, cut: Cut) -> Rig {
    let mut rig = Rig::new();
    rig.accept(1);
    rig.recv(1, post(case.path, case.request));
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
        case.content_type
    );
    let chunks: Vec<String> = case.answer.iter().map(|event| chunk(event)).collect();
    let all = [head.clone(), chunks.concat(), END.into()].concat();
    match cut {
        Cut::Events => {
            rig.send(1, head);
            for chunk in &chunks {
                rig.send(1, chunk);
            }
            rig.send(1, END);
        }
        Cut::One => {
            let len = all.len();
            rig.call(1, wire::socket::DIR_SEND, all.as_bytes(), (len, 0), len);
        }
        Cut::At(at) => {
            for part in [&all[..at], &all[at..]] {
                let len = part.len();
                rig.call(1, wire::socket::DIR_SEND, part.as_bytes(), (len, 0), len);
            }
        }
        Cut::Bytes => all.bytes().for_each(|b| rig.send(1, [b])),
    }
    rig
}

/// What does not depend on the writes.
fn summary(e: &Exchange) -> String {
    let or_dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
    let mut text = format!(
        "{} model {} {} {:?} finish {} content {}",
        or_dash(e.api.as_deref()),
        or_dash(e.model.as_deref()),
        match e.streaming {
            Some(true) => "stream",
            Some(false) => "whole",
            None => "-",
        },
        e.outcome.unwrap(),
        or_dash(e.finish_reason.as_deref()),
        e.content_total,
    );
    if let Some(version) = &e.model_version {
        write!(text, " version {version}").unwrap();
    }
    if let Some(source) = e.tokens_source {
        write!(text, " tokens {:?}/{:?} of {source}", e.input_tokens, e.output_tokens).unwrap();
    }
    if let Some(max) = e.max_tokens {
        write!(text, " max {max}").unwrap();
    }
    if e.interleaved {
        text.push_str(" interleaved");
    }
    text
}

/// The write that the first token went with: 0 is the head.
fn first_write(rig: &Rig, e: &Exchange) -> Option<u64> {
    let head = e.first_byte_out_ns.unwrap();
    assert!(rig.health.failed.is_empty());
    e.first_token_ns.map(|token| (token - head) / 1000)
}

fn check(cases: &[Case], expected: &expect_test::Expect) {
    let mut text = String::new();
    for case in cases {
        let rig = run(case, Cut::Events);
        let done = rig.finished()[0];
        let once = summary(done);
        let first = first_write(&rig, done).map_or("-".into(), |n| n.to_string());
        writeln!(text, "{}: {once} first {first}", case.name).unwrap();
        rig.assert_replays();
        let len = run(case, Cut::One).finished()[0].bytes_out;
        let cuts = (1..usize::try_from(len).unwrap()).map(Cut::At);
        for cut in cuts.chain([Cut::One, Cut::Bytes]) {
            let rig = run(case, cut);
            assert_eq!(summary(rig.finished()[0]), once, "{} {cut:?}", case.name);
            rig.assert_replays();
            no_secrets(&rig, case.name);
        }
    }
    expected.assert_eq(&text);
}

fn no_secrets(rig: &Rig, name: &str) {
    let all = String::from_utf8_lossy(&rig.records.concat()).into_owned();
    for secret in SECRETS {
        assert!(!all.contains(secret), "{name} keeps {secret}");
    }
}
