//! Commands that end by themselves, and their exit codes.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use system::agent::command;
use system::rig::{Server, ServerOptions, Shape};

/// Attaches everything to a running server, and nothing fails.
pub(crate) fn check_strict(dir: &Path) -> Result<()> {
    let mut server = Server::start(&ServerOptions::new(Shape::Split), dir)?;
    let output = command(&["check", "--strict"])?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(0), "{}: {said}", output.status);
    server.stop()
}

/// Says what this host allows.
pub(crate) fn doctor(_: &Path) -> Result<()> {
    let output = command(&["doctor"])?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.code() == Some(0), "{}: {said}", output.status);
    ensure!(said.lines().count() >= 3, "doctor has little to say: {said}");
    Ok(())
}

/// A wrong config ends with 64 and names the key, before anything is attached.
pub(crate) fn bad_config(dir: &Path) -> Result<()> {
    let file = dir.join("bad.toml");
    let path = file.to_str().context("UTF-8")?;
    for (text, key) in
        [("lissten = \"127.0.0.1:1\"\n", "lissten"), ("[ring]\nsize_bytes = 3\n", "ring.size_bytes")]
    {
        fs::write(&file, text)?;
        let output = command(&["run", "--config", path])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(64), "{text}: {}: {said}", output.status);
        ensure!(said.contains(key), "the message does not name {key}: {said}");
        ensure!(!said.contains("attached"), "something was attached first: {said}");
    }
    Ok(())
}
