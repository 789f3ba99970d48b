//! The frame around every exported function.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::handle::Handle;
use crate::state::{self, Device, State};

/// Result code; 0 is success.
pub(crate) type Return = u32;

/// Where a result goes: a C pointer that may be null.
pub(crate) type Out<'a, T> = Option<&'a mut T>;

/// Result codes of `nvml.h` that this library gives by itself; the file may give any.
pub(crate) const UNINITIALIZED: Return = 1;
pub(crate) const INVALID_ARGUMENT: Return = 2;
pub(crate) const NOT_SUPPORTED: Return = 3;
pub(crate) const NOT_FOUND: Return = 6;
pub(crate) const INSUFFICIENT_SIZE: Return = 7;
pub(crate) const TIMEOUT: Return = 10;
pub(crate) const GPU_IS_LOST: Return = 15;
pub(crate) const ARGUMENT_VERSION_MISMATCH: Return = 25;
pub(crate) const UNKNOWN: Return = 999;

/// How often a hanging call looks whether it still hangs.
const LOOK: Duration = Duration::from_millis(5);

/// Calls of `nvmlInit` that no `nvmlShutdown` has answered.
pub(crate) static USERS: AtomicU32 = AtomicU32::new(0);

/// Writes a result through a C pointer.
pub(crate) fn give<T>(out: Out<'_, T>, value: T) -> Result<(), Return> {
    *out.ok_or(INVALID_ARGUMENT)? = value;
    Ok(())
}

/// A call that is not about a device.
pub(crate) fn enter(function: &str, body: impl FnOnce(&State) -> Result<(), Return>) -> Return {
    code(start(function, None).and_then(|state| body(&state)))
}

/// A call on a device.
pub(crate) fn on_device(
    function: &str,
    handle: Handle,
    body: impl FnOnce(&Device) -> Result<(), Return>,
) -> Return {
    code(start(function, Some(handle)).and_then(|state| {
        let device = handle.device(&state).ok_or(INVALID_ARGUMENT)?;
        if handle.is_lost(&state) {
            return Err(GPU_IS_LOST);
        }
        device.errors.get(function).map_or(Ok(()), |&error| Err(error))?;
        body(device)
    }))
}

fn code(outcome: Result<(), Return>) -> Return {
    outcome.err().unwrap_or(0)
}

/// Writes the call down, hangs, waits or fails as the file says; otherwise what the file says.
fn start(function: &str, handle: Option<Handle>) -> Result<State, Return> {
    let path = state::path().ok_or(UNKNOWN)?;
    let read = || {
        State::read(&path).map_err(|sentence| {
            // The caller only gets a number; a person needs to know what is wrong.
            let _ = writeln!(std::io::stderr(), "fakenvml: {sentence}");
            UNKNOWN
        })
    };
    let mut state = read()?;
    write_down(&path, function, handle.and_then(|handle| handle.device(&state)));
    while state.hang.iter().any(|name| name == function) {
        sleep(LOOK);
        state = read()?;
    }
    if let Some(&delay) = state.delay_ms.get(function) {
        sleep(Duration::from_millis(delay));
    }
    if let Some(&error) = state.errors.get(function) {
        return Err(error);
    }
    if USERS.load(Ordering::Acquire) == 0 && function != "nvmlInit_v2" {
        return Err(UNINITIALIZED);
    }
    Ok(state)
}

fn write_down(state: &Path, function: &str, device: Option<&Device>) {
    let uuid = device.map_or("", |device| &device.uuid);
    let line = format!("{function} {uuid}");
    let file = File::options().append(true).create(true).open(state.with_extension("calls"));
    // One write a line: calls of several threads do not mix. A test that misses a line fails by itself.
    let _ = file.and_then(|mut file| file.write_all(format!("{}\n", line.trim_end()).as_bytes()));
}
