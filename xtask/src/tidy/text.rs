//! Rules for any text file: nothing about the machine it was written on, and a README whose code map is true.

use std::path::Path;

use super::Finding;
use super::source::File;

/// Folders that exist on somebody's machine only. In two parts, or this file would break its own rule.
const PRIVATE: &[(&str, &str)] =
    &[("/ro", "ot/"), ("/ho", "me/"), ("/Us", "ers/"), ("/wo", "rk/"), ("/tm", "p/w/")];

pub(crate) fn check(root: &Path, files: &[File]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = files.iter().flat_map(private_paths).collect();
    match files.iter().find(|file| file.path == Path::new("README.md")) {
        Some(readme) => findings.extend(code_map(root, readme)),
        None => findings.push(Finding::error("README.md", 1, "missing")),
    }
    findings
}

fn private_paths(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for (start, end) in PRIVATE {
            let path = format!("{start}{end}");
            let starts_here = |at: usize| {
                !line[..at].ends_with(|before: char| before.is_alphanumeric() || "-_.}".contains(before))
            };
            if line.match_indices(&path).any(|(at, _)| starts_here(at)) {
                findings.push(Finding::error(
                    &file.path,
                    index + 1,
                    format!("names a folder of one machine: {path}"),
                ));
            }
        }
    }
    findings
}

/// Every `path/` or `path/file.rs` in the first column of the README's code map exists.
fn code_map(root: &Path, readme: &File) -> Vec<Finding> {
    let lines: Vec<(usize, &str)> = readme.text.lines().enumerate().collect();
    let Some(start) = lines.iter().position(|(_, line)| line.starts_with("## Code map")) else {
        return vec![Finding::error(&readme.path, 1, "no section `## Code map`")];
    };
    let section = lines[start + 1..].iter().take_while(|(_, line)| !line.starts_with("## "));
    let rows =
        section.filter_map(|(index, line)| Some((index + 1, line.strip_prefix("| `")?.split('`').next()?)));
    rows.filter(|(_, path)| !root.join(path).exists())
        .map(|(line, path)| {
            Finding::error(&readme.path, line, format!("the code map names {path}, which does not exist"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_folders_are_found() {
        let found = |text: &str| !private_paths(&File { path: "x".into(), text: text.to_owned() }).is_empty();
        assert!(found(&format!("see {}{}user/x", "/ho", "me/")));
        assert!(!found(&format!("/var/lib{}{}x", "/ro", "ot/")));
        assert!(!found("/etc/stagelens.toml"));
    }

    #[test]
    fn the_code_map_is_compared_with_the_tree() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("agent")).unwrap();
        let readme =
            File { path: "README.md".into(), text: "## Code map\n| `agent` | x |\n| `gone` | y |\n".into() };
        let found = code_map(root.path(), &readme);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
    }
}
