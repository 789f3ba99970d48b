//! `cargo xtask scenarios`: incidents acted on the rig, each with the finding that must come first, and quiet controls.

use anyhow::{Context, Result, bail};
use scenarios::Summary;

use crate::command::{cargo, run};
use crate::{build, out, setup, workspace};

/// Arguments of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this scenario; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Print as the last line one JSON object with all numbers
    #[arg(long)]
    json: bool,
    /// Name the scenarios, and act none
    #[arg(long)]
    list: bool,
    /// Take the binaries of the last build as they are
    #[arg(long)]
    no_build: bool,
}

/// Acts them, and prints a line for each.
pub(crate) fn command(args: &Args) -> Result<()> {
    let scenarios = if args.only.is_empty() {
        scenarios::all()
    } else {
        scenarios::named(&args.only.iter().map(String::as_str).collect::<Vec<_>>())?
    };
    if args.list {
        for it in &scenarios {
            out::line(format_args!("{} {}", it.name, it.rule.unwrap_or("-")));
        }
        return Ok(());
    }
    let ready = setup::ensure();
    if !args.no_build {
        build::release(&ready)?;
    }
    if let Err(reason) = &ready.live {
        bail!("scenarios can only be acted live: {reason}");
    }
    run(cargo().args(["build", "--locked", "--package", "system", "--bin", "gpujob"]))?;
    let dir = workspace::target().join("scenarios");
    let _ = std::fs::remove_dir_all(&dir);
    let told = |group: &[scenarios::Verdict]| group.iter().for_each(|it| out::line(format_args!("{it}")));
    let verdicts = scenarios::run(scenarios, &dir, told, |_| Ok(()))?;
    let summary = Summary::of(&verdicts);
    out::line(format_args!(
        "{} of {} incidents told right; {} false findings in {} quiet controls",
        summary.top1, summary.incidents, summary.false_findings, summary.quiet
    ));
    if args.json {
        out::line(format_args!("{}", serde_json::to_string(&summary).context("a summary is JSON")?));
    }
    if summary.failed.is_empty() {
        Ok(())
    } else {
        bail!("not as they should be: {}", summary.failed.join(", "))
    }
}
