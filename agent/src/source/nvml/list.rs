//! Which devices there are, instances of divided ones included.

use nvml_wrapper::{Device, Nvml, error::NvmlError};

use super::{
    calls::Calls,
    error::{Consequence, consequence, loss},
    numbers::Gpu,
};
use crate::decode::{DeviceSeen, MigInstance};

/// Looks for devices; those of `before` that are still there keep what is known of them. An error is returned only
/// when NVML itself is gone.
pub(super) fn list<'n>(
    nvml: &'n Nvml,
    calls: &Calls,
    before: Vec<Gpu<'n>>,
) -> Result<Vec<Gpu<'n>>, NvmlError> {
    let count = match calls.run("nvmlDeviceGetCount_v2", || nvml.device_count()) {
        Ok(count) => count,
        Err(error) if consequence(&error) == Consequence::Closed => return Err(error),
        Err(_) => return Ok(before),
    };
    let mut looking = Looking { calls, before, found: Vec::new() };
    for index in 0..count {
        let device = calls.run("nvmlDeviceGetHandleByIndex_v2", || nvml.device_by_index(index));
        looking.gpu(index, device)?;
    }
    let mut found = looking.found;
    found.iter_mut().try_for_each(|gpu| gpu.listen(nvml, calls))?;
    Ok(found)
}

struct Looking<'a, 'n> {
    calls: &'a Calls,
    before: Vec<Gpu<'n>>,
    found: Vec<Gpu<'n>>,
}

impl<'n> Looking<'_, 'n> {
    fn gpu(&mut self, index: u32, device: Result<Device<'n>, NvmlError>) -> Result<(), NvmlError> {
        let named = device.and_then(|device| {
            let uuid = self.calls.run("nvmlDeviceGetUUID", || device.uuid())?;
            Ok((uuid, device))
        });
        match named {
            Ok((uuid, device)) => {
                let seen = DeviceSeen { uuid, index, ..DeviceSeen::default() };
                let mut gpu = self.take(device, seen)?;
                gpu.identify(self.calls)?;
                self.with_instances(gpu)
            }
            Err(error) => self.no_answer(index, error),
        }
    }

    /// The device as it is known from before, or a new one.
    fn take(&mut self, device: Device<'n>, seen: DeviceSeen) -> Result<Gpu<'n>, NvmlError> {
        let known = self.before.iter().position(|gpu| gpu.seen.uuid == seen.uuid);
        let Some(known) = known else { return Ok(Gpu::new(Some(device), seen)) };
        let mut gpu = self.before.swap_remove(known);
        gpu.seen.index = seen.index;
        if gpu.seen.lost.is_some() && self.is_back(&device)? {
            tracing::info!(uuid = gpu.seen.uuid, index = gpu.seen.index, "a lost GPU is back");
            gpu.recover();
        }
        gpu.found(device);
        Ok(gpu)
    }

    /// Whether a device that was lost answers again: a name and a handle it may have to the end.
    fn is_back(&self, device: &Device<'n>) -> Result<bool, NvmlError> {
        match self.calls.run("nvmlDeviceGetMemoryInfo_v2", || device.memory_info()) {
            Ok(_) => Ok(true),
            Err(error) => match consequence(&error) {
                Consequence::Closed => Err(error),
                Consequence::Never(_) => Ok(true),
                _ => Ok(false),
            },
        }
    }

    /// A GPU without a name: lost, or merely not answering now, or one that the agent may not see.
    fn no_answer(&mut self, index: u32, error: NvmlError) -> Result<(), NvmlError> {
        let lost = match consequence(&error) {
            Consequence::Closed => return Err(error),
            what => what == Consequence::Lost,
        };
        let mut mine = self.take_all(|gpu| gpu.seen.index == index);
        if mine.is_empty() && lost {
            let uuid = format!("index-{index}");
            mine.push(Gpu::new(None, DeviceSeen { uuid, index, ..DeviceSeen::default() }));
        }
        if lost {
            for gpu in &mut mine {
                gpu.lose(loss(&error));
            }
        }
        self.found.append(&mut mine);
        Ok(())
    }

    fn take_all(&mut self, which: impl Fn(&Gpu<'n>) -> bool) -> Vec<Gpu<'n>> {
        let (taken, left) = std::mem::take(&mut self.before).into_iter().partition(which);
        self.before = left;
        taken
    }

    fn with_instances(&mut self, mut gpu: Gpu<'n>) -> Result<(), NvmlError> {
        let instances = self.instances(&mut gpu)?;
        let (parent, lost) = (gpu.seen.uuid.clone(), gpu.seen.lost.clone());
        self.found.push(gpu);
        if let Some(reason) = lost {
            let is_its = |gpu: &Gpu<'n>| gpu.seen.instance.as_ref().is_some_and(|i| i.parent == parent);
            let mut instances = self.take_all(is_its);
            for instance in &mut instances {
                instance.lose(&reason);
            }
            self.found.append(&mut instances);
        }
        for (device, seen) in instances {
            let mut instance = self.take(device, seen)?;
            instance.identify(self.calls)?;
            self.found.push(instance);
        }
        Ok(())
    }

    fn instances(&self, gpu: &mut Gpu<'n>) -> Result<Vec<(Device<'n>, DeviceSeen)>, NvmlError> {
        let mut instances = Vec::new();
        for place in 0..gpu.instance_places(self.calls)? {
            let Some(device) = gpu.instance(self.calls, place)? else { continue };
            // One that is taken away just now.
            let Ok(uuid) = self.calls.run("nvmlDeviceGetUUID", || device.uuid()) else { continue };
            let parent = gpu.seen.uuid.clone();
            let instance = MigInstance { parent, index: place, gpu_instance: None, compute_instance: None };
            let (index, instance) = (gpu.seen.index, Some(instance));
            instances.push((device, DeviceSeen { uuid, index, instance, ..DeviceSeen::default() }));
        }
        Ok(instances)
    }
}
