//! The files that the checks read.

use std::ffi::OsStr;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::spanned::Spanned;

/// A text file of the repository.
pub(crate) struct File {
    /// Relative to the workspace.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }
}

/// Folders that hold no source of ours.
const SKIPPED: [&str; 3] = ["target", ".git", "shared"];

/// All text files below `root`, sorted. Read from disk and not from git: a checkout in CI may have no git.
pub(crate) fn text_files(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            if SKIPPED.iter().any(|skipped| entry.file_name() == OsStr::new(skipped)) {
                continue;
            }
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let path = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
                files.push(File { path, text });
            }
        }
    }
    files.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(files)
}

/// A parsed Rust file.
pub(crate) struct Rust<'a> {
    pub(crate) path: &'a Path,
    pub(crate) text: &'a str,
    pub(crate) tree: syn::File,
    /// Whether the whole file is tests.
    pub(crate) is_test: bool,
}

impl<'a> Rust<'a> {
    pub(crate) fn parse(file: &'a File) -> syn::Result<Self> {
        let tree = syn::parse_file(&file.text)?;
        Ok(Self { path: &file.path, text: &file.text, tree, is_test: is_test_crate(&file.path) })
    }

    /// Folders and files of the `#[cfg(test)] mod x;` in it.
    pub(crate) fn test_modules(&self) -> Vec<PathBuf> {
        let stem = self.path.with_extension("");
        let is_root = ["main", "lib"].iter().any(|root| stem.ends_with(root));
        let folder = if is_root { self.path.parent().unwrap_or(self.path).to_path_buf() } else { stem };
        let modules = self.tree.items.iter().filter_map(|item| match item {
            syn::Item::Mod(module) if module.content.is_none() && module.attrs.iter().any(is_cfg_test) => {
                Some(folder.join(module.ident.to_string()))
            }
            _ => None,
        });
        modules.collect()
    }

    /// Lines of `#[cfg(test)]` modules.
    pub(crate) fn test_lines(&self) -> Vec<RangeInclusive<usize>> {
        let modules = self.tree.items.iter().filter(|item| match item {
            syn::Item::Mod(module) => module.attrs.iter().any(is_cfg_test),
            _ => false,
        });
        modules.map(lines).collect()
    }

    /// Lines of constant tables: they are data, and their length says nothing about the code.
    pub(crate) fn table_lines(&self) -> Vec<RangeInclusive<usize>> {
        let tables =
            self.tree.items.iter().filter(|item| matches!(item, syn::Item::Const(_) | syn::Item::Static(_)));
        tables.map(lines).collect()
    }
}

/// Marks the files of `#[cfg(test)]` modules, which only their parents know.
pub(crate) fn mark_tests(files: &mut [Rust]) {
    let modules: Vec<PathBuf> = files.iter().flat_map(Rust::test_modules).collect();
    for file in files {
        let path = file.path.with_extension("");
        file.is_test |= modules.iter().any(|module| path.starts_with(module));
    }
}

/// `<crate>/tests/x.rs`; the crates below `tests/` have a `src`.
fn is_test_crate(path: &Path) -> bool {
    let parts: Vec<_> = path.components().map(std::path::Component::as_os_str).skip(1).collect();
    parts.iter().any(|part| *part == "tests") && parts.iter().all(|part| *part != "src")
}

/// First to last line of a piece of syntax.
pub(crate) fn lines(piece: &impl Spanned) -> RangeInclusive<usize> {
    let span = piece.span();
    span.start().line..=span.end().line
}

/// `#[cfg(test)]`, also as a part of `all(..)`.
pub(crate) fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("cfg")
        && list.tokens.clone().into_iter().any(|token| match token {
            proc_macro2::TokenTree::Ident(word) => word == "test",
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_modules_in_files_of_their_own_are_known() {
        let text = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let files = [
            text("agent/src/stage.rs", "#[cfg(test)] mod simulator; mod partition;"),
            text("agent/src/stage/simulator.rs", ""),
            text("agent/src/stage/simulator/load.rs", ""),
            text("agent/src/stage/partition.rs", ""),
            text("agent/tests/cli.rs", ""),
            text("tests/system/src/rig.rs", ""),
            text("tests/system/tests/main.rs", ""),
        ];
        let mut parsed: Vec<Rust> = files.iter().map(|file| Rust::parse(file).unwrap()).collect();
        mark_tests(&mut parsed);
        let marks: Vec<bool> = parsed.iter().map(|file| file.is_test).collect();
        assert_eq!(marks, [false, true, true, false, true, false, true]);
    }
}
