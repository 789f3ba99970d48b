//! Sizes: a file that fits a head, a function that fits a screen, and a first line that says what a module is.

use std::ops::RangeInclusive;

use syn::visit::{self, Visit};

use super::Finding;
use super::source::{Rust, is_cfg_test, lines};

/// Lines of code above which a file is too long, and above which it soon will be.
const FILE_CODE_LINES: usize = 500;
const FILE_LINES_WARNED: usize = 400;
/// Lines of a function, signature and braces included.
const FUNCTION_LINES: usize = 60;

pub(crate) fn check(file: &Rust) -> Vec<Finding> {
    let mut findings = Vec::new();
    let says_it_by_name = file.is_test && file.path.ends_with("tests.rs");
    if !says_it_by_name && !file.text.trim_start().starts_with("//!") {
        findings.push(Finding::error(
            file.path,
            1,
            "a module starts with a `//!` line that says what it is for",
        ));
    }
    // Tables of cases make tests long without making them hard to read.
    if file.is_test {
        return findings;
    }
    findings.extend(file_size(file));
    let mut functions = Functions { file, findings: Vec::new() };
    functions.visit_file(&file.tree);
    findings.extend(functions.findings);
    findings
}

fn file_size(file: &Rust) -> Option<Finding> {
    let mut left_out = file.test_lines();
    let total = file.text.lines().count() - left_out.iter().map(|range| range.clone().count()).sum::<usize>();
    left_out.extend(file.table_lines());
    let code = code_lines(file.text, &left_out);
    if code > FILE_CODE_LINES {
        return Some(Finding::error(
            file.path,
            1,
            format!("{code} lines of code, more than {FILE_CODE_LINES}: split it"),
        ));
    }
    (total > FILE_LINES_WARNED).then(|| {
        Finding::warning(file.path, 1, format!("{total} lines without tests: consider splitting it"))
    })
}

fn code_lines(text: &str, left_out: &[RangeInclusive<usize>]) -> usize {
    text.lines()
        .enumerate()
        .filter(|(index, line)| {
            let line = line.trim();
            let is_code = !line.is_empty() && !line.starts_with("//");
            is_code && !left_out.iter().any(|range| range.contains(&(index + 1)))
        })
        .count()
}

struct Functions<'a> {
    file: &'a Rust<'a>,
    findings: Vec<Finding>,
}

impl Functions<'_> {
    fn measure(&mut self, name: &syn::Ident, from: usize, to: usize) {
        let length = to - from + 1;
        if length > FUNCTION_LINES {
            let text = format!("fn {name} has {length} lines, more than {FUNCTION_LINES}");
            self.findings.push(Finding::error(self.file.path, from, text));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !module.attrs.iter().any(is_cfg_test) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig.ident, *lines(&function.sig).start(), *lines(&function.block).end());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig.ident, *lines(&function.sig).start(), *lines(&function.block).end());
        visit::visit_impl_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use crate::tidy::source::File;

    fn check_text(text: &str) -> Vec<String> {
        let file = File { path: "agent/src/x.rs".into(), text: text.to_owned() };
        check(&Rust::parse(&file).unwrap()).iter().map(ToString::to_string).collect()
    }

    fn lines_of(count: usize, line: &str) -> String {
        let mut text = String::new();
        for _ in 0..count {
            writeln!(text, "{line}").unwrap();
        }
        text
    }

    #[test]
    fn modules_say_what_they_are() {
        assert_eq!(check_text("//! Fine.\n"), Vec::<String>::new());
        assert!(check_text("fn main() {}\n")[0].contains("`//!`"));
    }

    #[test]
    fn functions_end_at_sixty_lines() {
        let function = |lines| format!("//! X.\nfn long() {{\n{}}}\n", lines_of(lines, "    call();"));
        assert_eq!(check_text(&function(58)), Vec::<String>::new());
        assert!(check_text(&function(59))[0].contains("fn long has 61 lines"));
    }

    #[test]
    fn tests_and_tables_do_not_count_as_code() {
        let table = format!("//! X.\nconst A: &[u8] = &[\n{}];\n", lines_of(501, "    1,"));
        assert!(check_text(&table)[0].contains("warning"));
        let tests =
            format!("//! X.\n#[cfg(test)]\nmod tests {{\n{}}}\n", lines_of(501, "    const A: u8 = 1;"));
        assert_eq!(check_text(&tests), Vec::<String>::new());
        let code = format!("//! X.\n{}", lines_of(501, "type A = u8;"));
        assert!(check_text(&code)[0].contains("501 lines of code"));
    }
}
