//! Command line.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, ArgGroup, Parser, ValueEnum};

/// Sends chat completion requests to a server on this machine and writes what the client saw, one JSON line per request.
#[derive(Debug, Parser)]
#[command(group = ArgGroup::new("end").required(true).multiple(true).args(["seconds", "requests"]))]
pub(crate) struct Args {
    /// Address of the server; only loopback addresses are accepted.
    #[arg(long, default_value = "127.0.0.1", value_parser = loopback)]
    pub host: IpAddr,
    /// Port of the server.
    #[arg(long)]
    pub port: u16,
    /// Clients; each has one request at a time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
    /// Starts no request after that many seconds.
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<Duration>,
    /// Starts no more than that many requests.
    #[arg(long)]
    pub requests: Option<u64>,
    /// Share of requests that ask for a stream.
    #[arg(long, default_value_t = 1.0, value_parser = ratio)]
    pub stream_ratio: f64,
    /// Words of the prompt: N, or A-B for a uniform range.
    #[arg(long, default_value = "64")]
    pub input_tokens: Range,
    /// `max_tokens`: N, or A-B for a uniform range.
    #[arg(long, default_value = "32")]
    pub output_tokens: Range,
    /// What is asked depends on this and the number of the request only.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// File for the lines; - is stdout.
    #[arg(long, default_value = "-")]
    pub out: PathBuf,
    /// Share of requests that the client abandons: streams after some chunks, others after some time.
    #[arg(long, default_value_t = 0.0, value_parser = ratio)]
    pub abort_ratio: f64,
    /// Share of requests whose client reads slowly through a small receive buffer, on a connection of its own.
    #[arg(long, default_value_t = 0.0, value_parser = ratio)]
    pub slow_ratio: f64,
    /// Milliseconds between two reads of a slow client.
    #[arg(long, default_value_t = 20)]
    pub slow_pause_ms: u64,
    /// Use a connection for more than one request.
    #[arg(long, default_value_t = true, action = ArgAction::Set)]
    pub keep_alive: bool,
    /// Close a connection after that many requests.
    #[arg(long)]
    pub close_every: Option<NonZeroU32>,
    /// Requests arrive at random with this mean rate per second, however long the answers take; a request that finds
    /// no free client waits for one and counts as late.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub open_loop: Option<f64>,
    /// Ask for this path besides, as health probes do.
    #[arg(long, value_name = "PATH")]
    pub probe: Option<String>,
    /// Milliseconds between two probes.
    #[arg(long, default_value_t = 100)]
    pub probe_every_ms: u64,
    /// Text planted somewhere in every prompt, to look for where it must not appear.
    #[arg(long)]
    pub secret: Option<String>,
    /// Which API to speak.
    #[arg(long, value_enum, default_value_t = Api::Chat)]
    pub api: Api,
    /// Model to ask for.
    #[arg(long, default_value = "test-model")]
    pub model: String,
    /// A request that takes longer than that is given up.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: Duration,
}

impl Args {
    pub(crate) fn address(&self) -> SocketAddr {
        (self.host, self.port).into()
    }

    /// Requests per connection; `None` is no limit.
    pub(crate) fn per_connection(&self) -> Option<NonZeroU32> {
        if self.keep_alive { self.close_every } else { Some(NonZeroU32::MIN) }
    }
}

/// The two APIs that servers commonly speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Api {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

impl Api {
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
        }
    }
}

/// Both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub low: u32,
    pub high: u32,
}

/// Larger prompts than this say more about the generator than about the server.
const MAX_TOKENS: u32 = 1 << 20;

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let number = |s: &str| s.trim().parse().ok().filter(|n| (1..=MAX_TOKENS).contains(n));
        match (number(low), number(high)) {
            (Some(low), Some(high)) if low <= high => Ok(Self { low, high }),
            _ => Err(format!("want N or A-B with 1 <= A <= B <= {MAX_TOKENS}")),
        }
    }
}

fn loopback(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| "want an address such as 127.0.0.1 or ::1".to_owned())?;
    if address.is_loopback() {
        Ok(address)
    } else {
        Err("this generator only talks to servers on this machine: give a loopback address".to_owned())
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    number(text, |n| (0.0..=1.0).contains(&n), "want a share from 0 to 1")
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, |n| n > 0.0 && n <= 1e5, "want requests per second, more than 0 and at most 100000")
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = number(text, |n| n > 0.0 && n <= 86_400.0, "want seconds, more than 0 and at most 86400")?;
    Ok(Duration::from_secs_f64(seconds))
}

fn number(text: &str, good: impl Fn(f64) -> bool, want: &str) -> Result<f64, String> {
    text.parse().ok().filter(|&n| good(n)).ok_or_else(|| want.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Args, String> {
        let words = ["loadgen"].into_iter().chain(args.split_whitespace());
        Args::try_parse_from(words).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_refused_says_why() {
        for (args, word) in [
            ("--port 1", "required"),
            ("--port 1 --requests 1 --host 192.0.2.1", "loopback"),
            ("--port 1 --requests 1 --host 0.0.0.0", "loopback"),
            ("--port 1 --requests 1 --host example.org", "address"),
            ("--port 1 --requests 1 --concurrency 257", "256"),
            ("--port 1 --requests 1 --abort-ratio 1.1", "share"),
            ("--port 1 --requests 1 --input-tokens 9-3", "A-B"),
            ("--port 1 --requests 1 --open-loop 0", "per second"),
            ("--port 1 --seconds NaN", "seconds"),
        ] {
            let error = parse(args).unwrap_err();
            assert!(error.contains(word), "{args}: {error}");
        }
    }

    #[test]
    fn limits_and_ranges() {
        let args =
            parse("--port 1 --seconds 0.5 --requests 3 --host ::1 --input-tokens 16-256 --keep-alive false");
        let args = args.unwrap();
        assert_eq!(args.seconds, Some(Duration::from_millis(500)));
        assert_eq!(args.input_tokens, Range { low: 16, high: 256 });
        assert_eq!(args.per_connection().map(NonZeroU32::get), Some(1));
        let args = parse("--port 1 --requests 3 --close-every 7").unwrap();
        assert_eq!(args.per_connection().map(NonZeroU32::get), Some(7));
        assert_eq!(parse("--port 1 --requests 3").unwrap().per_connection(), None);
    }
}
