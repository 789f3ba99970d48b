//! NVML: what the driver tells of the GPUs, asked on a thread of its own.
//!
//! A call of NVML can take long, and can hang for ever in the driver, where nothing can end it. So nothing waits for
//! that thread: not the pipeline, which gets observations as they come, and not the end of the agent. NVML also keeps
//! the driver's files open, which stands in the way of an upgrade of the driver and of changes of MIG: [`Control::release`]
//! closes it until [`Control::resume`].
//!
//! Calls take a lock in the driver that applications need too. Use and processes are asked for every
//! [`Settings::poll_interval`], everything else every [`Settings::slow_interval`], and both less often when the calls
//! take long: at most one part in [`Settings::max_share`] of the time is spent in them.
//!
//! | module | knows |
//! |---|---|
//! | `library` | where the library is |
//! | `calls` | which call runs, and what calls took |
//! | `error` | what an error means |
//! | `numbers` | one device: what it is asked for, and what became of it |
//! | `list` | which devices there are |
//! | `poller` | when |

mod calls;
mod error;
mod library;
mod list;
mod numbers;
mod poller;
mod processes;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender},
    },
    time::Duration,
};

pub use error::NvmlUnavailable;
pub use library::find;

use crate::health::NvmlHealth;
use calls::Calls;
use poller::{Command, Poller};

/// How long the end of the agent waits for a call that runs.
const GRACE: Duration = Duration::from_secs(1);

/// How NVML is asked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// It must answer at the start; otherwise it is tried again for as long as it takes.
    pub required: bool,
    /// The library; searched for when absent.
    pub library: Option<PathBuf>,
    /// Time between two looks at use, memory and processes.
    pub poll_interval: Duration,
    /// Time between two looks at everything else.
    pub slow_interval: Duration,
    /// Most of the time that is spent in calls, as one part in so many.
    pub max_share: u32,
    /// First wait before it is tried again; doubles up to [`Settings::max_retry`].
    pub retry: Duration,
    /// Longest such wait.
    pub max_retry: Duration,
    /// After how long a call hangs, and how long a required start may take.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            required: false,
            library: None,
            poll_interval: Duration::from_secs(1),
            slow_interval: Duration::from_secs(10),
            max_share: 50,
            retry: Duration::from_secs(5),
            max_retry: Duration::from_mins(1),
            // Without persistence mode a start takes seconds.
            patience: Duration::from_secs(10),
        }
    }
}

/// The thread that asks; dropped, it ends with the call that runs.
#[derive(Debug)]
pub struct Nvml {
    control: Control,
    /// Closed by the thread when it ends.
    ended: Receiver<()>,
    calls: Arc<Calls>,
}

/// What can be asked of it while it runs.
#[derive(Clone, Debug)]
pub struct Control(Sender<Command>);

impl Control {
    /// Closes NVML: as soon as the call that runs has returned, nothing of the driver is held.
    pub fn release(&self) {
        self.send(Command::Release);
    }

    /// Opens it again.
    pub fn resume(&self) {
        self.send(Command::Resume);
    }

    fn send(&self, command: Command) {
        // There is nobody to tell when the thread has ended.
        let _ = self.0.send(command);
    }
}

impl Nvml {
    /// Starts the thread; what NVML tells goes to `observations` as records, which are dropped, counted, when they are
    /// not taken. Where it is required, waits until it has answered.
    pub fn start(settings: Settings, observations: SyncSender<Vec<u8>>) -> Result<Self, NvmlUnavailable> {
        let calls = Arc::new(Calls::new(settings.patience));
        let (to, commands) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let (answer, first) = mpsc::channel();
        let (required, patience) = (settings.required, settings.patience);
        let mut poller = Poller::new(settings, Arc::clone(&calls), commands, observations, answer);
        let body = move || {
            poller.run();
            drop(end);
        };
        std::thread::Builder::new().name("nvml".into()).spawn(body).map_err(NvmlUnavailable::Thread)?;
        let this = Self { control: Control(to), ended, calls };
        if required {
            match first.recv_timeout(patience) {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => return Err(NvmlUnavailable::Refused(reason)),
                Err(_) => return Err(NvmlUnavailable::Silent { seconds: patience.as_secs() }),
            }
        }
        Ok(this)
    }

    /// For whoever releases and resumes it.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What it costs, and whether it hangs.
    pub fn health(&self) -> NvmlHealth {
        self.calls.health()
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        self.control.send(Command::Stop);
        if self.ended.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("a call of NVML does not return; the agent ends without it");
        }
    }
}
