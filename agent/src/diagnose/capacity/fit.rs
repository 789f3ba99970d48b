//! The knee of a curve of throughput by concurrency.
//!
//! Three curves are fitted to the points, each weighted by the time it was seen:
//!
//! - growth: `X = n / (α + β n)`, requests that get slower the more there are, without an end (USL with no retrograde
//!   part, `β` being contention);
//! - saturation: the same up to `K` requests, and no more throughput from there, as where a batch is full and the rest
//!   wait;
//! - USL: `X = n / (α + β n + γ n²)`, throughput that falls again beyond `sqrt(α / γ)`.
//!
//! There is a knee where one of the last two fits much better than the first, well within what was seen. Otherwise the
//! traffic does not show one, and that is said.

use serde::{Deserialize, Serialize};

use super::Point;

/// Requests behind a curve, at least.
const REQUESTS: u64 = 100;
/// Points, at least.
const POINTS: usize = 4;
/// The highest concurrency over the lowest, at least.
const SPAN: f64 = 2.0;
/// A knee must be passed: the highest concurrency over it, at least.
const PASSED: f64 = 1.2;
/// And explain most of what growth without an end leaves.
const BETTER: f64 = 0.5;
/// Share of throughput's variance that a curve must explain.
const R2: f64 = 0.9;
/// Inputs and outputs at the high end against those at the low end.
const ALIKE: f64 = 1.3;

/// How a knee was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Throughput grows up to it and no further.
    Saturation,
    /// Throughput falls again beyond it.
    Usl,
}

/// Where throughput stops growing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// Requests in flight.
    pub concurrency: f64,
    /// Throughput there, requests a second, by the fit.
    pub requests_per_s: f64,
    /// How it was found.
    pub method: Method,
    /// Share of the variance of throughput that the fit explains.
    pub r2: f64,
    /// Throughput of one request alone, requests a second, by the fit.
    pub alone_per_s: f64,
}

/// Why there is no knee.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Refusal {
    /// Too little to say anything.
    #[error("too few requests: {requests} of at least {least}")]
    TooFewRequests {
        /// Seen.
        requests: u64,
        /// Needed.
        least: u64,
    },
    /// Concurrency hardly changed.
    #[error(
        "too narrow a range: {least:.1} to {most:.1} requests in flight; at least twice as many, and four steps between, are needed"
    )]
    TooNarrow {
        /// The lowest concurrency seen.
        least: f64,
        /// The highest.
        most: f64,
    },
    /// Requests at the high end are others than at the low end.
    #[error("{what} differ: {high:.0} tokens on average where many were in flight, {low:.0} where few were")]
    InputsDiffer {
        /// `inputs` or `outputs`.
        what: String,
        /// Mean at the low end.
        low: f64,
        /// At the high end.
        high: f64,
    },
    /// It was not reached.
    #[error("throughput still grows at {most:.1} requests in flight, the most there were")]
    StillGrows {
        /// The highest concurrency seen.
        most: f64,
    },
    /// No curve fits.
    #[error("throughput follows no curve: the best one explains {:.0} % of it", r2 * 100.0)]
    NoFit {
        /// Share of the variance that the best curve explains.
        r2: f64,
    },
}

/// A fitted curve.
#[derive(Clone, Copy, Debug)]
struct Curve {
    /// `α, β, γ`.
    terms: [f64; 3],
    /// Where it ends to grow.
    limit: f64,
    /// Sum of weighted squares that it leaves.
    left: f64,
}

impl Curve {
    fn at(&self, n: f64) -> f64 {
        let [alone, contention, coherency] = self.terms;
        let n = n.min(self.limit);
        n / (alone + contention * n + coherency * n * n).max(1e-12)
    }
}

/// The knee of a curve from so many requests, or why there is none.
pub(super) fn knee(points: &[Point], requests: u64) -> Result<Knee, Refusal> {
    enough(points, requests)?;
    alike(points)?;
    let most = points.last().map_or(0.0, |point| point.concurrency);
    let growth = fit(points, f64::INFINITY, false);
    let saturation = saturation(points);
    let usl = fit(points, f64::INFINITY, true).filter(|curve| curve.terms[2] > 0.0);
    let peak = |curve: &Curve| (curve.terms[0] / curve.terms[2]).sqrt();
    let usl = usl.map(|curve| (Method::Usl, peak(&curve), curve));
    let saturation = saturation.map(|curve| (Method::Saturation, curve.limit, curve));
    let grows = growth.map_or(f64::INFINITY, |curve| curve.left);
    let is_seen = |(_, at, curve): &(Method, f64, Curve)| at * PASSED <= most && curve.left <= grows * BETTER;
    let found = [saturation, usl].into_iter().flatten().filter(is_seen);
    let all = variance(points);
    let Some((method, at, curve)) = found.min_by(|a, b| a.2.left.total_cmp(&b.2.left)) else {
        return Err(none(most, growth.map_or(0.0, |curve| 1.0 - curve.left / all)));
    };
    let r2 = 1.0 - curve.left / all;
    if r2 < R2 {
        return Err(Refusal::NoFit { r2 });
    }
    Ok(Knee { concurrency: at, requests_per_s: curve.at(at), method, r2, alone_per_s: curve.at(1.0) })
}

/// Without a knee throughput grows, or does what it likes.
fn none(most: f64, r2: f64) -> Refusal {
    if r2 < R2 { Refusal::NoFit { r2 } } else { Refusal::StillGrows { most } }
}

fn enough(points: &[Point], requests: u64) -> Result<(), Refusal> {
    if requests < REQUESTS {
        return Err(Refusal::TooFewRequests { requests, least: REQUESTS });
    }
    let ends = points.first().zip(points.last());
    let [least, most] = ends.map_or([0.0; 2], |(low, high)| [low.concurrency, high.concurrency]);
    if points.len() < POINTS || most < least * SPAN {
        return Err(Refusal::TooNarrow { least, most });
    }
    Ok(())
}

/// A number of a point, where it is known.
type OfPoint = fn(&Point) -> Option<f64>;

/// Requests at both ends, a third of the points each, are of one kind.
fn alike(points: &[Point]) -> Result<(), Refusal> {
    let third = points.len().div_ceil(3);
    let (low, high) = (&points[..third], &points[points.len() - third..]);
    let inputs: OfPoint = |point| point.input_tokens;
    let outputs: OfPoint = |point| point.output_tokens;
    for (what, of) in [("inputs", inputs), ("outputs", outputs)] {
        let Some((low, high)) = mean(low, of).zip(mean(high, of)) else { continue };
        if high.max(low) > high.min(low).max(1.0) * ALIKE {
            return Err(Refusal::InputsDiffer { what: what.to_owned(), low, high });
        }
    }
    Ok(())
}

/// Mean over requests.
fn mean(points: &[Point], of: OfPoint) -> Option<f64> {
    let weight = |point: &Point| point.requests_per_s * point.seconds;
    let known: Vec<(f64, f64)> =
        points.iter().filter_map(|point| Some((of(point)?, weight(point)))).collect();
    let all: f64 = known.iter().map(|(_, weight)| weight).sum();
    (all > 0.0).then(|| known.iter().map(|(value, weight)| value * weight).sum::<f64>() / all)
}

fn variance(points: &[Point]) -> f64 {
    let all: f64 = points.iter().map(|point| point.seconds).sum();
    let mean = points.iter().map(|point| point.seconds * point.requests_per_s).sum::<f64>() / all.max(1e-12);
    points.iter().map(|point| point.seconds * (point.requests_per_s - mean).powi(2)).sum::<f64>().max(1e-12)
}

/// The best limit, in steps of a fiftieth.
fn saturation(points: &[Point]) -> Option<Curve> {
    let (low, high) = (points.first()?.concurrency, points.last()?.concurrency);
    let limits = std::iter::successors(Some(low * 1.02), |limit| Some(limit * 1.02));
    let fitted = limits.take_while(|limit| *limit < high).filter_map(|limit| fit(points, limit, false));
    fitted.min_by(|a, b| a.left.total_cmp(&b.left))
}

/// Least squares of `n / X` over `n`, weighted so that what is left is about that of `X`.
fn fit(points: &[Point], limit: f64, is_retrograde: bool) -> Option<Curve> {
    let terms = if is_retrograde { 3 } else { 2 };
    let mut normal = [[0.0; 4]; 3];
    for point in points {
        let n = point.concurrency.min(limit);
        let x = point.requests_per_s.max(1e-12);
        let row = [1.0, n, n * n, n / x];
        let weight = point.seconds * (x * x / n).powi(2);
        for i in 0..terms {
            for j in [0, 1, 2, 3].into_iter().filter(|j| *j < terms || *j == 3) {
                normal[i][j] += weight * row[i] * row[j];
            }
        }
    }
    let [a, b, c] = solve(normal, terms)?;
    // A request takes time, and others make it no quicker.
    let terms = if b < 0.0 && !is_retrograde { [mean_alone(points, limit)?, 0.0, 0.0] } else { [a, b, c] };
    let curve = Curve { terms, limit, left: 0.0 };
    let left = |point: &Point| point.seconds * (curve.at(point.concurrency) - point.requests_per_s).powi(2);
    let left: f64 = points.iter().map(left).sum();
    (terms[0] > 0.0 && left.is_finite()).then_some(Curve { left, ..curve })
}

/// Time of a request where none makes another slower.
fn mean_alone(points: &[Point], limit: f64) -> Option<f64> {
    let sum = |of: fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|p| p.seconds * of(p.concurrency.min(limit), p.requests_per_s)).sum()
    };
    let (square, product) = (sum(|n, _| n * n), sum(|n, x| n * x));
    (product > 0.0).then(|| square / product)
}

/// Gaussian elimination with the first `terms` unknowns; `None` where they are not determined.
fn solve(mut normal: [[f64; 4]; 3], terms: usize) -> Option<[f64; 3]> {
    for i in 0..terms {
        let best = (i..terms).max_by(|a, b| normal[*a][i].abs().total_cmp(&normal[*b][i].abs()))?;
        normal.swap(i, best);
        let pivot = normal[i][i];
        if pivot.abs() < 1e-18 {
            return None;
        }
        for j in (0..terms).filter(|j| *j != i) {
            let factor = normal[j][i] / pivot;
            let row = normal[i];
            normal[j].iter_mut().zip(row).for_each(|(own, theirs)| *own -= factor * theirs);
        }
    }
    let mut all = [0.0; 3];
    (0..terms).for_each(|i| all[i] = normal[i][3] / normal[i][i]);
    Some(all)
}
