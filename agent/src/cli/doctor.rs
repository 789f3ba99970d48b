//! `doctor`: what this host allows.

use std::process::ExitCode;

use super::{Outcome, Scope, output::Output, setup};
use crate::probe::{self, Level};

pub(super) fn doctor(scope: &Scope) -> Outcome {
    let config = setup::config(scope, None)?;
    let checks = probe::doctor(&setup::probes(&config));
    let mut out = Output::new();
    for check in &checks {
        let level = match check.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        out.line(format_args!("{level:<5} {}", check.name))?;
        for text in [&check.cost, &check.action] {
            if !text.is_empty() {
                out.line(format_args!("      {text}"))?;
            }
        }
    }
    out.flush()?;
    let failed = checks.iter().any(|check| check.level == Level::Fail);
    Ok(ExitCode::from(u8::from(failed)))
}
