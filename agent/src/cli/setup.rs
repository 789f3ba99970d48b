//! What every command that attaches does first: configuration, settings of the probes, logging.

use std::{io::IsTerminal as _, net::SocketAddr};

use tracing_subscriber::EnvFilter;

use super::{Scope, failure::Failure};
use crate::{
    config::{Config, LogLevel, NetworkTiming, NvmlMode, SocketTier, Tls},
    export::{
        self,
        ranges::{BODY, Ranges, RequestRanges},
    },
    probe,
    source::nvml,
};

/// The effective configuration: defaults, then the file, then the flags.
pub(super) fn config(scope: &Scope, listen: Option<SocketAddr>) -> Result<Config, Failure> {
    let mut config = Config::load(scope.config.as_deref())?;
    if !scope.pids.is_empty() {
        config.pids.clone_from(&scope.pids);
    }
    if !scope.ports.is_empty() {
        config.ports.clone_from(&scope.ports);
    }
    config.listen = listen.unwrap_or(config.listen);
    Ok(config)
}

/// The part of it that the probes need.
pub(super) fn probes(config: &Config) -> probe::Settings {
    probe::Settings {
        pids: config.pids.clone(),
        ports: config.ports.clone(),
        scan_interval: config.scan_interval,
        ring_bytes: config.ring_bytes,
        socket_tier: match config.socket_tier {
            SocketTier::Auto => probe::SocketTier::Auto,
            SocketTier::A => probe::SocketTier::A,
            SocketTier::B => probe::SocketTier::B,
        },
        network_timing: match config.network_timing {
            NetworkTiming::Auto => probe::NetworkTiming::Auto,
            NetworkTiming::On => probe::NetworkTiming::On,
            NetworkTiming::Off => probe::NetworkTiming::Off,
        },
        tls: match config.tls {
            Tls::Auto => probe::Tls::Auto,
            Tls::Off => probe::Tls::Off,
        },
    }
}

/// The part of it that the thread of NVML needs; `None` where there is to be none.
pub(super) fn nvml(config: &Config) -> Option<nvml::Settings> {
    (config.nvml != NvmlMode::Off).then(|| nvml::Settings {
        required: config.nvml == NvmlMode::On,
        library: config.nvml_library.clone(),
        poll_interval: config.gpu_poll_interval,
        slow_interval: config.gpu_slow_interval,
        ..nvml::Settings::default()
    })
}

/// The part of it that the metrics need.
pub(super) fn metrics(config: &Config) -> export::prometheus::Settings {
    export::prometheus::Settings {
        max_series: config.max_series,
        extra_buckets: config.extra_buckets.clone(),
        ranges: RequestRanges {
            input: Ranges::new(&config.input_ranges),
            body: Ranges::named(BODY, &config.body_ranges),
            output: Ranges::new(&config.output_ranges),
            batch: Ranges::new(&config.batch_ranges),
        },
    }
}

/// Sends the log of this crate, and warnings of others, to standard error.
pub(super) fn logging(level: LogLevel) {
    let filter = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "warn,agent=info",
        LogLevel::Debug => "warn,agent=debug",
        LogLevel::Trace => "warn,agent=trace",
    };
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}
