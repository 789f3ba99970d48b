//! Detaching: slow in the kernel (each link waits for readers to pass), so several at a time.

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

use super::Link;

/// Links detached at a time: the kernel's waits overlap.
const AT_A_TIME: usize = 64;

/// Detaches without making the caller wait.
pub(super) fn in_background(links: Vec<Link>) {
    let spawned = thread::Builder::new().name("detach".to_owned()).spawn(move || and_wait(links));
    if let Err(error) = spawned {
        // The closure, and the links in it, are dropped by the failed spawn: detached, only more slowly.
        tracing::debug!(%error, "no thread to detach in; detached in place");
    }
}

/// Detaches, last attached first, and waits until all are gone.
pub(super) fn and_wait(links: Vec<Link>) {
    let queue = Mutex::new(links);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            // Where no thread can be had, the loop below does the work.
            let _worker = thread::Builder::new().spawn_scoped(scope, || while next().is_some() {});
        }
        while next().is_some() {}
    });
}
