//! The one declaration of every config key.

use std::{path::Path, time::Duration};

use toml::Value;

use super::{Config, LogLevel, NetworkTiming, NvmlMode, SocketTier, Tls};
use crate::versions::Rule;

/// A config key.
#[derive(Debug)]
pub struct Key {
    /// Name with its section.
    pub name: &'static str,
    /// Default, as a TOML literal.
    pub default: &'static str,
    /// What it takes, for messages and for the shipped file.
    pub allowed: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Sets it; `None` when the value is not allowed.
    pub(super) read: fn(&mut Config, &Value) -> Option<()>,
    /// Its value in a configuration.
    pub(super) show: fn(&Config) -> Value,
}

/// All keys, in the order of the shipped file: those without a section first.
pub const KEYS: &[Key] = &[
    Key {
        name: "listen",
        default: r#""127.0.0.1:9414""#,
        allowed: r#"an address and port, as in "127.0.0.1:9414" or "[::]:9414""#,
        help: "Address of the HTTP API and of /metrics. It is not authenticated: bind it to loopback or to the pod.",
        read: |config, value| {
            config.listen = value.as_str()?.parse().ok()?;
            Some(())
        },
        show: |config| Value::String(config.listen.to_string()),
    },
    Key {
        name: "log.level",
        default: r#""info""#,
        allowed: "error, warn, info, debug, trace",
        help: "How much is logged to standard error. Payload is never logged, at any level.",
        read: |config, value| {
            config.log_level = log_level(value.as_str()?)?;
            Some(())
        },
        show: |config| Value::String(format!("{:?}", config.log_level).to_lowercase()),
    },
    Key {
        name: "discovery.scan_interval",
        default: r#""1s""#,
        allowed: "a duration from 100ms to 1h",
        help: "Time between two looks at /proc for processes that use a GPU. Hints from the kernel come sooner.",
        read: |config, value| {
            let hour = Duration::from_hours(1);
            config.scan_interval = duration(value, Duration::from_millis(100), hour)?;
            Some(())
        },
        show: |config| show_duration(config.scan_interval),
    },
    Key {
        name: "discovery.pids",
        default: "[]",
        allowed: "a list of process ids",
        help: "Watch only the services of these processes, GPU or not. Empty: every service that uses a GPU.",
        read: |config, value| {
            config.pids = list(value, |n| u32::try_from(n.as_integer()?).ok().filter(|&pid| pid > 0))?;
            Some(())
        },
        show: |config| config.pids.iter().map(|&pid| Value::Integer(pid.into())).collect::<Vec<_>>().into(),
    },
    Key {
        name: "discovery.ports",
        default: "[]",
        allowed: "a list of ports from 1 to 65535",
        help: "Watch only the services that listen on these TCP ports, GPU or not. Empty: any port.",
        read: |config, value| {
            config.ports = list(value, |n| u16::try_from(n.as_integer()?).ok().filter(|&port| port > 0))?;
            Some(())
        },
        show: |config| {
            config.ports.iter().map(|&port| Value::Integer(port.into())).collect::<Vec<_>>().into()
        },
    },
    Key {
        name: "ring.size_bytes",
        default: "8388608",
        allowed: "a power of two from 65536 to 1073741824",
        help: "Ring buffer between kernel and agent; counts twice in the agent's memory. When it is full, records are lost, counted.",
        read: |config, value| {
            let bytes = integer(value, 1 << 16, 1 << 30)?;
            config.ring_bytes = u32::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two())?;
            Some(())
        },
        show: |config| Value::Integer(config.ring_bytes.into()),
    },
    Key {
        name: "ring.poll_interval",
        default: r#""20ms""#,
        allowed: "a duration from 1ms to 1s",
        help: "How often the ring buffer is emptied, unless it fills earlier: a longer time costs less. It does not change any measured time.",
        read: |config, value| {
            config.poll_interval = duration(value, Duration::from_millis(1), Duration::from_secs(1))?;
            Some(())
        },
        show: |config| show_duration(config.poll_interval),
    },
    Key {
        name: "socket.tier",
        default: r#""auto""#,
        allowed: "auto, a, b",
        help: "How bytes on sockets are seen: tier A (kernel 6.3), tier B (kernel 5.15; about 0.15 us on every system call of the node, blind to io_uring and 32-bit programs), or A where the kernel has it, else B.",
        read: |config, value| {
            config.socket_tier = match value.as_str()? {
                "auto" => SocketTier::Auto,
                "a" => SocketTier::A,
                "b" => SocketTier::B,
                _ => return None,
            };
            Some(())
        },
        show: |config| Value::String(format!("{:?}", config.socket_tier).to_lowercase()),
    },
    Key {
        name: "socket.network_timing",
        default: r#""auto""#,
        allowed: "auto, on, off",
        help: "Times requests from their arrival at the host, not from the server's read, and answers to the client's acknowledgement: where the kernel allows it, or else not start, or never.",
        read: |config, value| {
            config.network_timing = match value.as_str()? {
                "auto" => NetworkTiming::Auto,
                "on" => NetworkTiming::On,
                "off" => NetworkTiming::Off,
                _ => return None,
            };
            Some(())
        },
        show: |config| Value::String(format!("{:?}", config.network_timing).to_lowercase()),
    },
    Key {
        name: "socket.tls",
        default: r#""auto""#,
        allowed: "auto, off",
        help: "Sees requests over TLS where a server uses OpenSSL in a library or with symbols, at two probes a read or write; off: such connections are counted and nothing more.",
        read: |config, value| {
            config.tls = match value.as_str()? {
                "auto" => Tls::Auto,
                "off" => Tls::Off,
                _ => return None,
            };
            Some(())
        },
        show: |config| Value::String(format!("{:?}", config.tls).to_lowercase()),
    },
    Key {
        name: "gpu.nvml",
        default: r#""auto""#,
        allowed: "auto, on, off",
        help: "Asks NVML for devices, their use and their processes: where it is there, or else not start, or never. It holds the driver open: SIGUSR1 releases it for an upgrade or a change of MIG, SIGUSR2 takes it up again.",
        read: |config, value| {
            config.nvml = match value.as_str()? {
                "auto" => NvmlMode::Auto,
                "on" => NvmlMode::On,
                "off" => NvmlMode::Off,
                _ => return None,
            };
            Some(())
        },
        show: |config| Value::String(format!("{:?}", config.nvml).to_lowercase()),
    },
    Key {
        name: "gpu.nvml_library",
        default: r#""""#,
        allowed: "an absolute path, or nothing",
        help: "File of NVML's library, libnvidia-ml.so.1. Empty: searched for where drivers put it, in the host's root as well.",
        read: |config, value| {
            let path = Path::new(value.as_str()?);
            config.nvml_library = (path != Path::new("")).then(|| path.to_owned());
            config.nvml_library.as_ref().is_none_or(|path| path.is_absolute()).then_some(())
        },
        show: |config| {
            let path = config.nvml_library.as_deref().unwrap_or(Path::new(""));
            Value::String(path.to_string_lossy().into_owned())
        },
    },
    Key {
        name: "gpu.poll_interval",
        default: r#""1s""#,
        allowed: "a duration from 200ms to 1h",
        help: "Time between two looks at utilization, memory and processes of the GPUs. Longer by itself where the calls are slow.",
        read: |config, value| {
            config.gpu_poll_interval = duration(value, Duration::from_millis(200), Duration::from_hours(1))?;
            Some(())
        },
        show: |config| show_duration(config.gpu_poll_interval),
    },
    Key {
        name: "gpu.slow_interval",
        default: r#""10s""#,
        allowed: "a duration from 10s to 1h",
        help: "Time between two looks at everything else of them: which there are, temperature, power, clocks, throttling.",
        read: |config, value| {
            config.gpu_slow_interval = duration(value, Duration::from_secs(10), Duration::from_hours(1))?;
            Some(())
        },
        show: |config| show_duration(config.gpu_slow_interval),
    },
    Key {
        name: "requests.keep",
        default: "4096",
        allowed: "a number from 1 to 1000000",
        help: "Finished requests that the API keeps, about 1 KiB each. Older ones are gone.",
        read: |config, value| {
            config.keep_requests = usize::try_from(integer(value, 1, 1_000_000)?).ok()?;
            Some(())
        },
        show: |config| Value::Integer(i64::try_from(config.keep_requests).unwrap_or(i64::MAX)),
    },
    Key {
        name: "metrics.max_series_per_family",
        default: "1000",
        allowed: "a number from 100 to 100000",
        help: "Label sets per metric family. Beyond it values go to the series `other`, and are counted.",
        read: |config, value| {
            config.max_series = usize::try_from(integer(value, 100, 100_000)?).ok()?;
            Some(())
        },
        show: |config| Value::Integer(i64::try_from(config.max_series).unwrap_or(i64::MAX)),
    },
    Key {
        name: "metrics.extra_buckets",
        default: "[]",
        allowed: "a list of at most 16 numbers of seconds, each above 0 and at most 3600",
        help: "Bucket boundaries added to the histograms of request times: put the targets of your SLOs here.",
        read: |config, value| {
            let seconds = |n: &Value| n.as_float().or_else(|| n.as_integer().map(|n| n as f64));
            let allowed = |seconds: &f64| *seconds > 0.0 && *seconds <= 3600.0;
            let mut buckets = list(value, |n| seconds(n).filter(allowed))?;
            buckets.sort_by(f64::total_cmp);
            config.extra_buckets = buckets;
            (config.extra_buckets.len() <= 16).then_some(())
        },
        show: |config| config.extra_buckets.iter().map(|&s| Value::Float(s)).collect::<Vec<_>>().into(),
    },
    Key {
        name: "metrics.input_ranges",
        default: "[128, 512, 2048, 8192, 32768]",
        allowed: EDGES,
        help: "Edges of the ranges of prompt tokens by which request times are told apart (label input_range). Empty: not told apart.",
        read: |config, value| {
            config.input_ranges = edges(value)?;
            Some(())
        },
        show: |config| show_edges(&config.input_ranges),
    },
    Key {
        name: "metrics.body_ranges",
        default: "[16384, 131072, 1048576, 8388608]",
        allowed: EDGES,
        help: "The same in bytes of the request's body, for APIs without tokens, as those that take images: input_range is then body:LOW-HIGH.",
        read: |config, value| {
            config.body_ranges = edges(value)?;
            Some(())
        },
        show: |config| show_edges(&config.body_ranges),
    },
    Key {
        name: "metrics.output_ranges",
        default: "[]",
        allowed: EDGES,
        help: "The same of completion tokens (label output_range). Empty: not told apart. Each range multiplies the series.",
        read: |config, value| {
            config.output_ranges = edges(value)?;
            Some(())
        },
        show: |config| show_edges(&config.output_ranges),
    },
    Key {
        name: "metrics.batch_ranges",
        default: "[]",
        allowed: EDGES,
        help: "The same of the mean number of requests in a request's steps (label batch_size). Empty: not told apart.",
        read: |config, value| {
            config.batch_ranges = edges(value)?;
            Some(())
        },
        show: |config| show_edges(&config.batch_ranges),
    },
    Key {
        name: "models.version_rules",
        default: "[]",
        allowed: r#"a list of at most 16 names with {model} and {version} in them, as in "{model}@{version}""#,
        help: "How names of models tell their versions, where nothing else does. The first rule that fits a name splits it.",
        read: |config, value| {
            config.version_rules = list(value, |rule| Rule::parse(rule.as_str()?).ok())?;
            (config.version_rules.len() <= 16).then_some(())
        },
        show: |config| {
            config.version_rules.iter().map(|rule| Value::String(rule.to_string())).collect::<Vec<_>>().into()
        },
    },
    Key {
        name: "recording.max_bytes",
        default: "1073741824",
        allowed: "a number from 65536 to 1099511627776",
        help: "Size at which a recording (`--record`) stops. The agent goes on.",
        read: |config, value| {
            config.recording_max_bytes = u64::try_from(integer(value, 1 << 16, 1 << 40)?).ok()?;
            Some(())
        },
        show: |config| Value::Integer(i64::try_from(config.recording_max_bytes).unwrap_or(i64::MAX)),
    },
    Key {
        name: "state.file",
        default: r#""""#,
        allowed: "an absolute path, or nothing",
        help: "File that keeps what is usual for each service and model over a restart, written every five minutes and at the end. Empty: a run begins without.",
        read: |config, value| {
            let path = Path::new(value.as_str()?);
            config.state_file = (path != Path::new("")).then(|| path.to_owned());
            config.state_file.as_ref().is_none_or(|path| path.is_absolute()).then_some(())
        },
        show: |config| {
            let path = config.state_file.as_deref().unwrap_or(Path::new(""));
            Value::String(path.to_string_lossy().into_owned())
        },
    },
];

/// What lists of edges take.
const EDGES: &str = "a list of at most 16 whole numbers from 1 to 1000000000, rising";

fn edges(value: &Value) -> Option<Vec<u64>> {
    let edges = list(value, |n| u64::try_from(integer(n, 1, 1_000_000_000)?).ok())?;
    (edges.len() <= 16 && edges.is_sorted_by(|a, b| a < b)).then_some(edges)
}

fn show_edges(edges: &[u64]) -> Value {
    edges
        .iter()
        .map(|&edge| Value::Integer(i64::try_from(edge).unwrap_or(i64::MAX)))
        .collect::<Vec<_>>()
        .into()
}

fn log_level(name: &str) -> Option<LogLevel> {
    Some(match name {
        "error" => LogLevel::Error,
        "warn" => LogLevel::Warn,
        "info" => LogLevel::Info,
        "debug" => LogLevel::Debug,
        "trace" => LogLevel::Trace,
        _ => return None,
    })
}

fn integer(value: &Value, least: i64, most: i64) -> Option<i64> {
    value.as_integer().filter(|n| (least..=most).contains(n))
}

fn duration(value: &Value, least: Duration, most: Duration) -> Option<Duration> {
    let duration = humantime::parse_duration(value.as_str()?).ok()?;
    (least..=most).contains(&duration).then_some(duration)
}

fn show_duration(duration: Duration) -> Value {
    Value::String(humantime::format_duration(duration).to_string())
}

fn list<T>(value: &Value, item: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(item).collect()
}
