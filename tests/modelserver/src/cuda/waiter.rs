//! A thread that waits for events, so that the one that launches need not know how.

use std::ffi::c_uint;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::{CudaError, Event, Raw, check, name};
use crate::clock::{Stamp, stamped};

/// `cuEventSynchronize`.
type Synchronize = unsafe extern "C" fn(Raw) -> c_uint;
type Answer = (Stamp, Result<(), CudaError>);

/// The thread's other side.
pub(crate) struct Waiter {
    events: Sender<Sent>,
    answers: Receiver<Answer>,
}

/// An event on its way to another thread.
struct Sent(Event);

// SAFETY: a handle of the driver, which takes it from any thread.
unsafe impl Send for Sent {}

impl Waiter {
    pub(super) fn start(synchronize: Synchronize) -> Self {
        let ((events, incoming), (outgoing, answers)) = (channel(), channel());
        thread::spawn(move || work(synchronize, &incoming, &outgoing));
        Self { events, answers }
    }

    /// Waits until the thread has waited for the event; the readings are the thread's, around its own call.
    pub(crate) fn wait(&self, event: Event) -> Answer {
        let gone = || (Stamp::default(), Err(CudaError::Open("the waiting thread has ended".to_owned())));
        if self.events.send(Sent(event)).is_err() {
            return gone();
        }
        self.answers.recv().unwrap_or_else(|_| gone())
    }
}

fn work(synchronize: Synchronize, events: &Receiver<Sent>, answers: &Sender<Answer>) {
    for Sent(event) in events {
        // SAFETY: the function has this signature, and the event lives as long as the process.
        let (stamp, code) = stamped(|| unsafe { synchronize(event.0) });
        if answers.send((stamp, check(name::event_synchronize, code))).is_err() {
            return;
        }
    }
}
