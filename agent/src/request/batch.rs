//! How many requests were in a step.

use super::step::StepLog;

/// Mean number of requests in the steps `own` (sorted), which have been joined already.
///
/// `started` are the requests in flight that have written content, as times of their first events. Their assignment
/// is provisional: from the latest step before the first event until now. A request whose first event is
/// still to come is not counted, nor is one that was cut off before its first.
pub(crate) fn mean(log: &StepLog, own: &[usize], started: impl Iterator<Item = u64>) -> Option<f64> {
    if own.is_empty() {
        return None;
    }
    let done: u64 = own.iter().map(|i| u64::from(log.get(*i).members)).sum();
    let running: usize = started
        .filter_map(|t| log.ended_by(t).checked_sub(1))
        .map(|first| own.len() - own.partition_point(|i| *i < first))
        .sum();
    Some((done + running as u64) as f64 / own.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::step::StepInfo;

    /// Own steps, first events of those in flight, mean.
    type Case<'a> = (&'a [usize], &'a [u64], Option<f64>);

    #[test]
    fn finished_and_running() {
        let mut log = StepLog::default();
        for i in 0..10 {
            log.push(StepInfo { begin: i * 10, end: i * 10 + 10, tid: 1, ..StepInfo::default() });
        }
        log.join(&[0, 1, 2, 3], None, false);
        log.join(&[2, 3, 4, 5], None, false);
        // Ends at 10, 20, …: a first event at 45 belongs to step 3.
        let cases: [Case<'_>; 5] = [
            (&[2, 3, 4, 5], &[], Some(1.5)),
            (&[2, 3, 4, 5], &[45], Some(2.25)),
            (&[0, 1, 2, 3], &[5, 500], Some(1.5)),
            (&[0, 1, 2, 3], &[12], Some(2.5)),
            (&[], &[12], None),
        ];
        for (own, started, want) in cases {
            assert_eq!(mean(&log, own, started.iter().copied()), want, "{own:?} {started:?}");
        }
    }
}
