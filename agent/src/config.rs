//! Settings of a run: the file, checked key by key against one table, with the command line's flags on top.
//!
//! A key is one row of [`KEYS`]: its name, default, allowed values and help, how it is read and how it is shown. The
//! shipped file `deploy/stagelens.toml` and `config show` are rendered from those rows.

mod keys;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use thiserror::Error;

pub use keys::{KEYS, Key};

use crate::versions::Rule;

/// Where the file is looked for when `--config` is not given; it need not exist.
pub const DEFAULT_PATH: &str = "/etc/stagelens/stagelens.toml";

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// What ends a function of the agent.
    Error,
    /// What degrades it.
    Warn,
    /// Start, end, and what changes in between.
    Info,
    /// For finding a fault.
    Debug,
    /// For finding a fault, by record.
    Trace,
}

/// How bytes on sockets are seen (design §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketTier {
    /// The cheapest way that this kernel has.
    Auto,
    /// Tier A, kernel 6.3 and later, or none.
    A,
    /// Tier B, kernel 5.15 and later.
    B,
}

/// Whether arrival and delivery are seen on the network (design §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkTiming {
    /// Where this kernel allows it.
    Auto,
    /// Or the agent does not start.
    On,
    /// Requests begin when they are read.
    Off,
}

/// Whether plaintext of TLS is seen (design §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Wherever a watched process uses a library that can be attached to.
    Auto,
    /// Connections that speak TLS are opaque.
    Off,
}

/// Whether NVML is asked for what the driver tells of the GPUs (design §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvmlMode {
    /// When it is there.
    Auto,
    /// Or the agent does not start.
    On,
    /// Never.
    Off,
}

/// A validated configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Address of the HTTP API.
    pub listen: SocketAddr,
    /// How much is logged.
    pub log_level: LogLevel,
    /// Time between two looks at /proc.
    pub scan_interval: Duration,
    /// Only these processes and what they start; empty: whatever uses CUDA.
    pub pids: Vec<u32>,
    /// Only the services that listen on these ports; empty: any port.
    pub ports: Vec<u16>,
    /// Size of the ring buffer, bytes.
    pub ring_bytes: u32,
    /// Longest time a record waits in the ring buffer before it is read.
    pub poll_interval: Duration,
    /// How bytes on sockets are seen.
    pub socket_tier: SocketTier,
    /// Whether arrival and delivery are seen on the network.
    pub network_timing: NetworkTiming,
    /// Whether plaintext of TLS is seen.
    pub tls: Tls,
    /// Whether NVML is asked.
    pub nvml: NvmlMode,
    /// NVML's library; searched for when absent.
    pub nvml_library: Option<PathBuf>,
    /// Time between two looks at the use of GPUs.
    pub gpu_poll_interval: Duration,
    /// Time between two looks at everything else of them.
    pub gpu_slow_interval: Duration,
    /// Finished requests kept for the API.
    pub keep_requests: usize,
    /// Label sets per metric family; more go to the series `other`.
    pub max_series: usize,
    /// Bucket boundaries, in seconds, added to the histograms of request times.
    pub extra_buckets: Vec<f64>,
    /// Edges of the ranges of prompt tokens by which metrics tell requests apart.
    pub input_ranges: Vec<u64>,
    /// The same of bytes of the body, where a request has no tokens.
    pub body_ranges: Vec<u64>,
    /// The same of completion tokens.
    pub output_ranges: Vec<u64>,
    /// The same of the mean batch size.
    pub batch_ranges: Vec<u64>,
    /// How names of models tell their versions.
    pub version_rules: Vec<Rule>,
    /// Size at which a recording stops, bytes.
    pub recording_max_bytes: u64,
    /// File that keeps what is usual over a restart; none when absent.
    pub state_file: Option<PathBuf>,
}

/// Why there is no configuration. Every message names the file or the key.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the config file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("the config file {path} is not valid TOML")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: toml::de::Error,
    },
    /// A key that does not exist.
    #[error("config key `{key}` does not exist; keys in that section: {known}")]
    Unknown {
        /// The key.
        key: String,
        /// What there is.
        known: String,
    },
    /// A value that a key does not take.
    #[error("config key `{key}` cannot be {value}; allowed: {allowed}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value, as TOML.
        value: String,
        /// What it takes.
        allowed: &'static str,
    },
}

impl Default for Config {
    fn default() -> Self {
        let mut config = Self::blank();
        for key in KEYS {
            let value = toml_value(key.default).expect("a default is TOML; tested");
            (key.read)(&mut config, &value).expect("a default is in its own range; tested");
        }
        config
    }
}

impl Config {
    /// The configuration in `path`; without a path the one at [`DEFAULT_PATH`] if it exists, else the defaults.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let (path, required) = path.map_or((Path::new(DEFAULT_PATH), false), |path| (path, true));
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, path),
            Err(source) if source.kind() == io::ErrorKind::NotFound && !required => Ok(Self::default()),
            Err(source) => Err(ConfigError::Read { path: path.into(), source }),
        }
    }

    /// The configuration in `text`; `path` is only for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let table: toml::Table =
            text.parse().map_err(|source| ConfigError::Syntax { path: path.into(), source })?;
        let mut raw = BTreeMap::new();
        flatten("", table, &mut raw);
        let mut config = Self::default();
        for (name, value) in &raw {
            let Some(key) = KEYS.iter().find(|key| key.name == name) else {
                return Err(ConfigError::Unknown { key: name.clone(), known: siblings(name) });
            };
            (key.read)(&mut config, value).ok_or_else(|| ConfigError::Value {
                key: key.name,
                value: value.to_string(),
                allowed: key.allowed,
            })?;
        }
        Ok(config)
    }

    /// As TOML: every key with its value, and with `comments` also what it means and takes.
    pub fn to_toml(&self, comments: bool) -> String {
        let (mut text, mut section) = (String::new(), "");
        for key in KEYS {
            let (in_section, leaf) = key.name.split_once('.').unwrap_or(("", key.name));
            if in_section != section {
                let _ = writeln!(text, "\n[{in_section}]");
                section = in_section;
            }
            if comments {
                let _ = writeln!(text, "# {}", key.help);
                let _ = writeln!(text, "# Allowed: {}.", key.allowed);
            }
            let _ = writeln!(text, "{leaf} = {}", (key.show)(self));
        }
        text
    }

    /// Placeholder values, each replaced by the default of its row.
    fn blank() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            log_level: LogLevel::Info,
            scan_interval: Duration::ZERO,
            pids: Vec::new(),
            ports: Vec::new(),
            ring_bytes: 0,
            poll_interval: Duration::ZERO,
            socket_tier: SocketTier::Auto,
            network_timing: NetworkTiming::Auto,
            tls: Tls::Auto,
            nvml: NvmlMode::Auto,
            nvml_library: None,
            gpu_poll_interval: Duration::ZERO,
            gpu_slow_interval: Duration::ZERO,
            keep_requests: 0,
            max_series: 0,
            extra_buckets: Vec::new(),
            input_ranges: Vec::new(),
            body_ranges: Vec::new(),
            output_ranges: Vec::new(),
            batch_ranges: Vec::new(),
            version_rules: Vec::new(),
            recording_max_bytes: 0,
            state_file: None,
        }
    }
}

/// A TOML literal as a value.
fn toml_value(literal: &str) -> Option<toml::Value> {
    let mut table: toml::Table = format!("v = {literal}").parse().ok()?;
    table.remove("v")
}

/// Tables to dotted keys.
fn flatten(prefix: &str, table: toml::Table, into: &mut BTreeMap<String, toml::Value>) {
    for (name, value) in table {
        let name = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        match value {
            toml::Value::Table(table) if !KEYS.iter().any(|key| key.name == name) => {
                // An empty section sets nothing, but one that does not exist is a mistake all the same.
                if table.is_empty() && !KEYS.iter().any(|key| key.name.starts_with(&format!("{name}."))) {
                    into.insert(name, toml::Value::Table(table));
                } else {
                    flatten(&name, table, into);
                }
            }
            value => {
                into.insert(name, value);
            }
        }
    }
}

/// The keys beside `name`, or all of them when it stands in no known section.
fn siblings(name: &str) -> String {
    let section = name.rsplit_once('.').map_or("", |(section, _)| section);
    let beside = |key: &&Key| key.name.rsplit_once('.').map_or("", |(section, _)| section) == section;
    let names: Vec<_> = KEYS.iter().filter(beside).map(|key| key.name).collect();
    if names.is_empty() || section.is_empty() {
        return KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ");
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("test.toml"))
    }

    #[test]
    fn every_default_is_valid_and_shown_as_it_is_declared() {
        let config = Config::default();
        for key in KEYS {
            assert_eq!((key.show)(&config), toml_value(key.default).unwrap(), "{}", key.name);
        }
    }

    #[test]
    fn the_shipped_file_has_every_key_with_its_default() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/stagelens.toml");
        let shipped = std::fs::read_to_string(&path).unwrap();
        assert_eq!(parse(&shipped).unwrap(), Config::default());
        let (_, body) = shipped.split_once("\n\n").expect("a heading, then the keys");
        assert_eq!(
            body,
            Config::default().to_toml(true),
            "render it with `stagelens config show --comments`"
        );
    }

    #[test]
    fn what_is_shown_can_be_read_back() {
        let text = "listen = \"[::1]:9\"\nlog.level = \"debug\"\n[discovery]\nscan_interval = \"1s 500ms\"\npids = [7]\n\
                    ports = [80]\n[ring]\nsize_bytes = 1_048_576\n[metrics]\nextra_buckets = [1, 0.3]\n";
        let config = parse(text).unwrap();
        assert_eq!(config.scan_interval, Duration::from_millis(1500));
        assert_eq!(config.extra_buckets, [0.3, 1.0]);
        assert_eq!(parse(&config.to_toml(false)).unwrap(), config);
        assert_eq!(parse(&config.to_toml(true)).unwrap(), config);
    }

    #[test]
    fn a_bad_value_is_refused_with_its_key_and_what_is_allowed() {
        let cases = [
            ("listen = 9414", "`listen` cannot be 9414; allowed: an address and port"),
            ("listen = \"localhost\"", "`listen` cannot be \"localhost\""),
            (
                "log.level = \"loud\"",
                "`log.level` cannot be \"loud\"; allowed: error, warn, info, debug, trace",
            ),
            ("discovery.scan_interval = \"1\"", "`discovery.scan_interval` cannot be \"1\""),
            ("discovery.scan_interval = \"1ms\"", "a duration from 100ms to 1h"),
            ("discovery.pids = [0]", "`discovery.pids` cannot be [0]"),
            ("discovery.pids = 7", "`discovery.pids` cannot be 7"),
            ("discovery.ports = [70000]", "`discovery.ports` cannot be [70000]"),
            ("ring.size_bytes = 1000", "`ring.size_bytes` cannot be 1000; allowed: a power of two from"),
            ("ring.size_bytes = \"16M\"", "`ring.size_bytes` cannot be \"16M\""),
            ("ring.size_bytes = -1", "`ring.size_bytes` cannot be -1"),
            ("ring.poll_interval = \"2s\"", "`ring.poll_interval` cannot be \"2s\""),
            ("socket.tier = \"c\"", "`socket.tier` cannot be \"c\"; allowed: auto, a, b"),
            ("socket.tls = \"on\"", "`socket.tls` cannot be \"on\"; allowed: auto, off"),
            ("gpu.nvml = \"yes\"", "`gpu.nvml` cannot be \"yes\"; allowed: auto, on, off"),
            ("gpu.nvml_library = \"lib.so\"", "`gpu.nvml_library` cannot be \"lib.so\""),
            ("gpu.poll_interval = \"1ms\"", "`gpu.poll_interval` cannot be \"1ms\""),
            ("gpu.slow_interval = \"1s\"", "a duration from 10s to 1h"),
            ("requests.keep = 0", "`requests.keep` cannot be 0"),
            ("metrics.max_series_per_family = 5", "`metrics.max_series_per_family` cannot be 5"),
            ("metrics.extra_buckets = [-1]", "`metrics.extra_buckets` cannot be [-1]"),
            ("metrics.extra_buckets = [nan]", "`metrics.extra_buckets` cannot be [nan]"),
            ("recording.max_bytes = 1", "`recording.max_bytes` cannot be 1"),
            (
                "ring.sise = 1",
                "`ring.sise` does not exist; keys in that section: ring.size_bytes, ring.poll_interval",
            ),
            ("nonsense = 1", "`nonsense` does not exist"),
            ("[nonsense]", "`nonsense` does not exist"),
            ("ring = 1", "`ring` does not exist"),
            ("listen.x = 1", "`listen` cannot be"),
        ];
        for (text, want) in cases {
            let message = parse(text).expect_err(text).to_string();
            assert!(message.contains(want), "{text}: {message}");
        }
    }

    #[test]
    fn text_that_is_not_toml_names_the_file() {
        let error = parse("listen = ").unwrap_err();
        assert!(error.to_string().contains("test.toml"), "{error}");
    }

    #[test]
    fn a_file_that_was_asked_for_must_exist() {
        let error = Config::load(Some(Path::new("/nonexistent/x.toml"))).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/x.toml"), "{error}");
    }
}
