//! Every call of NVML goes through here: counted, timed, and known by name while it runs.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nvml_wrapper::error::NvmlError;

use super::error::label;
use crate::health::{HangingCall, NvmlHealth};

/// The calls of one thread, as others may see them. The lock is never held during a call.
#[derive(Debug)]
pub(super) struct Calls {
    /// After how long a call hangs.
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    health: NvmlHealth,
    running: Option<Running>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    function: &'static str,
    since: Instant,
    /// It was said that it hangs.
    said: bool,
}

impl Calls {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, state: Mutex::default() }
    }

    /// Calls `function` of NVML through `call`.
    pub(super) fn run<T>(
        &self,
        function: &'static str,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<T, NvmlError> {
        let since = Instant::now();
        self.lock().running = Some(Running { function, since, said: false });
        let outcome = call();
        self.returned(function, since.elapsed(), outcome.as_ref().err());
        outcome
    }

    fn returned(&self, function: &'static str, took: Duration, error: Option<&NvmlError>) {
        let mut state = self.lock();
        let said = state.running.take().is_some_and(|running| running.said);
        let call = state.health.calls.entry(function).or_default();
        call.calls += 1;
        call.seconds += took.as_secs_f64();
        call.longest_seconds = call.longest_seconds.max(took.as_secs_f64());
        if let Some(error) = error {
            *call.errors.entry(label(error)).or_default() += 1;
        }
        drop(state);
        if said {
            tracing::info!(function, seconds = took.as_secs(), "the hanging call of NVML has returned");
        }
    }

    /// Counts an observation that nobody took.
    pub(super) fn drop_observation(&self) {
        self.lock().health.observations_dropped += 1;
    }

    /// How it stands; says so, once, when a call hangs.
    pub(super) fn health(&self) -> NvmlHealth {
        let mut state = self.lock();
        let mut health = state.health.clone();
        if let Some(running) = &mut state.running
            && running.since.elapsed() >= self.patience
        {
            let Running { function, since, said } = *running;
            running.said = true;
            health.hanging = Some(HangingCall { function, age_seconds: since.elapsed().as_secs_f64() });
            drop(state);
            if !said {
                tracing::warn!(
                    function,
                    "a call of NVML does not return: numbers of the GPUs are missing until it does"
                );
            }
        }
        health
    }

    /// The data is whole after every statement, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn calls_are_counted_with_their_errors() {
        let calls = Calls::new(Duration::from_mins(1));
        assert_eq!(calls.run("f", || Ok(7)).unwrap(), 7);
        for error in [NvmlError::Timeout, NvmlError::Unknown, NvmlError::Timeout] {
            calls.run("f", || Err::<(), _>(error)).unwrap_err();
        }
        let health = calls.health();
        assert_eq!((health.hanging, health.calls["f"].calls), (None, 4));
        assert_eq!(health.calls["f"].errors, [("timeout", 2), ("unknown", 1)].into());
        assert!(health.calls["f"].seconds >= health.calls["f"].longest_seconds);
    }

    #[test]
    fn a_call_that_does_not_return_is_known_by_name_and_age() {
        let calls = Calls::new(Duration::ZERO);
        let (to, hanging) = channel::<()>();
        std::thread::scope(|scope| {
            let (started, is_running) = channel();
            let calls = &calls;
            scope.spawn(move || {
                let wait = || {
                    started.send(()).unwrap();
                    hanging.recv().map_err(|_| NvmlError::Unknown)
                };
                calls.run("g", wait).unwrap();
            });
            is_running.recv().unwrap();
            assert_eq!(calls.health().hanging.unwrap().function, "g");
            to.send(()).unwrap();
        });
        let health = calls.health();
        assert_eq!((health.hanging, health.calls["g"].calls), (None, 1));
    }
}
