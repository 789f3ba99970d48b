//! A `libnvidia-ml.so.1` without a GPU: the names and the C ABI of NVML's functions over devices that a file
//! describes.
//!
//! The file is `fakenvml.json` beside the library (`FAKENVML_STATE` names another). It is read again at every call,
//! so a test changes a device, an error or a hang by replacing it: write a new file, then rename it. Tests that run at
//! the same time each use a copy of the library in a folder of their own.
//!
//! [`state`] says what the file may hold. Every call is one line in `fakenvml.calls` beside it, the name of the function
//! and the UUID of the device: what was asked, and in which order, is read there.
//!
//! With `fakecuda` in the file, memory and processes of the simulated CUDA devices are those of the devices here.
//!
//! What is real: names, argument order and types, result codes, struct versions, the two-step reading of process lists,
//! event sets that give every XID once, unusable handles after a change of MIG. What is not: nothing behind the numbers.

mod device;
mod enter;
mod events;
mod fakecuda;
mod handle;
#[path = "../../fakecuda/src/layout.rs"]
#[expect(dead_code, reason = "only memory is read")]
mod layout;
mod mig;
mod process;
pub mod state;
mod system;

pub use device::*;
pub use events::*;
pub use handle::Handle;
pub use mig::*;
pub use process::*;
pub use system::*;
