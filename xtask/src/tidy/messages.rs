//! Texts for people: errors and reasons for skipping.

use syn::visit::{self, Visit};

use super::Finding;
use super::source::Rust;

pub(crate) fn check(file: &Rust) -> Vec<Finding> {
    let mut messages = Messages { file, findings: Vec::new() };
    messages.visit_file(&file.tree);
    messages.findings
}

struct Messages<'a> {
    file: &'a Rust<'a>,
    findings: Vec<Finding>,
}

impl Messages<'_> {
    fn find(&mut self, attribute: &syn::Attribute, text: &str) {
        let line = super::source::lines(attribute);
        self.findings.push(Finding::error(self.file.path, *line.start(), text));
    }

    fn error_text(&mut self, attribute: &syn::Attribute, text: &str) {
        if text.trim_end().ends_with(['.', '!']) {
            self.find(
                attribute,
                "an error's text is a clause and ends without a full stop: its cause may follow",
            );
        }
        if text.starts_with(|letter: char| letter.is_uppercase()) && !starts_with_a_name(text) {
            self.find(attribute, "an error's text starts in lower case: something may stand before it");
        }
    }
}

/// `HTTP`, `CUDA`, `BTF`, `LLVM`: not the start of a sentence.
fn starts_with_a_name(text: &str) -> bool {
    text.chars().nth(1).is_some_and(|letter| !letter.is_lowercase())
}

impl<'ast> Visit<'ast> for Messages<'_> {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if attribute.path().is_ident("ignore") && matches!(attribute.meta, syn::Meta::Path(_)) {
            self.find(attribute, "a skipped test says why: `#[ignore = \"reason\"]`");
        }
        if attribute.path().is_ident("error") {
            let first = attribute.parse_args_with(|input: syn::parse::ParseStream<'_>| {
                let text = input.parse::<syn::LitStr>();
                input.parse::<proc_macro2::TokenStream>()?;
                text
            });
            if let Ok(text) = first {
                self.error_text(attribute, &text.value());
            }
        }
        visit::visit_attribute(self, attribute);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::File;

    #[test]
    fn errors_are_clauses_and_skips_have_reasons() {
        let cases = [
            ("#[error(\"cannot read {0}\")] struct A;", true),
            ("#[error(\"cannot read {}\", path.display())] struct A;", true),
            ("#[error(\"Cannot read\")] struct A;", false),
            ("#[error(\"cannot read.\")] struct A;", false),
            ("#[error(\"BTF is missing\")] struct A;", true),
            ("#[error(transparent)] struct A;", true),
            ("#[ignore] fn a() {}", false),
            ("#[ignore = \"needs a GPU\"] fn a() {}", true),
        ];
        for (text, fine) in cases {
            let file = File { path: "agent/src/x.rs".into(), text: text.to_owned() };
            assert_eq!(check(&Rust::parse(&file).unwrap()).is_empty(), fine, "{text}");
        }
    }
}
