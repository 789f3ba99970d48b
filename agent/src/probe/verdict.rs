//! What became of each probe, as pure data: intent and outcome in, state and reason out.
//!
//! `/status`, `check --strict`, `doctor` and the start-up line all read these.

use serde::Serialize;

/// State of one program on one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// In place; `reason` says what of it is missing, if anything.
    Attached,
    /// This kernel or this library does not have it: not an error, but a number is lost.
    Unsupported,
    /// It should have worked and did not.
    Broken,
    /// Deliberately not attached: it could hurt the target.
    Skipped,
}

/// What one hit of a probe costs, by how the kernel steps over the probed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostClass {
    /// A tracepoint: tens of nanoseconds.
    Tracepoint,
    /// The kernel emulates the instruction: one trap, about 0.7 µs on the development machine.
    Emulated,
    /// The kernel executes the instruction out of line and traps again: up to 10 µs in a virtual machine.
    SingleStep,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Program.
    pub program: &'static str,
    /// Tracepoint, or library.
    pub target: String,
    /// What is lost when it is attached nowhere.
    pub loses: &'static str,
}

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Places it was attached at.
    pub attached: usize,
    /// Cost class of the dearest of them.
    pub cost: Option<CostClass>,
    /// Names that the kernel or library does not have.
    pub absent: Vec<&'static str>,
    /// Names not attached because of a hazard, with the hazard's sentence.
    pub hazards: Vec<(&'static str, String)>,
    /// Names that failed, with the error.
    pub failures: Vec<(&'static str, String)>,
    /// The program itself was refused.
    pub refused: Option<String>,
}

/// The result for one program on one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProbeVerdict {
    /// Program.
    pub program: String,
    /// Tracepoint, or library.
    pub target: String,
    /// State.
    pub state: State,
    /// Why it is so, and what is lost, when it is not simply attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Cost of one hit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_class: Option<CostClass>,
    /// Places it is attached at.
    pub attached: usize,
}

/// Judges one program on one target.
pub fn judge(intent: &Intent, outcome: &Outcome) -> ProbeVerdict {
    let (state, reason) = state_and_reason(outcome);
    // What is attached in part still does its work for the rest.
    let loses = if outcome.attached > 0 { "calls to these are not seen" } else { intent.loses };
    ProbeVerdict {
        program: intent.program.to_owned(),
        target: intent.target.clone(),
        state,
        reason: reason.map(|reason| format!("{reason}; {loses}")),
        cost_class: outcome.cost,
        attached: outcome.attached,
    }
}

fn state_and_reason(outcome: &Outcome) -> (State, Option<String>) {
    if let Some(error) = &outcome.refused {
        return (State::Broken, Some(format!("the kernel refused the program: {error}")));
    }
    let mut reasons = Vec::new();
    if let Some((name, error)) = outcome.failures.first() {
        reasons.push(format!("{name}{}: {error}", others(outcome.failures.len())));
    }
    if let Some((name, sentence)) = outcome.hazards.first() {
        reasons.push(format!("{name}{}: {sentence}", others(outcome.hazards.len())));
    }
    if !outcome.absent.is_empty() {
        reasons.push(format!("not there: {}", outcome.absent.join(", ")));
    }
    let state = if outcome.attached > 0 {
        // A failed place in an attached program still is a fault of ours that someone must see.
        if outcome.failures.is_empty() { State::Attached } else { State::Broken }
    } else if !outcome.failures.is_empty() {
        State::Broken
    } else if !outcome.hazards.is_empty() {
        State::Skipped
    } else {
        State::Unsupported
    };
    (state, (!reasons.is_empty()).then(|| reasons.join("; ")))
}

fn others(count: usize) -> String {
    if count > 1 { format!(" and {} more", count - 1) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent() -> Intent {
        Intent {
            program: "cuda_launch",
            target: "libcuda.so.1".to_owned(),
            loses: "launches are not counted",
        }
    }

    #[test]
    fn each_outcome_has_its_state_and_sentence() {
        let fine = Outcome { attached: 2, cost: Some(CostClass::Emulated), ..Outcome::default() };
        let cases = [
            (fine.clone(), State::Attached, None),
            (
                Outcome { attached: 1, absent: vec!["cuLaunchKernelEx"], ..fine.clone() },
                State::Attached,
                Some("not there: cuLaunchKernelEx; calls to these are not seen"),
            ),
            (
                Outcome { absent: vec!["a", "b"], ..Outcome::default() },
                State::Unsupported,
                Some("not there: a, b; launches are not counted"),
            ),
            (
                Outcome { hazards: vec![("a", "it could crash".to_owned())], ..Outcome::default() },
                State::Skipped,
                Some("a: it could crash; launches are not counted"),
            ),
            (
                Outcome {
                    attached: 1,
                    failures: vec![("a", "EINVAL".to_owned()), ("b", "EINVAL".to_owned())],
                    ..Outcome::default()
                },
                State::Broken,
                Some("a and 1 more: EINVAL; calls to these are not seen"),
            ),
            (
                Outcome { refused: Some("invalid access".to_owned()), ..Outcome::default() },
                State::Broken,
                Some("the kernel refused the program: invalid access; launches are not counted"),
            ),
        ];
        for (outcome, state, reason) in cases {
            let verdict = judge(&intent(), &outcome);
            assert_eq!((verdict.state, verdict.reason.as_deref()), (state, reason), "{outcome:?}");
        }
    }

    #[test]
    fn a_verdict_is_plain_json() {
        let verdict = judge(
            &intent(),
            &Outcome { attached: 2, cost: Some(CostClass::SingleStep), ..Outcome::default() },
        );
        let json = serde_json::to_value(verdict).unwrap();
        assert_eq!(json["state"], "attached");
        assert_eq!(json["cost_class"], "single_step");
        assert_eq!(json["attached"], 2);
        assert!(json.get("reason").is_none());
    }
}
