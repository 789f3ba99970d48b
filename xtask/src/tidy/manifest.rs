//! Manifests: lints in every crate, and what must not be linked.

use std::path::Path;

use anyhow::Result;

use super::Finding;
use super::source::File;
use crate::command::{cargo, quiet};

/// The only place crates may come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(crate) fn check(root: &Path, files: &[File]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in files {
        match file.path.file_name().and_then(|name| name.to_str()) {
            Some("Cargo.toml") => findings.extend(lints(file)),
            Some("Cargo.lock") => findings.extend(sources(file)),
            _ => {}
        }
    }
    if root.join("agent/Cargo.toml").exists() && links_aya_ebpf()? {
        let text = "the agent links aya-ebpf, which replaces libc's memcpy by a slow one; share types through `wire`";
        findings.push(Finding::error("agent/Cargo.toml", 1, text));
    }
    Ok(findings)
}

fn lints(file: &File) -> Option<Finding> {
    let is_crate = file.text.lines().any(|line| line.trim() == "[package]");
    let mut after = file.text.lines().skip_while(|line| line.trim() != "[lints]").skip(1);
    let inherits = after.next().is_some_and(|line| line.replace(' ', "") == "workspace=true");
    (is_crate && !inherits).then(|| {
        Finding::error(
            &file.path,
            1,
            "the crate does not opt in to the workspace's lints: `[lints] workspace = true`",
        )
    })
}

fn sources(file: &File) -> Vec<Finding> {
    let foreign = file.text.lines().enumerate().filter(|(_, line)| {
        line.strip_prefix("source = ").is_some_and(|source| source.trim_matches('"') != REGISTRY)
    });
    foreign
        .map(|(index, line)| Finding::error(&file.path, index + 1, format!("a crate from elsewhere: {line}")))
        .collect()
}

fn links_aya_ebpf() -> Result<bool> {
    let mut tree = cargo();
    tree.args([
        "tree",
        "--locked",
        "--package",
        "agent",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    Ok(quiet(&mut tree)?.lines().any(|line| line.starts_with("aya-ebpf ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File { path: "x/Cargo.toml".into(), text: text.to_owned() }
    }

    #[test]
    fn every_crate_opts_in_to_the_lints() {
        assert!(lints(&file("[package]\nname = \"x\"\n")).is_some());
        assert!(lints(&file("[package]\nname = \"x\"\n[lints]\nworkspace = true\n")).is_none());
        assert!(lints(&file("[workspace]\n")).is_none());
    }

    #[test]
    fn crates_come_from_one_registry() {
        let lock = format!("source = \"{REGISTRY}\"\nsource = \"git+https://example.org/x\"\n");
        let found = sources(&file(&lock));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
    }
}
