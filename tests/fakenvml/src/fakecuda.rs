//! Who holds memory of the simulated CUDA devices, from the file that their processes share.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::layout::{Block, Device, Heap, Layout, MAGIC, MAX_BLOCKS, MAX_DEVICES};

/// Bytes by process.
pub(crate) type Held = BTreeMap<u32, u64>;

/// What living processes hold on each device.
pub(crate) fn held(path: &Path) -> io::Result<Vec<Held>> {
    let file = File::open(path)?;
    // Released when the file is closed.
    file.lock_shared()?;
    if word(&file, offset_of!(Layout, magic))? != MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a file of this version of fakecuda"));
    }
    (0..MAX_DEVICES).map(|device| of_device(&file, device)).collect()
}

fn of_device(file: &File, device: usize) -> io::Result<Held> {
    let heap = offset_of!(Layout, devices) + device * size_of::<Device>() + offset_of!(Device, heap);
    let mut held = Held::new();
    let mut next = half(file, heap + offset_of!(Heap, head))?;
    for _ in 0..MAX_BLOCKS {
        let Some(index) = (next as usize).checked_sub(1) else { break };
        let block = heap + offset_of!(Heap, blocks) + index * size_of::<Block>();
        // The process is the high half; its memory comes back when another one looks for some.
        let pid = (word(file, block + offset_of!(Block, owner))? >> 32) as u32;
        if Path::new("/proc").join(pid.to_string()).exists() {
            *held.entry(pid).or_default() += word(file, block + offset_of!(Block, size))?;
        }
        next = half(file, block + offset_of!(Block, next))?;
    }
    Ok(held)
}

fn word(file: &File, at: usize) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at as u64)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn half(file: &File, at: usize) -> io::Result<u32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at as u64)?;
    Ok(u32::from_ne_bytes(bytes))
}
