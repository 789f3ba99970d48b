//! Why it was slow: some of the incidents that `cargo xtask scenarios` acts, side by side under one agent, and one control
//! in which nothing is wrong.

use std::path::Path;

use anyhow::{Result, ensure};
use system::agent::{self, Agent};

/// Of each kind one, as many as there is room for side by side.
const ACTED: &[&str] = &[
    "longer_prompts",
    "more_than_it_can_take",
    "memory_of_keys_too_small",
    "engine_that_fails",
    "blocked_event_loop",
    "fragments_of_another_job",
    "training_job_beside",
    "nothing",
];

pub(crate) fn incidents_are_told(dir: &Path) -> Result<()> {
    let verdicts = scenarios::run(scenarios::named(ACTED)?, dir, |_| {}, told_to_people)?;
    let lines: Vec<String> = verdicts.iter().map(ToString::to_string).collect();
    let lines = lines.join("\n");
    std::fs::write(dir.join("result"), &lines)?;
    ensure!(verdicts.iter().all(scenarios::Verdict::is_right), "\n{lines}");
    Ok(())
}

/// The command, its exit code, and the metric say the same.
fn told_to_people(agent: &Agent) -> Result<()> {
    let url = format!("http://{}", agent.address());
    let said = agent::command(&["diagnose", "--url", &url])?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    ensure!(said.status.code() == Some(1), "a finding goes on: {:?}\n{text}", said.status);
    ensure!(text.contains("input_drift") && text.contains("look next:"), "{text}");
    let changes = agent::command(&["changes", "--url", &url])?;
    ensure!(changes.status.success(), "{changes:?}");
    let metrics = agent.metrics_text()?;
    let is_it = |line: &str| {
        line.starts_with("inference_finding_active{rule=\"input_drift\"") && line.ends_with(" 1.0")
    };
    ensure!(metrics.lines().any(is_it), "{metrics}");
    Ok(())
}
