//! Which of several engines of a service a request was at, where nothing on the wire says so.
//!
//! Engines that hold different models are told by the request's model, once enough requests of that model were at one of
//! them for other reasons. Engines that share the requests (data-parallel replicas) are told by the token times: behind
//! the right one's results they come after a short and steady lag, behind another one's at any time of its steps. Only
//! a clear difference counts; what is chosen so is never `exact`. It is wrong where a front is later than two engines'
//! steps are apart, all through a request.

use std::collections::BTreeMap;

use super::{service::Process, step::StepLog};

/// Token times without which nothing is said.
const EVENTS: usize = 6;
/// The best engine's lags must be this many times better than the second's.
const CLEARLY: u64 = 2;
/// Models that are remembered, and engines for each.
const MODELS_KEPT: usize = 64;
const ENGINES_KEPT: usize = 64;
/// Requests of a model at one engine before its name tells.
const VOTES: u32 = 4;
/// Older votes count half when there are this many: a model may move.
const MOST_VOTES: u32 = 64;

/// At which engines the requests of each model were.
#[derive(Debug, Default)]
pub(crate) struct Models {
    votes: BTreeMap<String, BTreeMap<u32, u32>>,
}

impl Models {
    /// A request of a model was at an engine. False when there was no room to note it. Where the name itself has told,
    /// that is no news.
    pub(crate) fn was_at(&mut self, model: &str, engine: u32) -> bool {
        if self.engine(model, &[engine]).is_some() {
            return true;
        }
        if !self.votes.contains_key(model) && self.votes.len() >= MODELS_KEPT {
            return false;
        }
        let engines = self.votes.entry(model.to_owned()).or_default();
        if !engines.contains_key(&engine) && engines.len() >= ENGINES_KEPT {
            return false;
        }
        let votes = engines.entry(engine).or_default();
        *votes += 1;
        if *votes > MOST_VOTES {
            for votes in engines.values_mut() {
                *votes /= 2;
            }
            engines.retain(|_, votes| *votes > 0);
        }
        true
    }

    /// The engine of a model among these, if nearly all of its requests were there.
    fn engine(&self, model: &str, among: &[u32]) -> Option<u32> {
        let engines = self.votes.get(model)?;
        let all: u32 = engines.values().sum();
        let (engine, votes) = engines.iter().max_by_key(|(_, votes)| **votes)?;
        (*votes >= VOTES && votes * 10 >= all * 9 && among.contains(engine)).then_some(*engine)
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seek<'a> {
    /// When the request was read, ns.
    pub(crate) read: u64,
    /// Times of its content events, sorted; empty unless it streams.
    pub(crate) times: &'a [u64],
    /// Its model.
    pub(crate) model: Option<&'a str>,
}

/// The engine, if that is clear.
pub(crate) fn choose(
    seek: Seek<'_>,
    engines: &[u32],
    processes: &BTreeMap<u32, Process>,
    models: &Models,
) -> Option<u32> {
    let named = seek.model.and_then(|model| models.engine(model, engines));
    named.or_else(|| by_lags(seek, engines, processes))
}

fn by_lags(seek: Seek<'_>, engines: &[u32], processes: &BTreeMap<u32, Process>) -> Option<u32> {
    if seek.times.len() < EVENTS {
        return None;
    }
    let fit = |pid: &u32| Some((misfit(seek, &processes.get(pid)?.log)?, *pid));
    let mut fits: Vec<(u64, u32)> = engines.iter().filter_map(fit).collect();
    fits.sort_unstable();
    match fits.as_slice() {
        [(_, only)] => Some(*only),
        [(best, pid), (second, _), ..] if best.saturating_mul(CLEARLY) < *second => Some(*pid),
        _ => None,
    }
}

/// Median lag of the events behind the latest result, and how far lags are from it, twice; `None` where an event has no
/// step behind which it can come.
fn misfit(seek: Seek<'_>, log: &StepLog) -> Option<u64> {
    let first = log.begun_after(seek.read);
    let lag = |time: &u64| {
        let last = log.ended_by(*time).checked_sub(1).filter(|last| *last >= first)?;
        Some(time.saturating_sub(log.get(last).end))
    };
    let mut lags: Vec<u64> = seek.times.iter().map(lag).collect::<Option<_>>()?;
    let median = median(&mut lags);
    let mut off: Vec<u64> = lags.iter().map(|lag| lag.abs_diff(median)).collect();
    Some(median.saturating_add(2 * self::median(&mut off)))
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::step::StepInfo;

    const MS: u64 = 1_000_000;

    /// An engine whose steps take 8 ms, every fourth 12 ms, from a time on.
    fn engine(from: u64) -> Process {
        let mut process = Process::default();
        let mut begin = from;
        for i in 0..60_u64 {
            let end = begin + if i.is_multiple_of(4) { 12 * MS } else { 8 * MS };
            process.log.push(StepInfo { begin, end, tid: 1, ..StepInfo::default() });
            begin = end;
        }
        process
    }

    fn times(process: &Process, lag: u64) -> Vec<u64> {
        (4..20).map(|i| process.log.get(i).end + lag + (i as u64 * 7919 % 5) * MS / 20).collect()
    }

    #[test]
    fn token_times_tell_the_replica() {
        let table: BTreeMap<u32, Process> = [(1, engine(0)), (2, engine(3 * MS)), (3, engine(5 * MS))].into();
        let models = Models::default();
        for pid in [1, 2, 3] {
            for lag in [MS / 10, MS / 2, MS] {
                let times = times(&table[&pid], lag);
                let seek = Seek { read: 0, times: &times, model: Some("m") };
                let chosen = choose(seek, &[1, 2, 3], &table, &models);
                assert_eq!(chosen, Some(pid), "{lag}");
                assert_eq!(choose(Seek { times: &times[..3], ..seek }, &[1, 2, 3], &table, &models), None);
            }
        }
        let same: BTreeMap<u32, Process> = [(1, engine(0)), (2, engine(0))].into();
        let times = times(&same[&1], MS);
        let seek = Seek { read: 0, times: &times, model: None };
        assert_eq!(choose(seek, &[1, 2], &same, &models), None, "both fit");
    }

    #[test]
    fn the_model_tells_once_it_was_seen_at_one_engine() {
        let table: BTreeMap<u32, Process> = [(1, engine(0)), (2, engine(0))].into();
        let mut models = Models::default();
        let ask = |models: &Models, model| {
            choose(Seek { read: 0, times: &[], model: Some(model) }, &[1, 2], &table, models)
        };
        for _ in 0..VOTES {
            assert_eq!(ask(&models, "small"), None);
            models.was_at("small", 2);
            models.was_at("both", 1);
            models.was_at("both", 2);
        }
        assert_eq!(
            (ask(&models, "small"), ask(&models, "both"), ask(&models, "other")),
            (Some(2), None, None)
        );
        for n in 0..2 * MODELS_KEPT {
            models.was_at(&n.to_string(), 1);
        }
        assert_eq!(models.votes.len(), MODELS_KEPT);
    }
}
