//! What really happened on the simulated devices, from the history that each process wrote: the truth about overlap
//! and inflation.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Work of a process on a device, from the call of the first launch to the return of the wait, ns.
pub type Interval = [u64; 2];

/// A step that is in company for this share of its time is compared; so the agent defines it.
const COMPANY: f64 = 0.1;

/// The steps of a process on one device, in order.
pub fn steps(path: &Path, device: u64) -> Result<Vec<Interval>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut steps, mut first) = (Vec::new(), None);
    for line in text.lines() {
        let line: Value = serde_json::from_str(line)?;
        if line[1] != device {
            continue;
        }
        let time = |index: usize| line[index].as_u64().context("a time is a number");
        match line[0].as_str() {
            Some("op") => first = first.or(Some(time(3)?)),
            Some("wait") => {
                if let Some(first) = first.take() {
                    steps.push([first, time(2)?]);
                }
            }
            _ => bail!("what is {line}?"),
        }
    }
    Ok(steps)
}

/// How long both had work, seconds. The steps of each follow one another.
pub fn overlap(one: &[Interval], other: &[Interval]) -> f64 {
    one.iter().map(|&step| within(step, other)).sum::<u64>() as f64 / 1e9
}

/// Median time of those of `victim` that were in the company of `other`, over that of those that were alone; and how
/// many there are of each.
pub fn inflation(victim: &[Interval], other: &[Interval]) -> Option<(f64, usize, usize)> {
    let (mut alone, mut company) = (Vec::new(), Vec::new());
    for &[begin, end] in victim {
        let (both, length) = (within([begin, end], other), (end - begin) as f64);
        if both == 0 {
            alone.push(length);
        } else if both as f64 >= COMPANY * length {
            company.push(length);
        }
    }
    Some((median(&mut company)? / median(&mut alone)?, alone.len(), company.len()))
}

fn within([begin, end]: Interval, others: &[Interval]) -> u64 {
    let first = others.partition_point(|other| other[1] <= begin);
    let touched = others[first..].iter().take_while(|other| other[0] < end);
    touched.map(|other| other[1].min(end) - other[0].max(begin)).sum()
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_becomes_steps() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let text = "[\"op\",0,\"compute\",10,12,20]\n[\"op\",1,\"compute\",11,12,20]\n[\"op\",0,\"h2d\",15,20,25]\n\
                    [\"wait\",0,26]\n[\"wait\",0,27]\n[\"op\",0,\"compute\",30,30,35]\n[\"wait\",1,40]\n[\"wait\",0,36]\n";
        fs::write(&path, text).unwrap();
        assert_eq!(steps(&path, 0).unwrap(), [[10, 26], [30, 36]]);
        assert_eq!(steps(&path, 1).unwrap(), [[11, 40]]);
    }

    #[test]
    fn overlap_and_inflation_by_hand() {
        let victim = [[0, 10], [20, 30], [40, 60], [70, 90]];
        let other = [[42, 55], [58, 72], [74, 95]];
        assert!((overlap(&victim, &other) * 1e9 - (13.0 + 2.0 + 2.0 + 16.0)).abs() < 0.5);
        assert_eq!(inflation(&victim, &other), Some((2.0, 2, 2)));
        assert_eq!(inflation(&victim, &[]), None);
    }
}
