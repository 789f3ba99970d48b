//! Asking the API of a running daemon.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use ureq::{Body, http::Response};

use super::failure::Failure;

/// Where a daemon of this host listens unless it was told otherwise.
pub(super) const DEFAULT_URL: &str = "http://127.0.0.1:9414";
/// How long the daemon may take to accept, and to begin its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The text of the answer to a GET of `path` below `base`.
pub(super) fn text(base: &str, path: &str) -> Result<String, Failure> {
    get(base, path)?
        .into_body()
        .read_to_string()
        .with_context(|| format!("lost the agent at {base}"))
        .map_err(Failure::unavailable)
}

/// The answer to a GET of `path` below `base`.
pub(super) fn get(base: &str, path: &str) -> Result<Response<Body>, Failure> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .proxy(None)
        .timeout_connect(Some(PATIENCE))
        .timeout_recv_response(Some(PATIENCE))
        .http_status_as_error(false)
        .build()
        .into();
    let unreachable = || format!("cannot reach the agent at {base}; is `stagelens run` running there?");
    let url = format!("{}{path}", base.trim_end_matches('/'));
    let response = agent.get(&url).call().with_context(unreachable).map_err(Failure::unavailable)?;
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let text = response.into_body().with_config().limit(1024).read_to_string().unwrap_or_default();
    Err(Failure::unavailable(anyhow!("{url} answered {status}: {}", text.trim())))
}
