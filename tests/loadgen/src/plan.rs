//! What each request asks for and how its client behaves: a function of the seed and the number of the request.

use std::time::Duration;

use serde::Serialize;

use crate::args::{Api, Args};
use crate::random::Random;

/// One request to be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Ask for a stream.
    pub streaming: bool,
    /// Words of the prompt, without the secret.
    pub input_tokens: u32,
    /// `max_tokens`.
    pub output_tokens: u32,
    /// When the client goes away, if it does.
    pub abort: Option<Abort>,
    /// Read slowly.
    pub slow: bool,
    /// The prompt.
    pub prompt: String,
}

/// When an impatient client goes away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Abort {
    /// After that many content-bearing chunks.
    Chunks(u32),
    /// So long after sending, if the answer is not there.
    Time(Duration),
}

/// Longest patience of a client that abandons a plain request, ms.
const MAX_PATIENCE_MS: u32 = 200;

const LAST_WORD: u32 = 31;
const WORDS: [&str; LAST_WORD as usize + 1] = [
    "amber", "basin", "cedar", "delta", "ember", "fable", "grove", "harbor", "indigo", "juniper", "kernel",
    "lantern", "meadow", "nectar", "orbit", "prairie", "quartz", "ripple", "saddle", "timber", "umbra",
    "velvet", "willow", "xenon", "yonder", "zephyr", "anchor", "breeze", "copper", "drift", "echo", "flint",
];

impl Plan {
    pub(crate) fn new(args: &Args, number: u64) -> Self {
        let mut random = Random::new(args.seed, number);
        let streaming = random.chance(args.stream_ratio);
        let input_tokens = random.between(args.input_tokens.low, args.input_tokens.high);
        let output_tokens = random.between(args.output_tokens.low, args.output_tokens.high);
        let aborts = random.chance(args.abort_ratio);
        let abort = Abort::new(&mut random, streaming, output_tokens);
        let slow = random.chance(args.slow_ratio);
        let prompt = prompt(&mut random, input_tokens, args.secret.as_deref());
        Self { streaming, input_tokens, output_tokens, abort: aborts.then_some(abort), slow, prompt }
    }

    /// The request's body. Keys in the order of `OpenAI`'s SDK: the prompt before everything else.
    pub(crate) fn body(&self, api: Api, model: &str) -> Vec<u8> {
        let (messages, prompt) = match api {
            Api::Chat => (Some([Message { role: "user", content: &self.prompt }]), None),
            Api::Completions => (None, Some(self.prompt.as_str())),
        };
        let stream_options = self.streaming.then_some(StreamOptions { include_usage: true });
        let (max_tokens, stream) = (self.output_tokens, self.streaming);
        let body = Body { messages, prompt, model, max_tokens, stream, stream_options };
        serde_json::to_vec(&body).expect("strings and numbers are always JSON")
    }
}

impl Abort {
    fn new(random: &mut Random, streaming: bool, output_tokens: u32) -> Self {
        let patience = random.between(1, MAX_PATIENCE_MS);
        if streaming {
            Self::Chunks(1 + patience % output_tokens.div_ceil(2))
        } else {
            Self::Time(Duration::from_millis(patience.into()))
        }
    }
}

fn prompt(random: &mut Random, words: u32, secret: Option<&str>) -> String {
    let mut text: Vec<&str> = (0..words).map(|_| WORDS[random.between(0, LAST_WORD) as usize]).collect();
    if let Some(secret) = secret {
        let at = random.between(0, words) as usize;
        text.insert(at, secret);
    }
    text.join(" ")
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<[Message<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'a str>,
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn args(more: &str) -> Args {
        let words = "loadgen --port 1 --requests 1".split_whitespace().chain(more.split_whitespace());
        Args::parse_from(words)
    }

    #[test]
    fn the_seed_decides() {
        let (a, b) = (args("--input-tokens 5-50 --seed 3"), args("--input-tokens 5-50 --seed 4"));
        assert_eq!(Plan::new(&a, 9), Plan::new(&a, 9));
        assert_ne!(Plan::new(&a, 9), Plan::new(&a, 10));
        assert_ne!(Plan::new(&a, 9), Plan::new(&b, 9));
    }

    #[test]
    fn shares_and_sizes_are_kept() {
        let args = args(
            "--stream-ratio 0.5 --abort-ratio 0.25 --input-tokens 3-9 --output-tokens 1 --secret hunter2",
        );
        let plans: Vec<Plan> = (0..2000).map(|n| Plan::new(&args, n)).collect();
        let share = |of: fn(&Plan) -> bool| plans.iter().filter(|p| of(p)).count();
        assert!((900..1100).contains(&share(|p| p.streaming)));
        assert!((420..580).contains(&share(|p| p.abort.is_some())));
        for plan in &plans {
            let words: Vec<&str> = plan.prompt.split(' ').collect();
            assert_eq!(words.len(), plan.input_tokens as usize + 1);
            assert_eq!(words.iter().filter(|w| **w == "hunter2").count(), 1);
            match plan.abort {
                Some(Abort::Chunks(n)) => assert!(plan.streaming && n == 1),
                Some(Abort::Time(_)) => assert!(!plan.streaming),
                None => {}
            }
        }
    }

    #[test]
    fn bodies_are_those_of_the_sdk() {
        let mut plan = Plan::new(&args("--input-tokens 1 --output-tokens 5"), 0);
        plan.prompt = "hi \"there\"".to_owned();
        let text = |plan: &Plan, api| String::from_utf8(plan.body(api, "m")).unwrap();
        assert_eq!(
            text(&plan, Api::Chat),
            r#"{"messages":[{"role":"user","content":"hi \"there\""}],"model":"m","max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}"#
        );
        plan.streaming = false;
        assert_eq!(
            text(&plan, Api::Completions),
            r#"{"prompt":"hi \"there\"","model":"m","max_tokens":5,"stream":false}"#
        );
    }
}
