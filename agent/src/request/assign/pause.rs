//! How long a request sat out: between two of its tokens the engine ran many steps without it.
//!
//! Engines whose memory of keys and values is full preempt a running request, and compute all it had again when there
//! is room. From outside that is a stream that stands still while the engine's steps go on, and then goes on at its
//! usual pace: a write that is late delays the tokens behind it, or lets several come at once, and an engine that stands
//! still has no steps. Prefills that the engine runs by themselves look the same; they are few at a time.

use super::super::step::StepLog;

/// Steps without it in a row, from which it sat out.
const MANY: usize = 8;

/// From the result of the step before to the first launch of the step after, summed, ns; `None` where there was none.
/// `own` are its steps from its first token on.
pub(super) fn sat_out_ns(own: &[usize], log: &StepLog) -> Option<u64> {
    let pauses = own.windows(2).filter(|pair| pair[1] - pair[0] > MANY);
    let length = |pair: &[usize]| log.get(pair[1]).begin.saturating_sub(log.get(pair[0]).end);
    let sum = pauses.map(length).sum();
    (sum > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::{
        super::super::step::{StepInfo, StepLog},
        sat_out_ns,
    };

    #[test]
    fn many_steps_in_a_row_are_a_pause_and_few_are_not() {
        let mut log = StepLog::default();
        for i in 0..40 {
            log.push(StepInfo { begin: i * 10, end: i * 10 + 9, ..StepInfo::default() });
        }
        let cases: &[(&[usize], Option<u64>)] = &[
            (&[], None),
            (&[3], None),
            (&[0, 1, 2, 3], None),
            // Every other step, and eight of them for prefills of others.
            (&[0, 2, 4, 12], None),
            (&[0, 1, 11, 12], Some(110 - 19)),
            (&[0, 9, 10, 30], Some((90 - 9) + (300 - 109))),
        ];
        for (own, expected) in cases {
            assert_eq!(sat_out_ns(own, &log), *expected, "{own:?}");
        }
    }
}
