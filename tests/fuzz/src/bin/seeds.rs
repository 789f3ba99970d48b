//! Writes the first inputs of a target into a folder: `seeds TARGET FOLDER`.

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let target = args.next().context("usage: seeds TARGET FOLDER")?;
    let folder = args.next().context("usage: seeds TARGET FOLDER")?;
    let target = fuzz::target(&target).with_context(|| format!("there is no target {target}"))?;
    std::fs::create_dir_all(&folder)?;
    for (index, seed) in (target.seeds)().iter().enumerate() {
        std::fs::write(format!("{folder}/seed-{index}"), seed)?;
    }
    Ok(())
}
