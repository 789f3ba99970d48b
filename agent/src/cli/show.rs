//! `config show`: the effective configuration.

use std::{net::SocketAddr, process::ExitCode};

use super::{Outcome, Scope, output::Output, setup};

pub(super) fn show(scope: &Scope, listen: Option<SocketAddr>, comments: bool) -> Outcome {
    let config = setup::config(scope, listen)?;
    let mut out = Output::new();
    out.text(&config.to_toml(comments))?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
