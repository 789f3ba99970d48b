//! When NVML is opened, asked and closed.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError},
    },
    time::{Duration, Instant},
};

use nvml_wrapper::{Nvml, error::NvmlError};
use rustix::time::{ClockId, clock_gettime};

use super::{Settings, calls::Calls, library, list::list, numbers::Gpu, processes::Processes};
use crate::decode::{NvmlSeen, NvmlSource, NvmlState, Observation};

/// How often what was observed may be missed before it is no more taken for the present.
const VALID_ROUNDS: u32 = 3;

/// What the thread is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Close NVML.
    Release,
    /// Open it again.
    Resume,
    /// Close it, and end.
    Stop,
}

/// Why NVML is closed, when nobody asked for that.
#[derive(Debug)]
struct Unusable(String);

/// Everything that the thread has.
pub(super) struct Poller {
    settings: Settings,
    calls: Arc<Calls>,
    commands: Receiver<Command>,
    observations: SyncSender<Vec<u8>>,
    /// Takes the outcome of the first try to open it.
    first: Option<Sender<Result<(), String>>>,
    /// Why it was not usable when it was last said.
    said: Option<String>,
}

impl Poller {
    pub(super) fn new(
        settings: Settings,
        calls: Arc<Calls>,
        commands: Receiver<Command>,
        observations: SyncSender<Vec<u8>>,
        first: Sender<Result<(), String>>,
    ) -> Self {
        Self { settings, calls, commands, observations, first: Some(first), said: None }
    }

    /// Until it is told to stop, or nobody takes what it tells.
    pub(super) fn run(&mut self) {
        let mut retry = self.settings.retry;
        loop {
            let opened = Instant::now();
            let command = match self.open() {
                Ok(command) => command,
                Err(unusable) => {
                    self.unavailable(unusable);
                    if opened.elapsed() > self.settings.max_retry {
                        retry = self.settings.retry;
                    }
                    let command = self.wait(Instant::now() + retry);
                    retry = (retry * 2).min(self.settings.max_retry);
                    command
                }
            };
            if command == Some(Command::Stop) || command == Some(Command::Release) && !self.released() {
                return;
            }
        }
    }

    /// Waits while it is released; `false` when it is to stop.
    fn released(&mut self) -> bool {
        tracing::info!("NVML is released: nothing of the driver is held until SIGUSR2");
        loop {
            self.tell_source(NvmlSource { state: NvmlState::Released, ..NvmlSource::default() });
            // Told again now and then, since it can be dropped.
            match self.wait(Instant::now() + self.settings.slow_interval) {
                Some(Command::Stop) => return false,
                Some(Command::Resume) => return true,
                Some(Command::Release) | None => {}
            }
        }
    }

    /// Opens NVML and asks it until a command ends that.
    fn open(&mut self) -> Result<Option<Command>, Unusable> {
        let opened = self.try_open();
        if let Some(first) = self.first.take() {
            // Whoever started this may not have waited.
            let _ = first.send(opened.as_ref().map(|_| ()).map_err(|unusable| unusable.0.clone()));
        }
        let (nvml, source) = opened?;
        let driver = source.driver_version.as_deref().unwrap_or("?");
        tracing::info!(library = source.library, driver, "NVML is open");
        self.said = None;
        let outcome = self.ask(&nvml, &source);
        // It is closed either way; that it says otherwise is counted.
        let _ = self.calls.run("nvmlShutdown", || nvml.shutdown());
        outcome.map(Some).map_err(|error| Unusable(error.to_string()))
    }

    fn try_open(&self) -> Result<(Nvml, NvmlSource), Unusable> {
        let library = self.library()?;
        let open = || Nvml::builder().lib_path(library.as_os_str()).init();
        let nvml = self
            .calls
            .run("nvmlInit_v2", open)
            .map_err(|error| Unusable(format!("{}: {error}", library.display())))?;
        let cuda = self.calls.run("nvmlSystemGetCudaDriverVersion_v2", || nvml.sys_cuda_driver_version());
        let source = NvmlSource {
            state: NvmlState::On,
            reason: None,
            library: Some(library.display().to_string()),
            driver_version: self.calls.run("nvmlSystemGetDriverVersion", || nvml.sys_driver_version()).ok(),
            cuda_version: cuda.ok().map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
        };
        Ok((nvml, source))
    }

    fn library(&self) -> Result<PathBuf, Unusable> {
        let given = self.settings.library.clone();
        given.or_else(|| library::find("/".as_ref())).ok_or_else(|| {
            Unusable("libnvidia-ml.so.1 is in none of the folders where drivers put it".into())
        })
    }

    /// Asks until a command ends that, or NVML is gone.
    fn ask(&mut self, nvml: &Nvml, source: &NvmlSource) -> Result<Command, NvmlError> {
        let calls = Arc::clone(&self.calls);
        let (mut gpus, mut processes) = (Vec::new(), Processes::default());
        let mut fast = Pace::new(self.settings.poll_interval, self.settings.max_share);
        let mut slow = Pace::new(self.settings.slow_interval, self.settings.max_share);
        loop {
            if let Some(round) = slow.due() {
                self.tell_source(source.clone());
                gpus = list(nvml, &calls, gpus)?;
                self.tell_devices(&gpus);
                self.conditions(&mut gpus, slow.valid_ms())?;
                slow.done(round);
            }
            if let Some(round) = fast.due() {
                self.usages(&mut gpus, &mut processes, fast.valid_ms())?;
                fast.done(round);
            }
            match self.wait(fast.next.min(slow.next)) {
                Some(Command::Resume) | None => {}
                Some(command) => return Ok(command),
            }
        }
    }

    fn conditions(&self, gpus: &mut [Gpu<'_>], valid_ms: u64) -> Result<(), NvmlError> {
        for gpu in gpus {
            let condition = gpu.condition(&self.calls, valid_ms)?;
            // What it refused and whether it is lost is known only now.
            self.tell(NvmlSeen::Device(gpu.seen.clone()));
            if let Some(condition) = condition.filter(|_| gpu.seen.lost.is_none()) {
                self.tell(NvmlSeen::Condition(condition));
            }
        }
        Ok(())
    }

    fn usages(
        &self,
        gpus: &mut [Gpu<'_>],
        processes: &mut Processes,
        valid_ms: u64,
    ) -> Result<(), NvmlError> {
        for gpu in gpus {
            let before = gpu.seen.clone();
            let usage = gpu.usage(&self.calls, processes, valid_ms)?;
            let xids = gpu.xids(&self.calls)?;
            if gpu.seen != before {
                self.tell(NvmlSeen::Device(gpu.seen.clone()));
            }
            if gpu.seen.lost.is_none() {
                self.tell(NvmlSeen::Usage(usage));
            }
            for xid in xids {
                tracing::warn!(
                    uuid = gpu.seen.uuid,
                    index = gpu.seen.index,
                    xid,
                    "a GPU reports an error (XID)"
                );
                self.tell(NvmlSeen::Xid { uuid: gpu.seen.uuid.clone(), xid });
            }
        }
        processes.end_of_round();
        Ok(())
    }

    fn tell_devices(&self, gpus: &[Gpu<'_>]) {
        let uuids = gpus.iter().map(|gpu| gpu.seen.uuid.clone()).collect();
        self.tell(NvmlSeen::Devices { uuids });
    }

    fn unavailable(&mut self, Unusable(reason): Unusable) {
        if self.said.as_ref() != Some(&reason) {
            tracing::info!(reason, "NVML cannot be used, it is tried again; numbers of the GPUs are missing");
            self.said = Some(reason.clone());
        }
        let reason = Some(reason);
        self.tell_source(NvmlSource { state: NvmlState::Unavailable, reason, ..NvmlSource::default() });
    }

    fn tell_source(&self, source: NvmlSource) {
        self.tell(NvmlSeen::Source(source));
    }

    /// What nobody takes is dropped and counted: this thread must not wait while NVML is open. All but an XID, which
    /// is in the log, is told again.
    fn tell(&self, seen: NvmlSeen) {
        let record = Observation::Nvml(seen).to_record(monotonic_ns());
        if let Err(TrySendError::Full(_)) = self.observations.try_send(record) {
            self.calls.drop_observation();
        }
    }

    /// Waits for a command, at most until `end`.
    fn wait(&self, end: Instant) -> Option<Command> {
        match self.commands.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Command::Stop),
        }
    }
}

/// When something is done again: every interval, and less often when it takes long.
#[derive(Debug)]
struct Pace {
    interval: Duration,
    max_share: u32,
    /// Time from the last round to the next.
    planned: Duration,
    next: Instant,
}

impl Pace {
    fn new(interval: Duration, max_share: u32) -> Self {
        Self { interval, max_share, planned: interval, next: Instant::now() }
    }

    /// The time at which a round begins, if one is due.
    fn due(&self) -> Option<Instant> {
        Some(Instant::now()).filter(|now| *now >= self.next)
    }

    fn done(&mut self, began: Instant) {
        self.planned = self.interval.max(began.elapsed() * self.max_share);
        self.next = began + self.planned;
    }

    /// How long what is seen in this round can be taken for the present.
    fn valid_ms(&self) -> u64 {
        u64::try_from((self.planned * VALID_ROUNDS).as_millis()).unwrap_or(u64::MAX)
    }
}

pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_calls_are_made_less_often() {
        let began = Instant::now();
        let mut pace = Pace::new(Duration::from_secs(1), 50);
        pace.done(began);
        assert_eq!(pace.planned, Duration::from_secs(1));
        assert_eq!(pace.valid_ms(), 3000);
        pace.done(began.checked_sub(Duration::from_secs(2)).unwrap());
        assert!(pace.planned >= Duration::from_secs(100) && pace.planned < Duration::from_secs(110));
    }
}
