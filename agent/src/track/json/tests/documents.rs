//! A deterministic generator of documents that look like those of the APIs.

use super::super::{Grammar, keys, rules};
use crate::track::tests::Lcg;

const GRAMMARS: &[Grammar] = &[
    Grammar::OPENAI,
    Grammar::EMBED,
    Grammar::RESPONSES,
    Grammar::ANTHROPIC,
    Grammar::OLLAMA,
    Grammar::KSERVE,
    Grammar::GENERATE,
    Grammar::COMPLETIONS,
    Grammar::ANY,
];
/// Names that are not kept, beside those that are.
const OTHER_NAMES: &[&str] = &["user", "mode", "", "naïve", "a\\\"b", "top\\u0041"];

fn name(lcg: &mut Lcg) -> &'static str {
    match lcg.below(keys::NAMES.len() + OTHER_NAMES.len()).checked_sub(keys::NAMES.len()) {
        Some(at) => OTHER_NAMES[at],
        None => std::str::from_utf8(keys::NAMES[lcg.below(keys::NAMES.len())]).unwrap(),
    }
}

/// Of any API and side.
pub(super) fn grammar(lcg: &mut Lcg) -> Grammar {
    let grammar = GRAMMARS[lcg.below(GRAMMARS.len())];
    [grammar.request(), grammar.answer(), grammar.answer()][lcg.below(3)]
}

/// Must not stay, unless as the value of a member that is kept.
pub(super) const SECRET: &str = "Geheimnis";
const TEXTS: &[&str] = &[
    "",
    "stop",
    "hello 42",
    SECRET,
    "a\\\"model\\\":\\\"x\\\",",
    "\\\\",
    "\\u00e9\\n",
    "日本語",
    "{}[]:,",
    "content_filter",
    "message_stop",
    "completed",
    "\\\\\\\"",
];
const NUMBERS: &[&str] = &["0", "7", "-1.5e3", "1234567890123456789", "99999999999999999999999", "0.25"];

fn generate(lcg: &mut Lcg, depth: u32, out: &mut String) {
    let blank = [" ", "\n", "", "", ""][lcg.below(5)];
    out.push_str(blank);
    match lcg.below(if depth > 5 { 4 } else { 8 }) {
        0 => out.push_str(NUMBERS[lcg.below(NUMBERS.len())]),
        1 => out.push_str(["true", "false", "null"][lcg.below(3)]),
        2 | 3 => {
            out.push('"');
            out.push_str(TEXTS[lcg.below(TEXTS.len())]);
            out.push('"');
        }
        4 | 5 => list(lcg, depth, out, ['[', ']'], false),
        _ => list(lcg, depth, out, ['{', '}'], true),
    }
    out.push_str(blank);
}

fn list(lcg: &mut Lcg, depth: u32, out: &mut String, around: [char; 2], named: bool) {
    out.push(around[0]);
    for i in 0..lcg.below(5) {
        if i > 0 {
            out.push(',');
        }
        if named && lcg.below(2) == 0 {
            member(lcg, depth, out);
            continue;
        }
        if named {
            out.push('"');
            out.push_str(name(lcg));
            out.push_str("\":");
        }
        generate(lcg, depth + 1, out);
    }
    out.push(around[1]);
}

/// A member at the path of a rule.
fn member(lcg: &mut Lcg, depth: u32, out: &mut String) {
    let path = rules::RULES[lcg.below(rules::COUNT)].path.trim_start_matches("[].").trim_start_matches("[]");
    let mut closing = Vec::new();
    for (i, part) in path.split('.').enumerate() {
        let name = part.trim_end_matches("[]");
        if i > 0 {
            out.push('{');
            closing.push('}');
        }
        out.extend(["\"", name, "\":"]);
        if part.ends_with("[]") {
            out.push('[');
            closing.push(']');
        }
    }
    generate(lcg, depth + 1, out);
    out.extend(closing.iter().rev());
}

/// With members at paths of the rules, so that they meet, and others.
pub(super) fn document(lcg: &mut Lcg) -> String {
    let mut text = String::new();
    if lcg.below(8) == 0 {
        list(lcg, 0, &mut text, ['[', ']'], false);
    } else {
        list(lcg, 0, &mut text, ['{', '}'], true);
    }
    text
}
