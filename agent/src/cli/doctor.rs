//! `doctor`: what this host allows.

use std::process::ExitCode;

use super::{Outcome, Scope, output::Output, setup};
use crate::probe::{self, Grade};

pub(super) fn doctor(scope: &Scope) -> Outcome {
    let config = setup::config(scope, None)?;
    let mut checks = probe::doctor(&setup::probes(&config));
    checks.extend(setup::nvml(&config).map(|nvml| probe::doctor_nvml(nvml.library.as_deref())));
    let mut out = Output::new();
    for check in &checks {
        let grade = match check.grade {
            Grade::Ok => "ok",
            Grade::Warn => "warn",
            Grade::Fail => "FAIL",
        };
        out.line(format_args!("{grade:<5} {}: {}", check.name, check.found))?;
        for (what, text) in [("costs", &check.costs), ("to do", &check.remedy)] {
            if let Some(text) = text {
                out.line(format_args!("      {what}: {text}"))?;
            }
        }
    }
    out.flush()?;
    let failed = checks.iter().any(|check| check.grade == Grade::Fail);
    Ok(ExitCode::from(u8::from(failed)))
}
