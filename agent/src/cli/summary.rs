//! The summary under a replayed table: outcomes, and percentiles of what users wait for.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use crate::{
    export::json,
    health::Health,
    request::{RequestRecord, record::Outcome},
};

/// Gathers the requests of a replay.
#[derive(Debug, Default)]
pub(super) struct Summary {
    outcomes: BTreeMap<Outcome, u64>,
    unknown: u64,
    /// Values in seconds by name of the number.
    values: BTreeMap<(u8, String), Vec<f64>>,
}

/// Rows in this order; stages come after them, in the order of the table.
const E2E: u8 = 0;
const TTFT: u8 = 1;
const TBT: u8 = 2;
const TPOT: u8 = 3;
const STAGE: u8 = 4;

impl Summary {
    /// Takes one request.
    pub(super) fn add(&mut self, record: &RequestRecord) {
        match record.outcome {
            Some(outcome) => *self.outcomes.entry(outcome).or_default() += 1,
            None => self.unknown += 1,
        }
        for (rank, name, value) in
            [(E2E, "e2e", record.e2e_s), (TTFT, "ttft", record.ttft_s), (TPOT, "tpot", record.tpot_s)]
        {
            self.extend(rank, name, value);
        }
        self.extend(TBT, "tbt", record.tbt_gaps_s.iter().copied());
        for (stage, &seconds) in &record.stages {
            self.extend(STAGE, stage.strip_suffix("_s").unwrap_or(stage), Some(seconds));
        }
    }

    fn extend(&mut self, rank: u8, name: &str, values: impl IntoIterator<Item = f64>) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_some() {
            self.values.entry((rank, name.to_owned())).or_default().extend(values);
        }
    }

    /// The summary as text.
    pub(super) fn text(&mut self, health: &Health) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text, health);
        text
    }

    fn write(&mut self, text: &mut String, health: &Health) -> fmt::Result {
        let total: u64 = self.outcomes.values().sum::<u64>() + self.unknown;
        write!(text, "\n{total} requests")?;
        for (outcome, n) in &self.outcomes {
            write!(text, ", {n} {}", json::name(outcome))?;
        }
        writeln!(text)?;
        if !self.values.is_empty() {
            writeln!(text, "{:<14}{:>8}{:>10}{:>10}{:>10}{:>10}", "ms", "n", "p50", "p95", "p99", "max")?;
        }
        for ((_, name), values) in &mut self.values {
            values.sort_by(f64::total_cmp);
            write!(text, "{name:<14}{:>8}", values.len())?;
            for share in [0.5, 0.95, 0.99, 1.0] {
                write!(text, "{:>10.3}", percentile(values, share) * 1e3)?;
            }
            writeln!(text)?;
        }
        let (failed, dropped) = (health.failed.values().sum::<u64>(), dropped(health));
        writeln!(
            text,
            "{} records, {failed} of them not decodable; {dropped} lost in the kernel",
            health.seen
        )
    }
}

fn dropped(health: &Health) -> u64 {
    health.kernel.iter().filter(|(name, _)| name.starts_with("drop_")).map(|(_, n)| n).sum()
}

/// Nearest rank: the smallest value that at least this share of the values do not exceed. `sorted` is not empty.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length, rounded up"
    )]
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        for (share, want) in [(0.0, 1.0), (0.5, 100.0), (0.95, 190.0), (0.99, 198.0), (1.0, 200.0)] {
            assert_eq!(percentile(&values, share).to_bits(), f64::to_bits(want), "{share}");
        }
        assert_eq!(percentile(&[7.0], 0.5).to_bits(), 7.0_f64.to_bits());
    }

    #[test]
    fn the_text_has_a_row_for_every_number_that_is_known() {
        let mut summary = Summary::default();
        for (n, outcome) in [(1.0, Outcome::Ok), (2.0, Outcome::Ok), (3.0, Outcome::Truncated)] {
            summary.add(&RequestRecord {
                outcome: Some(outcome),
                e2e_s: Some(n),
                ttft_s: Some(n / 10.0),
                tbt_gaps_s: vec![0.001, 0.003],
                stages: [("queue_s".to_owned(), 0.5)].into(),
                ..RequestRecord::default()
            });
        }
        let mut health = Health { seen: 9, ..Health::default() };
        health.fail("short");
        health.kernel = [("drop_step_ring_full".to_owned(), 2)].into();
        expect_test::expect![[r"

            3 requests, 2 ok, 1 truncated
            ms                   n       p50       p95       p99       max
            e2e                  3  2000.000  3000.000  3000.000  3000.000
            ttft                 3   200.000   300.000   300.000   300.000
            tbt                  6     1.000     3.000     3.000     3.000
            queue                3   500.000   500.000   500.000   500.000
            9 records, 1 of them not decodable; 2 lost in the kernel
        "]]
        .assert_eq(&summary.text(&health));
    }
}
