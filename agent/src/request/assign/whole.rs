//! An answer that came at once, among others: between which steps its own lie, and which are the likeliest.
//!
//! It has `n` tokens and one write, at its end. By A3 it was in at least `n` steps, and the last of them is among the
//! latest that ended before the write. One thing more is assumed, and therefore nothing here is more than `bounded`:
//!
//! - A4. A request that has begun sits out at most three steps of four that it is in, and the parts of its prompt take
//!   at most one step for each [`PART`] tokens.
//!
//! Engines that run prefills by themselves let the others sit out one step for each; a preempted request sits out any
//! number of steps, and is outside its bounds then. Where steps give several tokens (`Service::bursts`), tokens say
//! nothing of steps, and only A1 and A2 are left.

use super::{
    super::{lag::Lags, step::StepLog},
    Question, Range,
};

/// Prompt tokens that the smallest usual part of a prompt has.
const PART: u64 = 512;
/// Steps before the latest that can be the last one while nothing is learned of lags: as many as engines have in
/// flight, and one.
const UNLEARNED: usize = 3;

/// Between which steps, as indices of the log: `[least, most]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Its first step.
    first: [usize; 2],
    /// Its last one.
    last: [usize; 2],
    /// Fewest steps it can have had.
    tokens: usize,
}

/// The window of a request, of which the first step may be known; `None` where it has more tokens than there were
/// steps, or none are known.
pub(super) fn window(
    q: Question<'_>,
    log: &StepLog,
    low: usize,
    lags: &Lags,
    known_first: Option<usize>,
) -> Option<Window> {
    let tokens = usize::try_from(q.exchange.output_tokens?).ok()?.max(1);
    let latest = log.ended_by(q.end).checked_sub(1)?;
    let highest = (latest + 1).checked_sub(tokens).filter(|first| *first >= low)?;
    let by_lag = match lags.longest() {
        Some(lag) => log.ended_by(q.end.saturating_sub(lag)).min(latest.saturating_sub(1)),
        None => latest.saturating_sub(UNLEARNED),
    };
    let earliest = by_lag.max(low + tokens - 1).min(latest);
    let parts = usize::try_from(q.exchange.input_tokens.unwrap_or_default() / PART).unwrap_or(usize::MAX);
    let most = tokens.saturating_add((tokens * 3 / 4).max(2)).saturating_add(parts);
    let first = [low.max((earliest + 1).saturating_sub(most)), highest];
    let first = known_first.map_or(first, |known| [known; 2]);
    Some(Window { first, last: [earliest, latest], tokens })
}

impl Window {
    /// The same as times.
    pub(super) fn range(&self, q: Question<'_>, log: &StepLog) -> Range {
        let first_launch = self.first.map(|i| log.get(i).begin.max(q.read));
        Range {
            first_launch,
            first_result: None,
            last_result: self.last.map(|i| log.get(i).end),
            queue: first_launch.map(|t| log.busy_ns(q.read, t)),
        }
    }

    /// The likeliest steps: as many as tokens, up to the one before the usual lag.
    pub(super) fn likely(&self, q: Question<'_>, log: &StepLog, lags: &Lags) -> Vec<usize> {
        let [least, most] = self.last;
        let usual = log.ended_by(q.end.saturating_sub(lags.shortest())).saturating_sub(1);
        let last = usual.clamp(least, most);
        (last + 1 - self.tokens..=last).collect()
    }
}
