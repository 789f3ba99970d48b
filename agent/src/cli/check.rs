//! `check`: attach everything, tell how it went, detach.

use std::{
    process::ExitCode,
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    time::{Duration, Instant},
};

use super::{Outcome, Scope, failure::Failure, output::Output, setup};
use crate::{
    export::json,
    probe::{ProbeVerdict, Session, Status, status::SocketStatus, verdict::State},
};

/// How long attaching and the first look at /proc may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time between two looks at the state.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn check(strict: bool, scope: &Scope) -> Outcome {
    let config = setup::config(scope, None)?;
    setup::logging(config.log_level);
    let (sender, observations) = sync_channel(1024);
    let (session, _ring) = Session::start(&setup::probes(&config), sender)?;
    let status = until_ready(&session, &observations);
    drop(session);
    let mut out = Output::new();
    print(&mut out, &status)?;
    out.flush()?;
    let good = status.ready && status.probes.iter().all(|probe| good_enough(probe.state, strict));
    Ok(ExitCode::from(u8::from(!good)))
}

/// Its state when it is ready, or when patience is at an end.
fn until_ready(session: &Session, observations: &Receiver<Vec<u8>>) -> Status {
    let end = Instant::now() + PATIENCE;
    loop {
        let status = session.status();
        if status.ready || Instant::now() >= end {
            return status;
        }
        // Discovery waits for its observations to be taken.
        let look = Instant::now() + LOOK;
        loop {
            let left = look.saturating_duration_since(Instant::now());
            match observations.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return session.status(),
            }
        }
    }
}

fn good_enough(state: State, strict: bool) -> bool {
    match state {
        State::Attached => true,
        State::Unsupported | State::Skipped => !strict,
        State::Broken => false,
    }
}

fn print(out: &mut Output, status: &Status) -> Result<(), Failure> {
    for probe in &status.probes {
        out.line(line(probe))?;
    }
    let SocketStatus { tier, cost, not_seen } = status.socket;
    out.line(format_args!("socket calls by {}: costs {cost}; does not see {not_seen}", tier.name()))?;
    let attached = status.probes.iter().filter(|probe| probe.state == State::Attached).count();
    out.line(format_args!("{attached} of {} probes attached", status.probes.len()))?;
    for service in &status.services {
        out.line(format_args!(
            "service {}: processes {:?}, ports {:?}",
            service.name, service.pids, service.ports
        ))?;
    }
    for missing in &status.missing {
        out.line(format_args!("not ready: {missing}"))?;
    }
    Ok(())
}

fn line(probe: &ProbeVerdict) -> String {
    let cost = probe.cost_class.map_or("-".into(), json::name);
    let (state, places) = (json::name(probe.state), probe.attached);
    let mut line = format!("{state:<12} {:<20} {cost:<12} {places:>3} {}", probe.program, probe.target);
    if let Some(reason) = &probe.reason {
        line.push_str(": ");
        line.push_str(reason);
    }
    line
}
