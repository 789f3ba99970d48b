//! [5] What a process on a GPU is for, and why one thinks so.
//!
//! Requests that it answers with work of the GPU settle it. Without them, signs of training are added up; work that
//! goes on by itself without any is a batch. A role is never given without its evidence.

use serde::{Deserialize, Serialize};

use crate::decode::Sign;

/// What a process is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It answers requests.
    Inference,
    /// It trains.
    Training,
    /// It works through something, with nobody waiting for an answer.
    Batch,
    /// That is not known (yet).
    #[default]
    Unknown,
}

/// One thing that speaks for a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Evidence {
    /// Its service answered requests that came to a port of it.
    Requests {
        /// How many.
        count: u64,
        /// Of those, how many have steps of the GPU.
        with_steps: u64,
    },
    /// Its service listens on a port.
    Listens,
    /// Steps while no request of its service was in flight.
    StepsWithoutRequests {
        /// How many of them.
        steps: u64,
        /// Of how many.
        of: u64,
    },
    /// Its steps come as regularly as this: the standard deviation of the time between results over its mean.
    Regularity {
        /// The ratio.
        coefficient_of_variation: f64,
        /// Steps that it rests on.
        steps: u64,
    },
    /// Something that `/proc` shows.
    Sign(Sign),
}

/// What a role is judged by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals<'a> {
    /// Requests of its service, and those of them that have steps.
    pub(crate) requests: u64,
    pub(crate) with_steps: u64,
    /// Its service listens.
    pub(crate) listens: bool,
    /// Its steps (of late), and those during which no request of its service was in flight.
    pub(crate) steps: u64,
    pub(crate) idle_steps: u64,
    /// Deviation of the time between steps over its mean, and steps that it rests on.
    pub(crate) regularity: Option<(f64, u64)>,
    pub(crate) signs: &'a [Sign],
}

/// Steps that work without requests takes to mean something.
const MIN_STEPS: u64 = 50;
/// Up to this the time between steps is regular.
const REGULAR: f64 = 0.5;
/// Points that make it training.
const ENOUGH: u32 = 3;

/// The role, and what speaks for it.
pub(crate) fn judge(signals: &Signals<'_>) -> (Role, Vec<Evidence>) {
    let evidence = evidence(signals);
    let works_alone = signals.idle_steps >= MIN_STEPS && signals.idle_steps * 10 >= signals.steps * 9;
    let answers = answers(signals);
    let serving = signals.signs.iter().any(|sign| matches!(sign, Sign::ServingCommand { .. }));
    let points = points(signals, works_alone);
    let role = if answers || serving && signals.listens {
        Role::Inference
    } else if points >= ENOUGH {
        Role::Training
    } else if works_alone && !signals.listens {
        Role::Batch
    } else {
        Role::Unknown
    };
    let evidence = if role == Role::Unknown { Vec::new() } else { evidence };
    (role, evidence)
}

/// Its work is for requests: more than a tenth of its steps were while one was in flight. A scrape that happens to be
/// answered during a step is not. A process without steps is part of a service whose requests have them.
fn answers(signals: &Signals<'_>) -> bool {
    let busy = signals.steps.saturating_sub(signals.idle_steps);
    let by_others =
        signals.steps == 0 && signals.with_steps > 0 && signals.with_steps * 2 >= signals.requests;
    signals.requests > 0 && (busy * 10 > signals.steps || by_others)
}

/// How much speaks for training. A command line or data loaders need one more thing; what large inference servers
/// have as well (NCCL, several processes) is not enough while requests come.
fn points(signals: &Signals<'_>, works_alone: bool) -> u32 {
    let sign = |sign: &Sign| match sign {
        Sign::TrainingCommand { .. } | Sign::DataLoaders { .. } | Sign::Checkpoint { .. } => 2,
        Sign::Nccl | Sign::Distributed { .. } => 1,
        Sign::ServingCommand { .. } => 0,
    };
    let signs: u32 = signals.signs.iter().map(sign).sum();
    let is_regular =
        signals.regularity.is_some_and(|(variation, steps)| variation <= REGULAR && steps >= MIN_STEPS);
    // Regular work alone may be a batch as well: it only adds to a sign of more than one process or GPU.
    signs + u32::from(works_alone) + u32::from(works_alone && is_regular && signs > 1)
}

fn evidence(signals: &Signals<'_>) -> Vec<Evidence> {
    let mut evidence = Vec::new();
    let (count, with_steps) = (signals.requests, signals.with_steps);
    evidence.extend((count > 0).then_some(Evidence::Requests { count, with_steps }));
    evidence.extend(signals.listens.then_some(Evidence::Listens));
    let (steps, of) = (signals.idle_steps, signals.steps);
    evidence.extend((steps > 0).then_some(Evidence::StepsWithoutRequests { steps, of }));
    let regularity = signals.regularity.filter(|(_, steps)| *steps >= MIN_STEPS);
    evidence.extend(
        regularity.map(|(coefficient_of_variation, steps)| Evidence::Regularity {
            coefficient_of_variation,
            steps,
        }),
    );
    evidence.extend(signals.signs.iter().cloned().map(Evidence::Sign));
    evidence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_takes_what_only_that_role_has() {
        let train = Sign::TrainingCommand { word: "train".into() };
        let loaders = Sign::DataLoaders { workers: 4 };
        let serve = Sign::ServingCommand { word: "vllm".into() };
        let alone = Signals { steps: 100, idle_steps: 98, regularity: Some((0.1, 90)), ..Signals::default() };
        let server = Signals { requests: 5, with_steps: 5, listens: true, steps: 100, ..Signals::default() };
        let leak = |signs: Vec<Sign>| -> &'static [Sign] { signs.leak() };
        let cases = [
            ("nothing known", Signals::default(), Role::Unknown),
            ("answers", server.clone(), Role::Inference),
            (
                "answers, with what a large one has",
                Signals {
                    signs: leak(vec![Sign::Nccl, Sign::Distributed { processes: 8 }]),
                    ..server.clone()
                },
                Role::Inference,
            ),
            (
                "listens and is named a server",
                Signals { signs: leak(vec![serve.clone()]), listens: true, ..Signals::default() },
                Role::Inference,
            ),
            (
                "is named a server, and no more",
                Signals { signs: leak(vec![serve]), ..Signals::default() },
                Role::Unknown,
            ),
            ("works alone", alone.clone(), Role::Batch),
            ("works alone and listens", Signals { listens: true, ..alone.clone() }, Role::Unknown),
            (
                "works alone, is named for training",
                Signals { signs: leak(vec![train.clone()]), ..alone.clone() },
                Role::Training,
            ),
            (
                "is named for training, and no more",
                Signals { signs: leak(vec![train.clone()]), ..Signals::default() },
                Role::Unknown,
            ),
            (
                "named for training, with loaders",
                Signals { signs: leak(vec![train, loaders]), ..Signals::default() },
                Role::Training,
            ),
            (
                "NCCL, as for inference on several GPUs",
                Signals { signs: leak(vec![Sign::Nccl]), ..alone.clone() },
                Role::Batch,
            ),
            (
                "is scraped, works alone",
                Signals {
                    requests: 9,
                    with_steps: 1,
                    signs: leak(vec![Sign::Checkpoint { ending: "pt".into() }]),
                    ..alone.clone()
                },
                Role::Training,
            ),
            (
                "is scraped early on",
                Signals { requests: 1, with_steps: 1, steps: 10, idle_steps: 9, ..alone },
                Role::Unknown,
            ),
            (
                "a part without steps of its own",
                Signals { requests: 4, with_steps: 3, ..Signals::default() },
                Role::Inference,
            ),
        ];
        for (name, signals, want) in cases {
            let (role, evidence) = judge(&signals);
            assert_eq!(role, want, "{name}");
            assert_eq!(evidence.is_empty(), role == Role::Unknown, "{name}");
        }
    }
}
