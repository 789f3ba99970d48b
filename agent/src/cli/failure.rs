//! Why a command failed, and with which exit code.

use std::{io, process::ExitCode};

use crate::{
    config::ConfigError,
    export::http::HttpError,
    probe::{self, ProbeError},
    source::nvml::NvmlUnavailable,
};

/// A failed command.
#[derive(Debug)]
pub(super) struct Failure {
    code: u8,
    error: Option<anyhow::Error>,
}

/// Findings, or a check that failed.
const FAILED: u8 = 1;
/// Bad config (`EX_USAGE` of sysexits, as the design has it).
const CONFIG: u8 = 64;
/// Not possible on this host (`EX_UNAVAILABLE`).
const UNAVAILABLE: u8 = 69;

impl Failure {
    /// Something did not work.
    pub(super) fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self { code: FAILED, error: Some(error.into()) }
    }

    /// It cannot work on this host, or what is needed is not there.
    pub(super) fn unavailable(error: impl Into<anyhow::Error>) -> Self {
        Self { code: UNAVAILABLE, error: Some(error.into()) }
    }

    /// Standard output failed. When the reader has gone, as `head` does, that is the end and no failure.
    pub(super) fn stdout(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { code: 0, error: None };
        }
        Self::failed(anyhow::Error::new(error).context("cannot write to standard output"))
    }

    /// The whole chain on one line; `None` when there is nothing to say.
    pub(super) fn message(&self) -> Option<String> {
        self.error.as_ref().map(chain)
    }

    /// The exit code.
    pub(super) fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self { code: CONFIG, error: Some(error.into()) }
    }
}

impl From<ProbeError> for Failure {
    fn from(error: ProbeError) -> Self {
        Self::unavailable(error)
    }
}

impl From<NvmlUnavailable> for Failure {
    fn from(error: NvmlUnavailable) -> Self {
        Self::unavailable(error)
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Bind { .. } => Self::unavailable(error),
            HttpError::Serve(_) => Self::failed(error),
        }
    }
}

/// An error and its sources on one line, each said once.
pub(super) fn chain(error: &anyhow::Error) -> String {
    probe::chain(error.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gone_reader_is_no_failure_and_a_chain_is_said_once() {
        let gone = Failure::stdout(io::ErrorKind::BrokenPipe.into());
        assert_eq!((gone.code, gone.message()), (0, None));
        let failure = Failure::from(ConfigError::Read {
            path: "/x.toml".into(),
            source: io::Error::from_raw_os_error(13),
        });
        assert_eq!(failure.code, CONFIG);
        let message = failure.message().unwrap();
        assert_eq!(message, "cannot read the config file /x.toml: Permission denied (os error 13)");
    }
}
