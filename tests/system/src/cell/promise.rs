//! What of the product's promise a cell breaks.

use super::{Cell, StageErrors};

/// Largest 99th percentile of the errors of times that the wire shows, milliseconds.
const WIRE_MS: f64 = 0.5;
/// Stages that must be right, the engine's part of a request.
const ENGINE: [&str; 3] = ["queue", "prefill", "decode"];

impl Cell {
    /// A clause for each that does not hold; empty when all do.
    pub fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut want = |holds: bool, text: String| {
            if !holds {
                found.push(text);
            }
        };
        want(self.requests_true > 0, "no request was made".into());
        want(self.missed == 0, format!("{} missed", self.missed));
        want(self.duplicated == 0, format!("{} reported twice", self.duplicated));
        want(self.unmatched == 0, format!("{} that never were", self.unmatched));
        want(
            self.stage_sum_err_us_max <= 1.0,
            format!("stages miss e2e by {:.1} us", self.stage_sum_err_us_max),
        );
        want(self.negative == 0, format!("{} negative stages", self.negative));
        let wire =
            [("ttft", self.ttft_err_ms_p99), ("e2e", self.e2e_err_ms_p99), ("tbt", self.tbt_err_ms_p99)];
        for (name, error) in wire {
            want(
                error.is_none_or(|ms| ms <= WIRE_MS),
                format!("{name} off by {:.2} ms at p99", error.unwrap_or(0.0)),
            );
        }
        want(self.exact_wrong == 0, format!("{} exact and wrong", self.exact_wrong));
        let batch = self.batch_within_1.unwrap_or(1.0);
        want(batch >= 0.95, format!("batch right in {:.1} % of steps", batch * 100.0));
        if self.streaming {
            found.extend(ENGINE.iter().flat_map(|stage| of_stage(stage, self.stages.get(stage))));
        } else {
            found.extend(self.of_bounds());
        }
        found
    }

    fn of_bounds(&self) -> Vec<String> {
        let (cover, over) = (self.bounds_cover.unwrap_or(1.0), self.bounds_over_ms_p50.unwrap_or(0.0));
        let certain = self.confidence.get("exact").copied().unwrap_or_default();
        let without = self.requests_true.saturating_sub(self.missed + self.bounds + certain);
        let clauses = [
            (cover >= 0.99, format!("bounds hold for {:.1} %", cover * 100.0)),
            (over <= 0.0, format!("bounds are {over:.1} ms too wide")),
            (without == 0, format!("{without} without bounds")),
        ];
        clauses.into_iter().filter(|clause| !clause.0).map(|clause| clause.1).collect()
    }
}

fn of_stage(name: &str, errors: Option<&StageErrors>) -> Vec<String> {
    let Some(errors) = errors else { return Vec::new() };
    let mut found = Vec::new();
    let near = [
        (errors.rel_p50, errors.abs_ms_p50, 0.10, 2.0, "p50"),
        (errors.rel_p95, errors.abs_ms_p95, 0.25, 5.0, "p95"),
    ];
    for (relative, ms, most, most_ms, at) in near {
        let (Some(relative), Some(ms)) = (relative, ms) else { continue };
        if relative > most && ms > most_ms {
            found.push(format!("{name} off by {:.0} %, {ms:.2} ms at {at}", relative * 100.0));
        }
    }
    let distribution =
        [(errors.dist_rel_p50, "p50"), (errors.dist_rel_p95, "p95"), (errors.dist_rel_p99, "p99")];
    for (relative, at) in distribution {
        if let Some(relative) = relative.filter(|relative| *relative > 0.05) {
            found.push(format!("{name}'s {at} off by {:.1} %", relative * 100.0));
        }
    }
    if errors.absent > 0 {
        found.push(format!("{} without {name}", errors.absent));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Cell {
        Cell { requests_true: 5, streaming: true, ..Cell::default() }
    }

    #[test]
    fn each_clause_is_checked() {
        let queue = |errors: StageErrors| Cell { stages: [("queue", errors)].into(), ..good() };
        let far = StageErrors { rel_p50: Some(0.11), abs_ms_p50: Some(2.1), ..StageErrors::default() };
        let tail = StageErrors { rel_p95: Some(0.26), abs_ms_p95: Some(5.1), ..StageErrors::default() };
        let cases = [
            ("missed", Cell { missed: 1, ..good() }),
            ("twice", Cell { duplicated: 1, ..good() }),
            ("ttft", Cell { ttft_err_ms_p99: Some(0.6), ..good() }),
            ("exact", Cell { exact_wrong: 1, ..good() }),
            ("batch", Cell { batch_within_1: Some(0.94), ..good() }),
            ("queue off by 11 %", queue(far)),
            ("at p95", queue(tail)),
            ("queue's p99", queue(StageErrors { dist_rel_p99: Some(0.06), ..StageErrors::default() })),
            ("without queue", queue(StageErrors { absent: 1, ..StageErrors::default() })),
            ("hold for 98.0 %", Cell { streaming: false, bounds: 5, bounds_cover: Some(0.98), ..good() }),
            ("too wide", Cell { streaming: false, bounds: 5, bounds_over_ms_p50: Some(1.0), ..good() }),
            ("without bounds", Cell { streaming: false, ..good() }),
        ];
        for (word, cell) in cases {
            let found = cell.violations();
            assert!(found.iter().any(|text| text.contains(word)), "{word}: {found:?}");
        }
        assert_eq!(good().violations(), Vec::<String>::new());
        let short = StageErrors { rel_p50: Some(0.5), abs_ms_p50: Some(1.0), ..StageErrors::default() };
        assert!(queue(short).violations().is_empty(), "either of the two is enough");
    }
}
