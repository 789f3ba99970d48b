//! Counting what test binaries report, from the text that every libtest-compatible harness prints.

use std::collections::BTreeMap;

use crate::out;

/// What a test needs and covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Beside the code.
    Unit,
    /// A crate from outside: its binary or library as others use it.
    Integration,
    /// A committed recording in, an expected text out.
    Golden,
    /// Examples in documentation.
    Doc,
    /// The real agent on real probes, with root.
    System,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Unit => "unit",
            Kind::Integration => "integration",
            Kind::Golden => "golden",
            Kind::Doc => "doc",
            Kind::System => "system",
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Results of all binaries so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    kinds: BTreeMap<Kind, Counts>,
    /// `kind test: reason`, in order of appearance.
    skips: Vec<String>,
    /// Tests that failed and then passed.
    unsteady: Vec<String>,
    /// The only test whose words count.
    only: Option<String>,
}

impl Tally {
    /// Takes one line of a binary's output.
    pub(crate) fn line(&mut self, kind: Kind, line: &str) {
        if let Some(counts) = summary(line) {
            self.kinds.entry(kind).or_default().add(&counts);
        } else if let Some((name, reason)) = skip(line).filter(|(name, _)| self.hears(name)) {
            self.skips.push(format!("{} {name}: {reason}", kind.name()));
        }
    }

    /// One that hears of a single test, whatever else its program says at its start.
    pub(crate) fn of_test(name: &str) -> Self {
        Self { only: Some(name.to_owned()), ..Self::default() }
    }

    /// Takes in what another has counted.
    pub(crate) fn add(&mut self, other: Self) {
        for (kind, counts) in other.kinds {
            self.kinds.entry(kind).or_default().add(&counts);
        }
        self.skips.extend(other.skips);
        self.unsteady.extend(other.unsteady);
    }

    /// A test that did not begin before its time was up.
    pub(crate) fn left_out(&mut self, kind: Kind, name: &str) {
        self.kinds.entry(kind).or_default().skipped += 1;
        self.skips.push(format!("{} {name}: not run, the time given was up", kind.name()));
    }

    /// A test that passed when it ran once more.
    pub(crate) fn unsteady(&mut self, name: &str) {
        self.unsteady.push(name.to_owned());
    }

    /// A binary that died without a summary, or failed after it.
    pub(crate) fn crashed(&mut self, kind: Kind) {
        self.kinds.entry(kind).or_default().failed += 1;
    }

    /// Tests that failed, of all kinds.
    pub(crate) fn failed(&self) -> u64 {
        self.kinds.values().map(|counts| counts.failed).sum()
    }

    fn hears(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == name)
    }

    /// Failures of one kind.
    pub(crate) fn failed_of(&self, kind: Kind) -> u64 {
        self.kinds.get(&kind).map_or(0, |counts| counts.failed)
    }

    /// The table, the reasons and the last line.
    pub(crate) fn print(&self) {
        out::line("");
        for (kind, counts) in &self.kinds {
            out::line(format_args!(
                "{:<11} {:>4} passed {:>4} failed {:>4} skipped",
                kind.name(),
                counts.passed,
                counts.failed,
                counts.skipped
            ));
        }
        for skip in &self.skips {
            out::line(format_args!("skipped: {skip}"));
        }
        for name in &self.unsteady {
            out::line(format_args!("unsteady: {name}: failed, and passed when it ran once more"));
        }
        let passed: u64 = self.kinds.values().map(|counts| counts.passed).sum();
        out::line(format_args!("{passed} passed, {} failed", self.failed()));
    }
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; …`
fn summary(line: &str) -> Option<Counts> {
    let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |word: &str| {
        rest.split("; ").find_map(|part| part.strip_suffix(word)?.trim().parse().ok()).unwrap_or_default()
    };
    Some(Counts { passed: count("passed"), failed: count("failed"), skipped: count("ignored") })
}

/// `test name ... ignored, reason`, or our system tests' `skip: name: reason`.
fn skip(line: &str) -> Option<(&str, &str)> {
    if let Some(rest) = line.strip_prefix("skip: ") {
        return rest.split_once(": ");
    }
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ignored, ")?;
    Some((name, rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_libtest_are_counted() {
        let mut tally = Tally::default();
        for line in [
            "running 5 tests",
            "test a ... ok",
            "test b ... ignored, needs a GPU",
            "test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ] {
            tally.line(Kind::Unit, line);
        }
        tally.line(Kind::Unit, "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured");
        assert_eq!(tally.kinds[&Kind::Unit], Counts { passed: 5, failed: 1, skipped: 1 });
        assert_eq!(tally.skips, ["unit b: needs a GPU"]);
    }

    #[test]
    fn our_skips_carry_their_reason() {
        assert_eq!(skip("skip: kill: needs root: really"), Some(("kill", "needs root: really")));
        assert_eq!(skip("test a ... ok"), None);
    }

    #[test]
    fn a_single_test_is_heard_alone() {
        let mut tally = Tally::of_test("a");
        for line in
            ["skip: a: no nginx", "skip: b: no node", "test result: ok. 0 passed; 0 failed; 1 ignored"]
        {
            tally.line(Kind::System, line);
        }
        let mut sum = Tally::default();
        sum.add(tally);
        sum.left_out(Kind::System, "c");
        assert_eq!(sum.skips, ["system a: no nginx", "system c: not run, the time given was up"]);
        assert_eq!(sum.kinds[&Kind::System].skipped, 2);
    }

    #[test]
    fn a_crash_counts_as_a_failure() {
        let mut tally = Tally::default();
        tally.crashed(Kind::System);
        assert_eq!((tally.failed(), tally.failed_of(Kind::Unit)), (1, 0));
    }
}
