//! `cargo xtask docs`: what the README shows is what the demo prints.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{demo, out, workspace};

/// Arguments of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only look whether the README's excerpt still has the form of what the demo prints
    #[arg(long)]
    pub(crate) check: bool,
}

const START: &str = "<!-- excerpt: demo -->\n";
const END: &str = "<!-- /excerpt -->";

/// Refreshes the excerpt, or checks it.
pub(crate) fn command(args: &Args) -> Result<()> {
    let path = workspace::root().join("README.md");
    let text = fs::read_to_string(&path).context("cannot read README.md")?;
    if args.check {
        return check(&text);
    }
    let fresh = format!("```text\n{}```\n", demo::excerpt()?);
    fs::write(&path, replace(&text, &fresh)?).context("cannot write README.md")?;
    out::progress("docs", "README.md shows this run now");
    Ok(())
}

fn check(text: &str) -> Result<()> {
    let (_, excerpt, _) = split(text)?;
    for heading in demo::headings() {
        ensure!(excerpt.contains(&heading), "README.md shows an old demo; run `cargo xtask docs`");
    }
    Ok(())
}

fn replace(text: &str, fresh: &str) -> Result<String> {
    let (before, _, after) = split(text)?;
    Ok(format!("{before}{START}{fresh}{END}{after}"))
}

/// What stands before, in and after the excerpt.
fn split(text: &str) -> Result<(&str, &str, &str)> {
    let parts = text.split_once(START).and_then(|(before, rest)| {
        let (excerpt, after) = rest.split_once(END)?;
        Some((before, excerpt, after))
    });
    parts.with_context(|| format!("README.md has no `{}` … `{END}`", START.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_excerpt_changes() {
        let text = format!("a\n{START}old\n{END}\nb\n");
        assert_eq!(replace(&text, "new\n").unwrap(), format!("a\n{START}new\n{END}\nb\n"));
        assert!(replace("nothing", "new").is_err());
    }

    #[test]
    fn an_old_form_is_told() {
        assert!(check(&format!("{START}old\n{END}")).is_err());
        let current = demo::headings().join("\n");
        assert!(check(&format!("{START}{current}\n{END}")).is_ok());
    }
}
