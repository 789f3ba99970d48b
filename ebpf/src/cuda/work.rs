//! Hot rows: launches and copies. They only update the aggregate of their stream.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use wire::cookie::{Argument, Class, Loc};

use super::arguments::Entry;
use super::copy;
use super::stream::{Stream, StreamKey, field, find, find_or_make};
use super::watched;
use crate::emit::{Outcome, Stop};
use crate::scope::Task;

/// Most launches that one call makes: one for each device.
const MOST: u64 = 64;

#[inline(always)]
pub(crate) fn launch(entry: Entry) -> Outcome {
    let class = entry.class()?;
    let stream = stream_of(entry)?;
    let launches = match entry.cookie.location(Argument::Bytes) {
        Loc::None => 1,
        _ => at_most(entry.argument(Argument::Bytes)? & 0xffff_ffff),
    };
    if stream.is_capturing() {
        stream.captured.add(launches);
        return Ok(());
    }
    if matches!(class, Class::GraphLaunch) {
        stream.totals.graph.set(entry.argument(Argument::Object)?);
        stream.totals.work[field::GRAPHS].add(1);
    } else {
        stream.totals.work[field::LAUNCHES].add(launches);
    }
    touch(stream);
    Ok(())
}

#[inline(always)]
fn at_most(launches: u64) -> u64 {
    if launches < MOST { launches } else { MOST }
}

#[inline(always)]
pub(crate) fn copy(entry: Entry) -> Outcome {
    let stream = stream_of(entry)?;
    copy::account(entry, stream).map(|_| ())
}

#[inline(always)]
pub(crate) fn touch(stream: &Stream) {
    // SAFETY: always valid.
    stream.touch(unsafe { bpf_ktime_get_ns() });
}

/// The stream of a call. A known one belongs to a watched process, so only a new one costs a look at the scope.
#[inline(always)]
fn stream_of(entry: Entry) -> Result<&'static Stream, Stop> {
    let task = Task::current();
    let key = StreamKey::new(task, entry.argument(Argument::Stream)?, entry.cookie.flags());
    if let Some(stream) = find(&key) {
        return Ok(stream);
    }
    watched(task, entry.cookie.row())?;
    find_or_make(&key)
}
