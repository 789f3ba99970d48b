//! Sets of events: XID errors, each given once to every set that was there when it came.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::enter::{INVALID_ARGUMENT, NOT_SUPPORTED, Out, Return, TIMEOUT, enter, give, on_device};
use crate::handle::Handle;
use crate::state::{self, State};

/// `nvmlEventTypeXidCriticalError`.
const XID: u64 = 8;

/// `nvmlEventData_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventData {
    /// Where.
    pub device: Handle,
    /// What: one bit.
    pub event_type: u64,
    /// The XID.
    pub data: u64,
    /// All ones.
    pub gpu_instance: u32,
    /// All ones.
    pub compute_instance: u32,
}

/// How many XIDs of each registered device a set has given, by the place of the GPU.
type Given = BTreeMap<usize, usize>;

static SETS: Mutex<BTreeMap<usize, Given>> = Mutex::new(BTreeMap::new());

fn sets() -> MutexGuard<'static, BTreeMap<usize, Given>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new, empty set.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetCreate(set: Out<'_, usize>) -> Return {
    enter("nvmlEventSetCreate", |_| {
        let mut sets = sets();
        let id = sets.last_key_value().map_or(1, |(last, _)| last + 1);
        sets.insert(id, Given::new());
        give(set, id)
    })
}

/// Forgets a set.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(set: usize) -> Return {
    enter("nvmlEventSetFree", |_| sets().remove(&set).map(|_| ()).ok_or(INVALID_ARGUMENT))
}

/// Adds a GPU to a set; XIDs from before are not given.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(device: Handle, types: u64, set: usize) -> Return {
    on_device("nvmlDeviceRegisterEvents", device, |found| {
        if types != XID {
            return Err(NOT_SUPPORTED);
        }
        let place = device.place().ok_or(NOT_SUPPORTED)?;
        sets().get_mut(&set).ok_or(INVALID_ARGUMENT)?.insert(place, found.xids.len());
        Ok(())
    })
}

/// The next event of a set, waited for at most so many milliseconds.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetWait_v2(set: usize, data: Out<'_, EventData>, timeout_ms: u32) -> Return {
    enter("nvmlEventSetWait_v2", |state| {
        let until = Instant::now() + Duration::from_millis(timeout_ms.into());
        let mut next = next(set, state)?;
        while next.is_none() && Instant::now() < until {
            sleep(Duration::from_millis(1));
            next = reread().map_or(Ok(None), |state| self::next(set, &state))?;
        }
        give(data, next.ok_or(TIMEOUT)?)
    })
}

fn reread() -> Option<State> {
    State::read(&state::path()?).ok()
}

fn next(set: usize, state: &State) -> Result<Option<EventData>, Return> {
    let mut sets = sets();
    let given = sets.get_mut(&set).ok_or(INVALID_ARGUMENT)?;
    for (&place, given) in given {
        let Some(&xid) = state.devices.get(place).and_then(|device| device.xids.get(*given)) else {
            continue;
        };
        *given += 1;
        let (device, none) = (Handle::gpu(place), u32::MAX);
        let event =
            EventData { device, event_type: XID, data: xid, gpu_instance: none, compute_instance: none };
        return Ok(Some(event));
    }
    Ok(None)
}
