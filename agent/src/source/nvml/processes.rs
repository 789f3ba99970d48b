//! Who the processes on a device are, from `/proc`: NVML tells ids, and they are the host's.

use std::collections::BTreeMap;

use nvml_wrapper::{enums::device::UsedGpuMemory, struct_wrappers::device::ProcessInfo};

use crate::{
    decode::{DeviceProcess, DeviceUse},
    source::procfs::{ProcFs, Stat},
};

/// Names and containers of processes, read once for each.
#[derive(Debug, Default)]
pub(super) struct Processes {
    procfs: ProcFs,
    known: BTreeMap<u32, Known>,
}

#[derive(Debug)]
struct Known {
    start_ticks: u64,
    comm: String,
    container: Option<String>,
    /// Looked for since the last round ended.
    used: bool,
}

impl Processes {
    /// A process on a device, with what is known of it.
    pub(super) fn describe(&mut self, info: &ProcessInfo, does: DeviceUse) -> DeviceProcess {
        let known = self.look(info.pid);
        DeviceProcess {
            pid: info.pid,
            does,
            start_ticks: known.map(|known| known.start_ticks),
            comm: known.map(|known| known.comm.clone()),
            container: known.and_then(|known| known.container.clone()),
            used_memory: match info.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        }
    }

    /// Forgets those that no device has any more.
    pub(super) fn end_of_round(&mut self) {
        self.known.retain(|_, known| std::mem::take(&mut known.used));
    }

    /// `None` when it has ended, or is not to be seen from this namespace.
    fn look(&mut self, pid: u32) -> Option<&Known> {
        let stat = self.procfs.stat(pid).ok()?;
        let same = |known: &Known| known.start_ticks == stat.start_ticks && known.comm == stat.comm;
        if !self.known.get(&pid).is_some_and(same) {
            self.known.insert(pid, self.read(stat));
        }
        let known = self.known.get_mut(&pid)?;
        known.used = true;
        Some(known)
    }

    fn read(&self, stat: Stat) -> Known {
        let container = self.procfs.container(stat.pid).ok().flatten();
        Known { start_ticks: stat.start_ticks, comm: stat.comm, container, used: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(pid: u32, used_gpu_memory: UsedGpuMemory) -> ProcessInfo {
        ProcessInfo { pid, used_gpu_memory, gpu_instance_id: None, compute_instance_id: None }
    }

    #[test]
    fn a_process_is_named_once_and_forgotten_when_no_device_has_it() {
        let (mut processes, own) = (Processes::default(), std::process::id());
        let me = processes.describe(&info(own, UsedGpuMemory::Used(5)), DeviceUse::Compute);
        let stat = ProcFs::default().stat(own).unwrap();
        assert_eq!((me.comm, me.start_ticks), (Some(stat.comm), Some(stat.start_ticks)));
        assert_eq!(me.used_memory, Some(5));

        let gone = processes.describe(&info(u32::MAX, UsedGpuMemory::Unavailable), DeviceUse::Graphics);
        assert_eq!((gone.comm, gone.start_ticks, gone.used_memory), (None, None, None));

        processes.end_of_round();
        assert_eq!(processes.known.len(), 1);
        processes.end_of_round();
        assert_eq!(processes.known.len(), 0);
    }
}
