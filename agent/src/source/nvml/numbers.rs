//! One device: what it is asked for, and what became of the asking.

use nvml_wrapper::{
    Device, EventSet, Nvml,
    bitmasks::{device::ThrottleReasons, event::EventTypes},
    enum_wrappers::device::{Clock, TemperatureSensor},
    enums::event::XidError,
    error::NvmlError,
    struct_wrappers::device::ProcessInfo,
};

use super::{
    calls::Calls,
    error::{Consequence, consequence, loss},
    poller::monotonic_ns,
    processes::Processes,
};
use crate::decode::{
    DeviceCondition, DeviceMemory, DeviceProcess, DeviceSeen, DeviceUsage, DeviceUse, MigMode, Throttle,
};

/// Most XIDs of a device taken in one round: the rest comes in the next.
const MAX_XIDS: usize = 64;
/// NVML's number for an XID that it does not know.
const UNKNOWN_XID: u64 = 999;

/// Something that a device is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    /// Its name in what the agent tells.
    name: &'static str,
    /// The function that gives it.
    function: &'static str,
}

/// Declares what devices are asked for.
macro_rules! numbers {
    ($($id:ident $name:literal $function:literal;)+) => {
        $(const $id: Number = Number { name: $name, function: $function };)+
    };
}

numbers! {
    NAME "name" "nvmlDeviceGetName";
    ARCHITECTURE "architecture" "nvmlDeviceGetArchitecture";
    PCI "pci_bus_id" "nvmlDeviceGetPciInfo_v3";
    MIG "mig" "nvmlDeviceGetMigMode";
    MIG_COUNT "mig_instances" "nvmlDeviceGetMaxMigDeviceCount";
    UTILIZATION "utilization" "nvmlDeviceGetUtilizationRates";
    MEMORY "memory" "nvmlDeviceGetMemoryInfo_v2";
    COMPUTE "compute_processes" "nvmlDeviceGetComputeRunningProcesses_v3";
    GRAPHICS "graphics_processes" "nvmlDeviceGetGraphicsRunningProcesses_v3";
    TEMPERATURE "temperature" "nvmlDeviceGetTemperature";
    POWER "power" "nvmlDeviceGetPowerUsage";
    POWER_LIMIT "power_limit" "nvmlDeviceGetEnforcedPowerLimit";
    SM_CLOCK "sm_clock" "nvmlDeviceGetClockInfo";
    MEMORY_CLOCK "memory_clock" "nvmlDeviceGetClockInfo";
    THROTTLE "throttle" "nvmlDeviceGetCurrentClocksThrottleReasons";
    XID_SET "xid" "nvmlEventSetCreate";
    XID_REGISTER "xid" "nvmlDeviceRegisterEvents";
    XID "xid" "nvmlEventSetWait_v2";
}

/// What holds clocks back, as NVML's bits.
const THROTTLES: [(ThrottleReasons, Throttle); Throttle::ALL.len()] = [
    (ThrottleReasons::SW_POWER_CAP, Throttle::SwPowerCap),
    (ThrottleReasons::HW_SLOWDOWN, Throttle::HwSlowdown),
    (ThrottleReasons::SYNC_BOOST, Throttle::SyncBoost),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, Throttle::SwThermal),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, Throttle::HwThermal),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Throttle::HwPowerBrake),
];

/// A device while NVML is open. An error is returned only when NVML itself is gone.
#[derive(Debug)]
pub(super) struct Gpu<'n> {
    /// Absent where it was lost before it gave one.
    device: Option<Device<'n>>,
    /// What it is, as it is told.
    pub(super) seen: DeviceSeen,
    events: Option<EventSet<'n>>,
}

impl<'n> Gpu<'n> {
    /// A device that has just been found.
    pub(super) fn new(device: Option<Device<'n>>, seen: DeviceSeen) -> Self {
        Self { device, seen, events: None }
    }

    /// It was found again, under a new handle.
    pub(super) fn found(&mut self, device: Device<'n>) {
        self.device = Some(device);
    }

    /// It is there again after it was lost.
    pub(super) fn recover(&mut self) {
        (self.seen.lost, self.events) = (None, None);
    }

    /// It cannot be reached any more.
    pub(super) fn lose(&mut self, reason: &str) {
        if self.seen.lost.is_none() {
            tracing::warn!(uuid = self.seen.uuid, index = self.seen.index, reason, "a GPU is lost");
            self.seen.lost = Some(reason.to_owned());
        }
    }

    fn ask<T>(
        &mut self,
        calls: &Calls,
        number: Number,
        call: impl FnOnce(&Device<'n>) -> Result<T, NvmlError>,
    ) -> Result<Option<T>, NvmlError> {
        let refused = self.seen.refused.contains_key(number.name);
        let Some(device) = self.device.as_ref().filter(|_| !refused && self.seen.lost.is_none()) else {
            return Ok(None);
        };
        let outcome = calls.run(number.function, || call(device));
        self.judge(number, outcome)
    }

    fn judge<T>(&mut self, number: Number, outcome: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
        let error = match outcome {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        match consequence(&error) {
            Consequence::Never(why) => _ = self.seen.refused.insert(number.name.into(), why),
            Consequence::Lost => self.lose(loss(&error)),
            Consequence::Nothing | Consequence::Retry => {}
            Consequence::Closed => return Err(error),
        }
        Ok(None)
    }

    /// Asks for what of its identity is not known yet, and how it is divided.
    pub(super) fn identify(&mut self, calls: &Calls) -> Result<(), NvmlError> {
        if self.seen.name.is_none() {
            self.seen.name = self.ask(calls, NAME, Device::name)?;
        }
        if self.seen.architecture.is_none() {
            let name = |device: &Device<'_>| device.architecture().map(|name| name.to_string());
            self.seen.architecture = self.ask(calls, ARCHITECTURE, name)?;
        }
        if self.seen.instance.is_some() {
            return Ok(());
        }
        if self.seen.pci_bus_id.is_none() {
            self.seen.pci_bus_id = self.ask(calls, PCI, |device| Ok(device.pci_info()?.bus_id))?;
        }
        if let Some(mode) = self.ask(calls, MIG, Device::mig_mode)? {
            self.seen.mig = Some(MigMode { enabled: mode.current == 1, pending: mode.pending == 1 });
        }
        Ok(())
    }

    /// Places for instances; 0 where it is not divided.
    pub(super) fn instance_places(&mut self, calls: &Calls) -> Result<u32, NvmlError> {
        if !self.is_divided() {
            return Ok(0);
        }
        Ok(self.ask(calls, MIG_COUNT, Device::mig_device_count)?.unwrap_or(0))
    }

    /// The instance at a place; `None` when it is empty.
    pub(super) fn instance(&self, calls: &Calls, place: u32) -> Result<Option<Device<'n>>, NvmlError> {
        let Some(device) = &self.device else { return Ok(None) };
        let function = "nvmlDeviceGetMigDeviceHandleByIndex";
        match calls.run(function, || optional(device.mig_device_by_index(place))) {
            Err(error) if consequence(&error) == Consequence::Closed => Err(error),
            found => Ok(found.ok().flatten()),
        }
    }

    fn is_divided(&self) -> bool {
        self.seen.mig.is_some_and(|mode| mode.enabled)
    }

    /// How it is used.
    pub(super) fn usage(
        &mut self,
        calls: &Calls,
        known: &mut Processes,
        valid_ms: u64,
    ) -> Result<DeviceUsage, NvmlError> {
        let utilization = self.ask(calls, UTILIZATION, Device::utilization_rates)?;
        let before_ns = monotonic_ns();
        let memory = self.ask(calls, MEMORY, Device::memory_info)?;
        let memory_asked_ns = memory.as_ref().map(|_| [before_ns, monotonic_ns()]);
        Ok(DeviceUsage {
            uuid: self.seen.uuid.clone(),
            valid_ms,
            utilization_percent: utilization.as_ref().map(|percent| percent.gpu),
            memory_utilization_percent: utilization.map(|percent| percent.memory),
            memory: memory.map(|memory| DeviceMemory {
                total: memory.total,
                used: memory.used,
                free: memory.free,
                reserved: memory.reserved,
            }),
            memory_asked_ns,
            processes: self.processes(calls, known)?,
        })
    }

    fn processes(
        &mut self,
        calls: &Calls,
        known: &mut Processes,
    ) -> Result<Option<Vec<DeviceProcess>>, NvmlError> {
        // Those of a divided GPU are told by its instances; here they would be counted twice.
        if self.is_divided() {
            return Ok(None);
        }
        let compute = self.ask(calls, COMPUTE, |device| list(device.running_compute_processes()))?;
        let graphics = self.ask(calls, GRAPHICS, |device| list(device.running_graphics_processes()))?;
        self.learn_ids(compute.as_deref().unwrap_or_default());
        let mut found = compute.is_some().then(Vec::new);
        for (infos, does) in [(compute, DeviceUse::Compute), (graphics, DeviceUse::Graphics)] {
            let processes = infos.into_iter().flatten().map(|info| known.describe(&info, does));
            if let Some(found) = &mut found {
                found.extend(processes);
            }
        }
        Ok(found)
    }

    /// Only a process on an instance tells its ids.
    fn learn_ids(&mut self, processes: &[ProcessInfo]) {
        let (Some(instance), Some(process)) = (&mut self.seen.instance, processes.first()) else { return };
        instance.gpu_instance = process.gpu_instance_id.or(instance.gpu_instance);
        instance.compute_instance = process.compute_instance_id.or(instance.compute_instance);
    }

    /// How it fares. An instance has nothing of this of its own.
    pub(super) fn condition(
        &mut self,
        calls: &Calls,
        valid_ms: u64,
    ) -> Result<Option<DeviceCondition>, NvmlError> {
        if self.seen.instance.is_some() {
            return Ok(None);
        }
        let sensor = TemperatureSensor::Gpu;
        Ok(Some(DeviceCondition {
            uuid: self.seen.uuid.clone(),
            valid_ms,
            temperature_celsius: self.ask(calls, TEMPERATURE, |device| device.temperature(sensor))?,
            power_milliwatts: self.ask(calls, POWER, Device::power_usage)?,
            power_limit_milliwatts: self.ask(calls, POWER_LIMIT, Device::enforced_power_limit)?,
            sm_clock_mhz: self.ask(calls, SM_CLOCK, |device| device.clock_info(Clock::SM))?,
            memory_clock_mhz: self.ask(calls, MEMORY_CLOCK, |device| device.clock_info(Clock::Memory))?,
            throttle: self.ask(calls, THROTTLE, Device::current_throttle_reasons)?.map(throttles),
        }))
    }

    /// Has the driver report its errors from now on.
    pub(super) fn listen(&mut self, nvml: &'n Nvml, calls: &Calls) -> Result<(), NvmlError> {
        if self.events.is_some() || self.seen.instance.is_some() {
            return Ok(());
        }
        // A set for each device: registering a device that refuses takes the set with it.
        let Some(set) = self.ask(calls, XID_SET, |_| nvml.create_event_set())? else { return Ok(()) };
        let register = |device: &Device<'n>| {
            let types = EventTypes::CRITICAL_XID_ERROR;
            device.register_events(types, set).map_err(|failed| failed.source.unwrap_or(failed.error))
        };
        self.events = self.ask(calls, XID_REGISTER, register)?;
        Ok(())
    }

    /// The errors since the last look, in their order. Of several XIDs between two looks the driver may tell the last
    /// one several times.
    pub(super) fn xids(&mut self, calls: &Calls) -> Result<Vec<u64>, NvmlError> {
        let mut xids = Vec::new();
        while let Some(set) = self.events.as_ref().filter(|_| self.seen.lost.is_none()) {
            let outcome = calls.run(XID.function, || match set.wait(0) {
                Err(NvmlError::Timeout) => Ok(None),
                other => other.map(|event| event.event_data),
            });
            match self.judge(XID, outcome)?.flatten() {
                Some(XidError::Value(xid)) => xids.push(xid),
                Some(XidError::Unknown) => xids.push(UNKNOWN_XID),
                None => break,
            }
            if xids.len() == MAX_XIDS {
                break;
            }
        }
        Ok(xids)
    }
}

/// A list that is not found is empty.
fn list<T>(outcome: Result<Vec<T>, NvmlError>) -> Result<Vec<T>, NvmlError> {
    Ok(optional(outcome)?.unwrap_or_default())
}

/// What is not found is not there, which is an answer.
fn optional<T>(outcome: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match outcome {
        Err(error) if consequence(&error) == Consequence::Nothing => Ok(None),
        other => other.map(Some),
    }
}

fn throttles(reasons: ThrottleReasons) -> Vec<Throttle> {
    THROTTLES.iter().filter(|(bit, _)| reasons.contains(*bit)).map(|(_, throttle)| *throttle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn being_idle_is_not_being_held_back() {
        use Throttle::{HwPowerBrake, HwSlowdown, HwThermal, SwPowerCap};
        let cases: [(u64, &[Throttle]); 4] = [
            (0, &[]),
            (0x1 | 0x2 | 0x100, &[]),
            (0x4, &[SwPowerCap]),
            (0x8 | 0x40 | 0x80, &[HwSlowdown, HwThermal, HwPowerBrake]),
        ];
        for (bits, want) in cases {
            assert_eq!(throttles(ThrottleReasons::from_bits_truncate(bits)), want, "{bits:#x}");
        }
    }

    #[test]
    fn what_is_not_found_is_empty_and_every_other_error_stays() {
        assert!(list::<u8>(Err(NvmlError::NotFound)).unwrap().is_empty());
        assert!(matches!(list::<u8>(Err(NvmlError::GpuLost)), Err(NvmlError::GpuLost)));
    }
}
