//! What was found of each scenario, and all of them in numbers.

use std::fmt;

use serde::Serialize;

/// What was found of one scenario.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Its name.
    pub name: &'static str,
    /// What had to come first.
    pub rule: Option<&'static str>,
    /// When that came first for the first time, seconds from the beginning.
    pub found_s: Option<f64>,
    /// What came first when the incident ended.
    pub last: Option<String>,
    /// When nothing was told any more, seconds from the end.
    pub closed_s: Option<f64>,
    /// What was told where nothing was wrong: of a quiet control at any time, of an incident before it began.
    pub wrongly: Vec<String>,
}

impl Verdict {
    /// The right finding came first within the time, and stayed there to the end.
    pub fn is_top(&self) -> bool {
        self.found_s.is_some() && self.last.as_deref() == self.rule
    }

    /// What it must be, it is.
    pub fn is_right(&self) -> bool {
        let told = self.rule.is_none() || (self.is_top() && self.closed_s.is_some());
        told && self.wrongly.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |at: Option<f64>| at.map_or("-".into(), |s| format!("{s:.0} s"));
        let (found, closed) = (seconds(self.found_s), seconds(self.closed_s));
        let mark = if self.is_right() { "ok" } else { "WRONG" };
        let rule = self.rule.unwrap_or("quiet");
        write!(f, "{mark:5} {:30} {rule:26} found {found:>5} closed {closed:>5}", self.name)?;
        if self.rule.is_some() && !self.is_top() {
            write!(f, "  first: {}", self.last.as_deref().unwrap_or("nothing"))?;
        }
        if !self.wrongly.is_empty() {
            write!(f, "  told for nothing: {}", self.wrongly.join(", "))?;
        }
        Ok(())
    }
}

/// The last line of `cargo xtask scenarios --json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Incidents acted.
    pub incidents: usize,
    /// Of them those whose rule came first, and still did at the end.
    pub top1: usize,
    /// Those whose rule did not come first within the minute.
    pub late: usize,
    /// Those of which something was still told two minutes after the end.
    pub not_closed: usize,
    /// Quiet controls acted.
    pub quiet: usize,
    /// Findings where nothing was wrong.
    pub false_findings: usize,
    /// Names of the scenarios in which something of this is not as it should be.
    pub failed: Vec<&'static str>,
}

impl Summary {
    /// Of all these.
    pub fn of(verdicts: &[Verdict]) -> Self {
        let incidents = || verdicts.iter().filter(|it| it.rule.is_some());
        Self {
            incidents: incidents().count(),
            top1: incidents().filter(|it| it.is_top()).count(),
            late: incidents().filter(|it| it.found_s.is_none()).count(),
            not_closed: incidents().filter(|it| it.closed_s.is_none()).count(),
            quiet: verdicts.len() - incidents().count(),
            false_findings: verdicts.iter().map(|it| it.wrongly.len()).sum(),
            failed: verdicts.iter().filter(|it| !it.is_right()).map(|it| it.name).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_counted_once_for_each_reason() {
        let right = Verdict {
            name: "a",
            rule: Some("x"),
            found_s: Some(9.0),
            last: Some("x".into()),
            closed_s: Some(40.0),
            wrongly: Vec::new(),
        };
        let verdicts = [
            right.clone(),
            Verdict { name: "b", last: Some("y".into()), ..right.clone() },
            Verdict { name: "c", found_s: None, closed_s: None, ..right.clone() },
            Verdict { name: "d", rule: None, wrongly: vec!["z".into()], ..Verdict::default() },
            Verdict { name: "e", rule: None, ..Verdict::default() },
        ];
        let want = Summary {
            incidents: 3,
            top1: 1,
            late: 1,
            not_closed: 1,
            quiet: 2,
            false_findings: 1,
            failed: vec!["b", "c", "d"],
        };
        assert_eq!(Summary::of(&verdicts), want);
    }
}
