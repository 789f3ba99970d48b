//! Handles of devices: numbers that name a place in the file.

use crate::state::{Device, State};

/// A GPU (its place, from 1) or an instance of one (the place of the GPU, then its own from 1). Null is none.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(usize);

/// Where the number of the GPU begins.
const GPU: u32 = 16;

impl Handle {
    /// Of no device.
    pub const NONE: Self = Self(0);

    /// The GPU at a place.
    pub(crate) fn gpu(place: usize) -> Self {
        Self((place + 1) << GPU)
    }

    /// Its instance at a place.
    pub(crate) fn instance(self, place: usize) -> Self {
        Self(self.0 | (place + 1))
    }

    /// The GPU that an instance belongs to.
    pub(crate) fn parent(self) -> Self {
        Self(self.0 >> GPU << GPU)
    }

    /// The place of a GPU; none for an instance.
    pub(crate) fn place(self) -> Option<usize> {
        self.places().and_then(|(gpu, instance)| instance.is_none().then_some(gpu))
    }

    fn places(self) -> Option<(usize, Option<usize>)> {
        let gpu = (self.0 >> GPU).checked_sub(1)?;
        Some((gpu, (self.0 & ((1 << GPU) - 1)).checked_sub(1)))
    }

    /// The device it names; an instance exists while its GPU is divided.
    pub(crate) fn device(self, state: &State) -> Option<&Device> {
        let (gpu, instance) = self.places()?;
        let gpu = state.devices.get(gpu)?;
        let Some(instance) = instance else { return Some(gpu) };
        gpu.mig.as_ref().filter(|mig| mig.enabled)?.instances.get(instance)?.as_ref()
    }

    /// It, or the GPU that it is a part of, is lost.
    pub(crate) fn is_lost(self, state: &State) -> bool {
        [self, self.parent()].iter().any(|handle| handle.device(state).is_some_and(|device| device.lost))
    }
}
