//! Percentiles of small samples.

/// The value at quantile `q` (nearest rank): a value that occurred, never one between two. `None` without values.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank of a small sample")]
    let rank = (q * sorted.len() as f64).ceil().max(1.0) as usize - 1;
    Some(sorted[rank.min(last)])
}

/// The largest value, 0 without any.
pub fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values = [4.0, 1.0, 3.0, 2.0];
        for (q, expected) in [(0.0, 1.0), (0.25, 1.0), (0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (1.0, 4.0)] {
            assert_eq!(quantile(&values, q), Some(expected), "{q}");
        }
        assert_eq!(quantile(&[], 0.5), None);
    }
}
