//! Writes the first inputs of every target to `FOLDER/TARGET/`, and prints a line for each: name, longest input,
//! what it is about.

use std::{
    fs,
    io::{self, Write},
};

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).context("usage: seeds FOLDER")?;
    for target in fuzz::TARGETS {
        let folder = format!("{folder}/{}", target.name);
        fs::create_dir_all(&folder)?;
        for (index, seed) in (target.seeds)().iter().enumerate() {
            fs::write(format!("{folder}/seed-{index}"), seed)?;
        }
        writeln!(io::stdout(), "{}\t{}\t{}", target.name, target.max_len, target.about)?;
    }
    Ok(())
}
