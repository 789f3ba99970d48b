//! Incidents acted on the test rig under one agent, each with the finding that must come first, and quiet controls of
//! which nothing may be said.
//!
//! What is wrong is known from how it was made, so the agent is judged by nothing that it computed itself. Up to eight
//! servers at a time are acted side by side, each on a simulated GPU of its own of one node.
//!
//! | Module | |
//! |---|---|
//! | [`scenario`] | what a scenario is made of |
//! | [`incidents`], [`quiet`] | the scenarios |
//! | [`actor`], [`beside`] | a server with its load and trouble, and what else has its GPU |
//! | [`quota`] | a limit of its CPU time |
//! | [`node`] | the simulated GPUs as NVML tells them |
//! | [`group`] | scenarios side by side, from calm to calm |
//! | [`verdict`] | what was found, and the last line |

mod actor;
mod beside;
mod group;
mod incidents;
mod node;
mod quiet;
mod quota;
mod scenario;
mod verdict;

use std::path::Path;

use anyhow::{Result, ensure};
use system::agent::Agent;

pub use scenario::Scenario;
pub use verdict::{Summary, Verdict};

/// Simulated GPUs of a node, and so the most that scenarios side by side can have.
const GPUS: u32 = 8;

/// All scenarios, incidents first.
pub fn all() -> Vec<Scenario> {
    incidents::all().into_iter().chain(quiet::all()).collect()
}

/// Those of these names.
pub fn named(names: &[&str]) -> Result<Vec<Scenario>> {
    let mut all = all();
    all.retain(|it| names.contains(&it.name));
    ensure!(all.len() == names.len(), "not all of {names:?} are scenarios");
    Ok(all)
}

/// Acts them, as many side by side as there is room for, with files in folders of `dir`. `told` gets what is to be said
/// as soon as a group is over; `during` is called once in each group while all incidents go on.
pub fn run(
    scenarios: Vec<Scenario>,
    dir: &Path,
    mut told: impl FnMut(&[Verdict]),
    during: impl Fn(&Agent) -> Result<()>,
) -> Result<Vec<Verdict>> {
    let mut all = Vec::new();
    for (number, group) in groups(scenarios).into_iter().enumerate() {
        let own = dir.join(format!("group{number}"));
        std::fs::create_dir_all(&own)?;
        let verdicts = group::act(group, &own, &during)?;
        told(&verdicts);
        all.extend(verdicts);
    }
    Ok(all)
}

/// In an order that mixes those that are alike, which stand together in the tables, and with the same number of GPUs in
/// each group as far as that goes.
fn groups(scenarios: Vec<Scenario>) -> Vec<Vec<Scenario>> {
    let wanted: u32 = scenarios.iter().map(Scenario::gpus).sum();
    let mut groups: Vec<Vec<Scenario>> = (0..wanted.div_ceil(GPUS)).map(|_| Vec::new()).collect();
    for scenario in scenarios {
        let used = |group: &Vec<Scenario>| group.iter().map(Scenario::gpus).sum::<u32>();
        let emptiest = groups.iter_mut().min_by_key(|group| used(group));
        match emptiest {
            Some(group) if used(group) + scenario.gpus() <= GPUS => group.push(scenario),
            _ => groups.push(vec![scenario]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn there_is_room_for_every_group_and_no_scenario_is_lost() {
        let names: BTreeSet<&str> = all().iter().map(|it| it.name).collect();
        assert_eq!(names.len(), all().len(), "names are unique");
        let groups = groups(all());
        assert!(groups.iter().all(|group| group.iter().map(Scenario::gpus).sum::<u32>() <= GPUS));
        let kept: BTreeSet<&str> = groups.iter().flatten().map(|it| it.name).collect();
        assert_eq!(kept, names);
    }
}
