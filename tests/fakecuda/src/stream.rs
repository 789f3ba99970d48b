//! Streams: operations in order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::abi::{Out, give};
use crate::context::{Totals, current};
use crate::error::Error;
use crate::event::{self, When};
use crate::handles::{Handles, lock};
use crate::timeline::{Line, Op};
use crate::{clock, device, history, truth};

/// How a stream and the legacy default stream wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The legacy default stream itself.
    Legacy,
    /// Each waits for what the other was given before.
    Blocking,
    /// Not at all.
    NonBlocking,
}

/// A stream.
pub(crate) struct Stream {
    /// Number of the stream, never used again.
    pub id: u64,
    /// What the streams of the context share.
    pub totals: Arc<Totals>,
    /// Its part of the time line.
    pub line: Mutex<Line>,
    /// Relation to the legacy stream.
    pub kind: Kind,
}

pub(crate) static STREAMS: Handles<Stream> = Handles::new(0x7500_0000_0000);

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_STREAM_LEGACY`.
const LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: u64 = 2;

/// What handle 0 means: it depends on the variant of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Default {
    /// Functions without suffix.
    Legacy,
    /// `_ptsz` and `_ptds`.
    PerThread,
}

/// The stream of a handle.
pub(crate) fn resolve(handle: u64, default: Default) -> Result<Arc<Stream>, Error> {
    let context = current()?;
    match (handle, default) {
        (LEGACY, _) | (0, Default::Legacy) => Ok(Arc::clone(&context.legacy)),
        (PER_THREAD, _) | (0, Default::PerThread) => Ok(context.per_thread()),
        _ => STREAMS.get(handle),
    }
}

impl Stream {
    pub(crate) fn create(kind: Kind, totals: Arc<Totals>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { id, totals, line: Mutex::default(), kind })
    }

    /// What it is given is collected.
    pub(crate) fn is_capturing(&self) -> bool {
        lock(&self.line).capture.is_some()
    }

    /// Gives the stream an operation; blocks while its queue is full. Returns the operation's end, or `None` when it
    /// became part of a capture.
    pub(crate) fn submit(&self, op: Op) -> Result<Option<u64>, Error> {
        let duration = op.duration(device::config());
        loop {
            let mut line = lock(&self.line);
            if let Some(capture) = &line.capture {
                return capture.add(op, duration).map(|()| None);
            }
            let now = clock::now();
            let room_at = line.room_at(now);
            if room_at == 0 {
                return Ok(Some(self.place(&mut line, now, op, duration)));
            }
            drop(line);
            clock::sleep_until(room_at);
        }
    }

    fn place(&self, line: &mut Line, now: u64, op: Op, duration: u64) -> u64 {
        let engine = op.engine(device::shared_device(self.totals.device));
        let end = engine.take(self.reach(line, now), duration);
        history::placed(self.totals.device, op, [now, end - duration, end]);
        line.push(end);
        self.publish(end);
        truth::executed(op);
        end
    }

    /// When everything that the next operation must wait for is done.
    pub(crate) fn reach(&self, line: &Line, now: u64) -> u64 {
        let others = match self.kind {
            Kind::Legacy => self.totals.blocking.load(Ordering::Acquire),
            Kind::Blocking => self.totals.legacy.load(Ordering::Acquire),
            Kind::NonBlocking => 0,
        };
        now.max(line.ready).max(others)
    }

    /// Tells the context how far the stream reaches.
    fn publish(&self, end: u64) {
        self.totals.all.fetch_max(end, Ordering::AcqRel);
        match self.kind {
            Kind::Legacy => self.totals.legacy.fetch_max(end, Ordering::AcqRel),
            Kind::Blocking => self.totals.blocking.fetch_max(end, Ordering::AcqRel),
            Kind::NonBlocking => 0,
        };
    }

    /// When the stream is idle, as of now. Asking that of a capturing stream spoils the capture.
    fn idle_at(&self) -> Result<u64, Error> {
        let line = lock(&self.line);
        if let Some(capture) = &line.capture {
            capture.invalidate();
            return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
        }
        match self.kind {
            Kind::Legacy => Ok(self.reach(&line, 0)),
            Kind::Blocking | Kind::NonBlocking => Ok(line.ready),
        }
    }

    fn synchronize(&self) -> Result<(), Error> {
        clock::sleep_until(self.idle_at()?);
        truth::synchronized();
        Ok(())
    }

    fn query(&self) -> Result<(), Error> {
        if self.idle_at()? <= clock::now() { Ok(()) } else { Err(Error::NOT_READY) }
    }

    /// What comes next waits for the event as it is now.
    fn wait_event(self: &Arc<Self>, event: u64) -> Result<(), Error> {
        match event::EVENTS.get(event)?.when() {
            When::Never => Ok(()),
            When::Captured(capture) => capture.join(self),
            When::At(time) => {
                let mut line = lock(&self.line);
                if let Some(capture) = &line.capture {
                    capture.invalidate();
                    return Err(Error::STREAM_CAPTURE_ISOLATION);
                }
                line.ready = line.ready.max(time);
                self.publish(time);
                Ok(())
            }
        }
    }
}

fn make(stream: Out<'_, u64>, flags: u32) -> Result<(), Error> {
    let kind = match flags {
        0 => Kind::Blocking,
        NON_BLOCKING => Kind::NonBlocking,
        _ => return Err(Error::INVALID_VALUE),
    };
    let stream = stream.ok_or(Error::INVALID_VALUE)?;
    give(Some(stream), STREAMS.insert(Stream::create(kind, Arc::clone(&current()?.totals))))
}

export! {
    /// A new stream.
    fn cuStreamCreate(stream: Out<'_, u64>, flags: u32) {
        make(stream, flags)
    }

    /// A new stream. All have the same priority.
    fn cuStreamCreateWithPriority(stream: Out<'_, u64>, flags: u32, _priority: i32) {
        make(stream, flags)
    }

    /// Destroys it; what it was given is still done.
    fn cuStreamDestroy_v2(stream: u64) {
        STREAMS.remove(stream).map(drop)
    }

    /// Waits until the stream is idle.
    fn cuStreamSynchronize(stream: u64) {
        resolve(stream, Default::Legacy)?.synchronize()
    }

    /// Waits until the stream is idle.
    fn cuStreamSynchronize_ptsz(stream: u64) {
        resolve(stream, Default::PerThread)?.synchronize()
    }

    /// Is the stream idle?
    fn cuStreamQuery(stream: u64) {
        resolve(stream, Default::Legacy)?.query()
    }

    /// Is the stream idle?
    fn cuStreamQuery_ptsz(stream: u64) {
        resolve(stream, Default::PerThread)?.query()
    }

    /// Makes the stream wait for an event. Flags are not looked at.
    fn cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) {
        resolve(stream, Default::Legacy)?.wait_event(event)
    }

    /// Makes the stream wait for an event. Flags are not looked at.
    fn cuStreamWaitEvent_ptsz(stream: u64, event: u64, _flags: u32) {
        resolve(stream, Default::PerThread)?.wait_event(event)
    }
}
