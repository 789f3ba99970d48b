//! [2] Record bytes to [`Event`]: stateless, without `unsafe`, and every bad record is a counted error.

mod error;
mod event;
mod observation;

pub use error::DecodeError;
pub use event::{Event, Payload, Stamp, blank, decode, meaningful};
pub use observation::{
    DeviceCondition, DeviceMemory, DeviceProcess, DeviceSeen, DeviceUsage, DeviceUse, GpuProcessSeen,
    ListenPort, MigInstance, MigMode, NvmlSeen, NvmlSource, NvmlState, Observation, ProcessSeen, Refusal,
    ServiceUse, Sign, Throttle,
};
