//! Events: marks in streams.

use std::sync::{Arc, Mutex};

use crate::abi::{Out, give};
use crate::context::current;
use crate::error::Error;
use crate::graph::Capture;
use crate::handles::{Handles, lock};
use crate::stream::{self, Default, Stream};
use crate::{clock, truth};

/// An event.
pub(crate) struct Event {
    /// Context it was made in.
    pub context: u64,
    flags: u32,
    when: Mutex<When>,
}

/// When the work before the mark is done.
#[derive(Clone)]
pub(crate) enum When {
    /// Never recorded: nothing to wait for.
    Never,
    /// `CLOCK_MONOTONIC`, ns.
    At(u64),
    /// The mark is in a capture; it happens when the graph runs.
    Captured(Arc<Capture>),
}

pub(crate) static EVENTS: Handles<Event> = Handles::new(0x7e00_0000_0000);

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;
/// Default, blocking sync, disable timing, interprocess. How a wait sleeps does not depend on them here.
const KNOWN_FLAGS: u32 = 7;

impl Event {
    /// As of now.
    pub(crate) fn when(&self) -> When {
        lock(&self.when).clone()
    }

    /// `None` when it was never recorded.
    fn time(&self) -> Result<Option<u64>, Error> {
        match self.when() {
            When::Never => Ok(None),
            When::At(time) => Ok(Some(time)),
            When::Captured(_) => Err(Error::CAPTURED_EVENT),
        }
    }

    /// For measuring: it must be recorded, have timing, and be over.
    fn stamp(&self, now: u64) -> Result<u64, Error> {
        if self.flags & DISABLE_TIMING != 0 {
            return Err(Error::INVALID_HANDLE);
        }
        let time = self.time()?.ok_or(Error::INVALID_HANDLE)?;
        if time <= now { Ok(time) } else { Err(Error::NOT_READY) }
    }
}

fn record(event: u64, stream: &Stream) -> Result<(), Error> {
    let event = EVENTS.get(event)?;
    let line = lock(&stream.line);
    let when = match &line.capture {
        Some(capture) => When::Captured(Arc::clone(capture)),
        None => When::At(stream.reach(&line, clock::now())),
    };
    // The stream stays locked: two records of one event on one stream must not cross.
    *lock(&event.when) = when;
    truth::recorded_event();
    Ok(())
}

export! {
    /// A new event.
    fn cuEventCreate(event: Out<'_, u64>, flags: u32) {
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let event = event.ok_or(Error::INVALID_VALUE)?;
        let context = current()?.totals.id;
        give(Some(event), EVENTS.insert(Arc::new(Event { context, flags, when: Mutex::new(When::Never) })))
    }

    /// Destroys it; who waits for it already is not disturbed.
    fn cuEventDestroy_v2(event: u64) {
        EVENTS.remove(event).map(drop)
    }

    /// Marks the present end of a stream.
    fn cuEventRecord(event: u64, stream: u64) {
        record(event, &*stream::resolve(stream, Default::Legacy)?)
    }

    /// Marks the present end of a stream.
    fn cuEventRecord_ptsz(event: u64, stream: u64) {
        record(event, &*stream::resolve(stream, Default::PerThread)?)
    }

    /// Marks the present end of a stream. Flags are not looked at.
    fn cuEventRecordWithFlags(event: u64, stream: u64, _flags: u32) {
        record(event, &*stream::resolve(stream, Default::Legacy)?)
    }

    /// Marks the present end of a stream. Flags are not looked at.
    fn cuEventRecordWithFlags_ptsz(event: u64, stream: u64, _flags: u32) {
        record(event, &*stream::resolve(stream, Default::PerThread)?)
    }

    /// Waits until the work before the mark is done.
    fn cuEventSynchronize(event: u64) {
        let time = EVENTS.get(event)?.time()?;
        clock::sleep_until(time.unwrap_or(0));
        truth::synchronized();
        Ok(())
    }

    /// Is the work before the mark done?
    fn cuEventQuery(event: u64) {
        let time = EVENTS.get(event)?.time()?;
        if time.unwrap_or(0) <= clock::now() { Ok(()) } else { Err(Error::NOT_READY) }
    }

    /// Milliseconds between two marks.
    fn cuEventElapsedTime(milliseconds: Out<'_, f32>, start: u64, end: u64) {
        let (start, end, now) = (EVENTS.get(start)?, EVENTS.get(end)?, clock::now());
        let (start, end) = (start.stamp(now)?, end.stamp(now)?);
        #[expect(clippy::cast_possible_truncation, reason = "the driver's own type")]
        let elapsed = ((end as f64 - start as f64) / 1e6) as f32;
        give(milliseconds, elapsed)
    }
}
