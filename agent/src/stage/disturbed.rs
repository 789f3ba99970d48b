//! What else a GPU process does: steps that are nobody's, put among those of a simulated server.

use super::simulator::{Run, US, marker};
use crate::{
    request::Busy,
    track::{ServiceId, Tracked},
};

/// A step that no request is in.
fn stray(pid: u32, begin: u64, end: u64) -> (u64, Tracked) {
    (end, Tracked::Step { service: ServiceId(0), step: marker(pid, pid, begin, end) })
}

/// When the steps of the run's engine were: `(process, begin, end)`, in order of their ends.
fn steps(run: &Run) -> Vec<(u32, u64, u64)> {
    let span = |news: &Tracked| match news {
        Tracked::Step { step, .. } => Some((step.header.tgid, step.first_ns, step.header.time_ns)),
        _ => None,
    };
    run.news.iter().filter_map(span).collect()
}

/// The time at which a piece of news is told.
fn time(news: &Tracked) -> Option<u64> {
    match news {
        Tracked::Step { step, .. } => Some(step.header.time_ns),
        Tracked::RequestRead { time_ns, .. } | Tracked::Tick { time_ns } => Some(*time_ns),
        Tracked::Content { event, .. } => Some(event.time_ns),
        Tracked::Finished(exchange) => exchange.last_byte_out_ns,
        _ => None,
    }
}

fn insert(mut run: Run, strays: Vec<(u64, Tracked)>) -> Run {
    let mut last = 0;
    let mut news: Vec<(u64, Tracked)> = Vec::new();
    for one in run.news {
        last = time(&one).unwrap_or(last).max(last);
        news.push((last, one));
    }
    news.extend(strays);
    news.sort_by_key(|(time, _)| *time);
    run.news = news.into_iter().map(|(_, news)| news).collect();
    run
}

/// An engine of a data-parallel group that runs a dummy of 300 us whenever it has had nothing to do for a millisecond.
pub(super) fn with_dummies(run: Run) -> Run {
    let all = steps(&run);
    let mut strays = Vec::new();
    // Also before the first request, as such an engine does.
    let before = all.first().map_or(0, |first| first.1.saturating_sub(20_000 * US));
    let ends = std::iter::once(before).chain(all.iter().map(|step| step.2));
    for (end, (pid, next, _)) in ends.zip(&all) {
        let mut from = end + 1_000 * US;
        while from + 400 * US < *next {
            strays.push(stray(*pid, from, from + 300 * US));
            from += 1_300 * US;
        }
    }
    queue_behind(insert(run, strays))
}

/// A dummy in flight keeps a request waiting as any step does.
fn queue_behind(mut run: Run) -> Run {
    let mut busy = Busy::default();
    for (_, begin, end) in steps(&run) {
        busy.add(begin, end);
    }
    for news in &run.news {
        if let Tracked::RequestRead { exchange, time_ns, .. } = news
            && let Some(truth) = run.truth.get_mut(exchange)
        {
            truth.queue = busy.measure(*time_ns, truth.first_launch);
        }
    }
    run
}

/// Another process of the service with work of its own, that brings nothing back: an autotuner, a prefetch.
pub(super) fn with_background(run: Run) -> Run {
    const BACKGROUND: u32 = 77;
    let all = steps(&run);
    let (from, to) = (all.first().map_or(0, |s| s.1), all.last().map_or(0, |s| s.2));
    let quiet = |begin: u64| {
        let (end, mut step) = (begin + 3_000 * US, marker(BACKGROUND, BACKGROUND, begin, begin + 3_000 * US));
        step.work.d2h_bytes = 0;
        (end, Tracked::Step { service: ServiceId(0), step })
    };
    let begins = (from..to).step_by(usize::try_from(17_000 * US).unwrap_or(usize::MAX));
    insert(run, begins.map(quiet).collect())
}
