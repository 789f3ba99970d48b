//! Contexts, and which one is current in each thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::abi::{Out, give};
use crate::config::MAX_DEVICES;
use crate::error::Error;
use crate::handles::{Handles, lock};
use crate::stream::{Kind, STREAMS, Stream};
use crate::{clock, device, event, memory, truth};

/// A context.
pub(crate) struct Context {
    /// What its streams share.
    pub totals: Arc<Totals>,
    /// The stream that handle 0 means in functions without `_ptsz`.
    pub legacy: Arc<Stream>,
    handle: OnceLock<u64>,
    destroyed: AtomicBool,
}

/// How far the streams of a context reach on the time line, ns.
pub(crate) struct Totals {
    /// Number of the context, never used again.
    pub id: u64,
    /// Its device.
    pub device: usize,
    /// All streams.
    pub all: AtomicU64,
    /// Streams that the legacy stream waits for.
    pub blocking: AtomicU64,
    /// The legacy stream, for which those wait.
    pub legacy: AtomicU64,
}

static CONTEXTS: Handles<Context> = Handles::new(0x7c00_0000_0000);
static PRIMARY: Mutex<[Option<Primary>; MAX_DEVICES]> = Mutex::new([const { None }; MAX_DEVICES]);

struct Primary {
    context: Arc<Context>,
    retained: u32,
}

thread_local! {
    static STACK: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
    /// Per-thread default streams, by [`Totals::id`].
    static OWN_STREAMS: RefCell<HashMap<u64, Arc<Stream>>> = RefCell::default();
}

/// The calling thread's context.
pub(crate) fn current() -> Result<Arc<Context>, Error> {
    let top = STACK.with_borrow(|stack| stack.last().cloned());
    top.filter(|c| !c.destroyed.load(Ordering::Acquire)).ok_or(Error::INVALID_CONTEXT)
}

impl Context {
    fn create(device: usize) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let totals = Arc::new(Totals {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            device,
            all: AtomicU64::new(0),
            blocking: AtomicU64::new(0),
            legacy: AtomicU64::new(0),
        });
        let legacy = Stream::create(Kind::Legacy, Arc::clone(&totals));
        let (handle, destroyed) = (OnceLock::new(), AtomicBool::new(false));
        let context = Arc::new(Self { totals, legacy, handle, destroyed });
        let _ = context.handle.set(CONTEXTS.insert(Arc::clone(&context)));
        context
    }

    fn handle(&self) -> u64 {
        self.handle.get().copied().unwrap_or(0)
    }

    /// The calling thread's own default stream.
    pub(crate) fn per_thread(&self) -> Arc<Stream> {
        let create = || Stream::create(Kind::Blocking, Arc::clone(&self.totals));
        OWN_STREAMS.with_borrow_mut(|own| Arc::clone(own.entry(self.totals.id).or_insert_with(create)))
    }

    /// Streams, events and memory go with their context.
    fn destroy(&self) {
        self.destroyed.store(true, Ordering::Release);
        let id = self.totals.id;
        STREAMS.remove_all(|stream| stream.totals.id == id);
        event::EVENTS.remove_all(|event| event.context == id);
        memory::release_context(id);
        let _ = CONTEXTS.remove(self.handle());
    }
}

fn set_top(context: u64) -> Result<(), Error> {
    let context = (context != 0).then(|| CONTEXTS.get(context)).transpose();
    let context = context.map_err(|_| Error::INVALID_CONTEXT)?;
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        stack.extend(context);
    });
    Ok(())
}

fn create(context: Out<'_, u64>, device: i32) -> Result<(), Error> {
    let created = Context::create(device::index(device)?);
    give(context, created.handle())?;
    STACK.with_borrow_mut(|stack| stack.push(created));
    Ok(())
}

fn release_primary(device: usize) -> Result<(), Error> {
    let mut primary = lock(&PRIMARY);
    let slot = &mut primary[device];
    let held = slot.as_mut().ok_or(Error::INVALID_CONTEXT)?;
    held.retained -= 1;
    if held.retained == 0
        && let Some(last) = slot.take()
    {
        last.context.destroy();
    }
    Ok(())
}

export! {
    /// The context that the device's users share.
    fn cuDevicePrimaryCtxRetain(context: Out<'_, u64>, device: i32) {
        let device = device::index(device)?;
        let mut primary = lock(&PRIMARY);
        let held = primary[device].get_or_insert_with(|| Primary { context: Context::create(device), retained: 0 });
        held.retained += 1;
        give(context, held.context.handle())
    }

    /// The last release destroys it.
    fn cuDevicePrimaryCtxRelease_v2(device: i32) {
        release_primary(device::index(device)?)
    }

    /// Destroys it, whoever holds it.
    fn cuDevicePrimaryCtxReset_v2(device: i32) {
        let slot = lock(&PRIMARY)[device::index(device)?].take();
        if let Some(primary) = slot {
            primary.context.destroy();
        }
        Ok(())
    }

    /// A new context, made current. Flags are not looked at.
    fn cuCtxCreate_v2(context: Out<'_, u64>, _flags: u32, device: i32) {
        create(context, device)
    }

    /// The same. Affinities are not looked at.
    fn cuCtxCreate_v3(
        context: Out<'_, u64>, _affinities: *const c_void, _count: i32, _flags: u32, device: i32,
    ) {
        create(context, device)
    }

    /// The same. Parameters are not looked at.
    fn cuCtxCreate_v4(context: Out<'_, u64>, _parameters: *const c_void, _flags: u32, device: i32) {
        create(context, device)
    }

    /// Destroys a context that `cuCtxCreate` made; it leaves the calling thread's stack if it is on top.
    fn cuCtxDestroy_v2(context: u64) {
        let context = CONTEXTS.get(context).map_err(|_| Error::INVALID_CONTEXT)?;
        STACK.with_borrow_mut(|stack| stack.pop_if(|top| Arc::ptr_eq(top, &context)));
        context.destroy();
        Ok(())
    }

    /// Replaces the top of the calling thread's stack; null only removes it.
    fn cuCtxSetCurrent(context: u64) {
        set_top(context)
    }

    /// The top of the stack, null when it is empty.
    fn cuCtxGetCurrent(context: Out<'_, u64>) {
        give(context, STACK.with_borrow(|stack| stack.last().map_or(0, |top| top.handle())))
    }

    /// Makes a context current on top of the others.
    fn cuCtxPushCurrent_v2(context: u64) {
        let context = CONTEXTS.get(context).map_err(|_| Error::INVALID_CONTEXT)?;
        STACK.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }

    /// Removes the top of the stack. The caller may not care which it was.
    fn cuCtxPopCurrent_v2(context: Out<'_, u64>) {
        let top = STACK.with_borrow_mut(Vec::pop).ok_or(Error::INVALID_CONTEXT)?;
        if let Some(context) = context {
            *context = top.handle();
        }
        Ok(())
    }

    /// Device of the current context.
    fn cuCtxGetDevice(device: Out<'_, i32>) {
        give(device, device::number(current()?.totals.device)?)
    }

    /// Waits for everything submitted to a context; null is the current one.
    fn cuCtxSynchronize_v2(context: u64) {
        let context = if context == 0 { current() } else { CONTEXTS.get(context) };
        let context = context.map_err(|_| Error::INVALID_CONTEXT)?;
        clock::sleep_until(context.totals.all.load(Ordering::Acquire));
        truth::synchronized();
        Ok(())
    }

    /// Waits for everything submitted to the current context.
    fn cuCtxSynchronize() {
        let context = current()?;
        clock::sleep_until(context.totals.all.load(Ordering::Acquire));
        truth::synchronized();
        Ok(())
    }
}
