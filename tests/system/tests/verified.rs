//! How many instructions the kernel's verifier goes through for each program: what a change costs shows before a kernel
//! refuses it (at a million).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use system::agent::Agent;

/// Ceilings, and the kernel where they were counted; others count otherwise.
const CEILINGS: &str = include_str!("../verified_instructions.txt");
/// More than this of the ceiling is too much.
const SLACK: f64 = 1.1;

type Counts = BTreeMap<String, u64>;

/// Each program of both tiers against its ceiling.
pub(crate) fn instructions(dir: &Path) -> Result<()> {
    let mut counts = Counts::new();
    for tier in ["a", "b"] {
        let at = dir.join(tier);
        fs::create_dir_all(&at)?;
        counts.extend(counted(tier, &at)?);
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let kernel =
        CEILINGS.lines().find_map(|line| line.strip_prefix("kernel ")).context("a kernel is named")?;
    let table =
        counts.iter().fold(format!("kernel {}\n", version(&release)), |mut table, (program, count)| {
            let _ = writeln!(table, "{program} {count}");
            table
        });
    fs::write(dir.join("verified_instructions.txt"), &table)?;
    let most = counts.values().max().copied().unwrap_or_default();
    ensure!(counts.len() > 10 && most < 1_000_000, "what was counted cannot be all: {counts:#?}");
    if kernel != version(&release) {
        // Nothing to compare with; it was loaded, which is what matters there.
        return Ok(());
    }
    let ceilings = ceilings()?;
    let over = counts.iter().filter(|(program, count)| {
        ceilings.get(*program).is_none_or(|ceiling| **count as f64 > *ceiling as f64 * SLACK)
    });
    let over: Vec<_> = over.map(|(program, count)| (program, ceilings.get(program), count)).collect();
    ensure!(
        over.is_empty(),
        "more than their ceilings (program, ceiling, now): {over:?}\nif that is meant, take over into \
         tests/system/verified_instructions.txt:\n{table}"
    );
    Ok(())
}

fn counted(tier: &str, dir: &Path) -> Result<Counts> {
    let config = dir.join("tier.toml");
    fs::write(&config, format!("[socket]\ntier = \"{tier}\"\n"))?;
    let mut agent = Agent::start(dir, &["--config", &config.display().to_string()])?;
    let status: Value = serde_json::from_str(&agent.get("/api/v1/status")?)?;
    agent.stop()?;
    serde_json::from_value(status["verified_instructions"].clone()).context("the status has the counts")
}

/// Major and minor number.
fn version(release: &str) -> String {
    release.split(['.', '-']).take(2).collect::<Vec<_>>().join(".").trim().to_owned()
}

fn ceilings() -> Result<Counts> {
    let lines = CEILINGS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("kernel "));
    let pair = |line: &str| {
        let (program, count) = line.split_once(' ').context("a program and a number")?;
        Ok((program.to_owned(), count.parse()?))
    };
    lines.map(pair).collect()
}
