//! Hot rows: launches and copies. They only update the aggregate of their stream.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use wire::cookie::{Argument, Class};

use super::arguments::Entry;
use super::stream::{Stream, StreamKey, field, find, find_or_make};
use super::watched;
use crate::emit::{Outcome, Stop};
use crate::scope::Task;

#[inline(always)]
pub(crate) fn launch(entry: Entry) -> Outcome {
    let class = entry.class()?;
    let stream = stream_of(entry)?;
    if matches!(class, Class::GraphLaunch) {
        stream.totals.graph.set(entry.argument(Argument::Object)?);
        stream.totals.work[field::GRAPHS].add(1);
    } else {
        stream.totals.work[field::LAUNCHES].add(1);
    }
    touch(stream);
    Ok(())
}

#[inline(always)]
pub(crate) fn copy(entry: Entry) -> Outcome {
    let stream = stream_of(entry)?;
    account_copy(entry, stream)
}

/// Counts the copy of a row of one of the `Copy` classes.
#[inline(always)]
pub(crate) fn account_copy(entry: Entry, stream: &Stream) -> Outcome {
    let bytes = entry.argument(Argument::Bytes)?;
    let direction = match entry.class()? {
        Class::CopyH2D => &stream.totals.work[field::H2D],
        Class::CopyD2H => &stream.totals.work[field::D2H],
        _ => &stream.totals.work[field::OTHER],
    };
    direction.add(bytes);
    stream.totals.work[field::COPIES].add(1);
    touch(stream);
    Ok(())
}

#[inline(always)]
fn touch(stream: &Stream) {
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
