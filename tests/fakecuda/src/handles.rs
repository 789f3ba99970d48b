//! Handles: numbers that stand for objects. They are handed out again after destruction, as the real driver's are.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::error::Error;

/// Locks a mutex; a panic elsewhere aborts at the C boundary, so poison says nothing new.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Distance between two handles.
const STEP: u64 = 0x40;

/// Objects of one kind.
pub(crate) struct Handles<T> {
    base: u64,
    slots: RwLock<Slots<T>>,
}

struct Slots<T> {
    objects: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Handles<T> {
    /// `base` keeps the kinds apart, so that a stream is never taken for an event.
    pub(crate) const fn new(base: u64) -> Self {
        Self { base, slots: RwLock::new(Slots { objects: Vec::new(), free: Vec::new() }) }
    }

    /// Gives the object a handle; the one freed last comes first.
    pub(crate) fn insert(&self, object: Arc<T>) -> u64 {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let index = slots.free.pop().unwrap_or(slots.objects.len());
        if index == slots.objects.len() {
            slots.objects.push(None);
        }
        slots.objects[index] = Some(object);
        self.base + (index as u64 + 1) * STEP
    }

    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, Error> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        self.index(handle).and_then(|i| slots.objects.get(i)?.clone()).ok_or(Error::INVALID_HANDLE)
    }

    pub(crate) fn check(&self, handle: u64) -> Result<(), Error> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let known = self.index(handle).is_some_and(|i| slots.objects.get(i).is_some_and(Option::is_some));
        if known { Ok(()) } else { Err(Error::INVALID_HANDLE) }
    }

    pub(crate) fn remove(&self, handle: u64) -> Result<Arc<T>, Error> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let index = self.index(handle).ok_or(Error::INVALID_HANDLE)?;
        let object = slots.objects.get_mut(index).and_then(Option::take).ok_or(Error::INVALID_HANDLE)?;
        slots.free.push(index);
        Ok(object)
    }

    /// Removes every object that `gone` picks.
    pub(crate) fn remove_all(&self, gone: impl Fn(&T) -> bool) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        for index in 0..slots.objects.len() {
            if slots.objects[index].as_deref().is_some_and(&gone) {
                slots.objects[index] = None;
                slots.free.push(index);
            }
        }
    }

    fn index(&self, handle: u64) -> Option<usize> {
        let distance = handle.checked_sub(self.base)?;
        let index = usize::try_from(distance / STEP).ok()?;
        (distance % STEP == 0).then_some(())?;
        index.checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_again_and_strangers_are_refused() {
        let handles = Handles::new(0x1000);
        let (a, b) = (handles.insert(Arc::new(1)), handles.insert(Arc::new(2)));
        assert_eq!((*handles.get(a).unwrap(), *handles.get(b).unwrap()), (1, 2));
        assert_eq!(*handles.remove(a).unwrap(), 1);
        for stranger in [0, 1, 0x1000, a, b + 1, b + STEP] {
            assert_eq!(handles.get(stranger), Err(Error::INVALID_HANDLE), "{stranger:#x}");
            assert!(handles.check(stranger).is_err());
        }
        assert_eq!(handles.insert(Arc::new(3)), a);
        handles.remove_all(|n| *n == 2);
        assert!(handles.check(a).is_ok() && handles.check(b).is_err());
    }
}
