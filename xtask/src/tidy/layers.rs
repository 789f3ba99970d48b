//! The way of the data: which module of the agent may import which, and what the pure ones must not touch.

use std::path::Path;

use syn::visit::{self, Visit};

use super::Finding;
use super::source::{Rust, is_cfg_test};

/// A module of `agent/src`, what it may import of the others, and whether it is pure.
struct Layer {
    name: &'static str,
    may_import: &'static [&'static str],
    /// No I/O, no clock, no lock, no async: time comes from events.
    pure: bool,
}

/// In the order of the flow. Modules that are not here (`cli`, `main`, `lib`) wire things up and may import all.
const LAYERS: &[Layer] = &[
    Layer { name: "health", may_import: &[], pure: true },
    Layer { name: "decode", may_import: &["health"], pure: true },
    Layer { name: "tls", may_import: &[], pure: true },
    Layer { name: "versions", may_import: &[], pure: true },
    Layer { name: "device", may_import: &["health", "decode"], pure: true },
    Layer { name: "placement", may_import: &["health", "decode", "device"], pure: true },
    Layer { name: "memory", may_import: &["health", "decode", "device", "placement"], pure: true },
    Layer { name: "coverage", may_import: &["health", "decode"], pure: true },
    Layer { name: "track", may_import: &["health", "decode"], pure: true },
    Layer { name: "request", may_import: &["health", "decode", "track"], pure: true },
    Layer { name: "stage", may_import: &["health", "decode", "track", "request"], pure: true },
    Layer { name: "contention", may_import: &["health", "decode", "request"], pure: true },
    Layer { name: "role", may_import: &["health", "decode"], pure: true },
    Layer {
        name: "occupancy",
        may_import: &["health", "decode", "device", "placement", "request", "contention", "role"],
        pure: true,
    },
    Layer { name: "names", may_import: &[], pure: true },
    Layer {
        name: "diagnose",
        may_import: &[
            "health",
            "decode",
            "device",
            "memory",
            "placement",
            "coverage",
            "track",
            "request",
            "stage",
            "contention",
            "role",
            "occupancy",
            "names",
        ],
        pure: true,
    },
    Layer {
        name: "pipeline",
        may_import: &[
            "health",
            "decode",
            "device",
            "coverage",
            "memory",
            "track",
            "request",
            "stage",
            "occupancy",
            "versions",
            "diagnose",
        ],
        pure: true,
    },
    // The two sides of the core: they bring records in and carry results out.
    Layer { name: "source", may_import: &["health", "decode"], pure: false },
    Layer { name: "probe", may_import: &["health", "decode", "source"], pure: false },
    Layer {
        name: "config",
        may_import: &["health", "decode", "track", "request", "stage", "versions", "pipeline", "probe"],
        pure: false,
    },
    Layer {
        name: "export",
        may_import: &[
            "health",
            "decode",
            "device",
            "placement",
            "coverage",
            "memory",
            "track",
            "request",
            "stage",
            "contention",
            "role",
            "occupancy",
            "diagnose",
            "names",
            "pipeline",
            "probe",
            "config",
        ],
        pure: false,
    },
];

/// Words that belong to the published record and are used where their meaning is decided, earlier in the flow.
const VOCABULARY: &[[&str; 3]] =
    &[["track", "request", "Arrival"], ["track", "request", "Flag"], ["track", "request", "Outcome"]];

/// What a pure module must not name, and why.
const IMPURE: &[(&[&str], &str)] = &[
    (&["tokio"], "async belongs to export and cli"),
    (&["aya"], "the kernel belongs to probe and source"),
    (&["std", "fs"], "files belong to source"),
    (&["std", "io"], "I/O belongs to source and export"),
    (&["std", "process"], "processes belong to probe"),
    (&["std", "thread"], "the core is one loop"),
    (&["std", "sync"], "state has one owner, so there is nothing to lock"),
    (&["std", "time", "Instant"], "time comes from events"),
    (&["std", "time", "SystemTime"], "time comes from events"),
    (&["std", "net"], "sockets belong to export"),
    (&["std", "env"], "settings are passed in"),
    (&["rustix"], "system calls belong to probe and source"),
    (&["libc"], "system calls belong to probe and source"),
];

/// Plain values, although they live in `std::net`.
const ADDRESSES: &[&str] = &["IpAddr", "Ipv4Addr", "Ipv6Addr", "SocketAddr", "SocketAddrV4", "SocketAddrV6"];

pub(crate) fn check(file: &Rust) -> Vec<Finding> {
    // Tests may read files and clocks, and build what they like.
    if file.is_test {
        return Vec::new();
    }
    let Some(layer) = layer_of(file.path) else { return Vec::new() };
    let mut imports = Imports { file, layer, module: module_path(file.path), findings: Vec::new() };
    imports.visit_file(&file.tree);
    imports.findings
}

fn layer_of(path: &Path) -> Option<&'static Layer> {
    let module = module_path(path);
    LAYERS.iter().find(|layer| Some(layer.name) == module.first().map(String::as_str))
}

/// `agent/src/track/http1.rs` is `[track, http1]`.
fn module_path(path: &Path) -> Vec<String> {
    let Ok(inside) = path.strip_prefix("agent/src") else { return Vec::new() };
    inside
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect()
}

struct Imports<'a> {
    file: &'a Rust<'a>,
    layer: &'static Layer,
    /// Where a `super` starts from; grows in inline modules.
    module: Vec<String>,
    findings: Vec<Finding>,
}

impl Imports<'_> {
    fn path(&mut self, segments: &[String], line: usize) {
        match self.absolute(segments) {
            Some(path) => self.own(&path, line),
            None if self.layer.pure => self.foreign(segments, line),
            None => {}
        }
    }

    /// The path below the crate's root, if it is one of this crate.
    fn absolute(&self, segments: &[String]) -> Option<Vec<String>> {
        let supers = segments.iter().take_while(|segment| *segment == "super").count();
        match segments.first()?.as_str() {
            "crate" => Some(segments[1..].to_vec()),
            "super" if supers <= self.module.len() => {
                let base = &self.module[..self.module.len() - supers];
                Some(base.iter().chain(&segments[supers..]).cloned().collect())
            }
            _ => None,
        }
    }

    fn own(&mut self, path: &[String], line: usize) {
        let Some(target) = path.first().filter(|target| *target != self.layer.name) else { return };
        let is_word = |[module, from, word]: &[&str; 3]| {
            self.layer.name == *module
                && path.len() > 1
                && path[0] == *from
                && path.last().is_some_and(|last| last == word)
        };
        if VOCABULARY.iter().any(is_word) {
            return;
        }
        let is_module = LAYERS.iter().any(|layer| layer.name == target) || target == "cli";
        if is_module && !self.layer.may_import.contains(&target.as_str()) {
            let text = format!("{} may not import {target}: data flows the other way", self.layer.name);
            self.findings.push(Finding::error(self.file.path, line, text));
        }
    }

    fn foreign(&mut self, segments: &[String], line: usize) {
        let hit = IMPURE.iter().find(|(prefix, _)| {
            segments.len() >= prefix.len() && prefix.iter().zip(segments).all(|(want, have)| want == have)
        });
        let is_address = segments.starts_with(&["std".to_owned(), "net".to_owned()])
            && segments.get(2).is_some_and(|name| ADDRESSES.contains(&name.as_str()));
        if let Some((prefix, why)) = hit.filter(|_| !is_address) {
            let text = format!("{} is pure and must not use {}: {why}", self.layer.name, prefix.join("::"));
            self.findings.push(Finding::error(self.file.path, line, text));
        }
    }

    fn tree(&mut self, prefix: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.tree(prefix, &path.tree);
                prefix.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(prefix, item)),
            syn::UseTree::Name(name) => self.leaf(prefix, &name.ident),
            syn::UseTree::Rename(rename) => self.leaf(prefix, &rename.ident),
            syn::UseTree::Glob(glob) => {
                let line = glob.star_token.spans[0].start().line;
                self.path(&prefix.clone(), line);
            }
        }
    }

    fn leaf(&mut self, prefix: &[String], name: &syn::Ident) {
        let mut segments = prefix.to_vec();
        segments.push(name.to_string());
        self.path(&segments, name.span().start().line);
    }
}

impl<'ast> Visit<'ast> for Imports<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.attrs.iter().any(is_cfg_test) {
            return;
        }
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let Some(first) = path.segments.first().filter(|_| segments.len() > 1) {
            self.path(&segments, first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::File;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.into(), text: text.to_owned() };
        check(&Rust::parse(&file).unwrap()).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn imports_point_backwards() {
        let cases = [
            ("agent/src/track.rs", "use crate::decode::Event;", true),
            ("agent/src/track.rs", "use crate::request::Record;", false),
            ("agent/src/track.rs", "use crate::request::{Flag, record::Outcome};", true),
            ("agent/src/track/http1.rs", "use super::super::request::Record;", false),
            ("agent/src/track/http1.rs", "use super::connection::Connection;", true),
            ("agent/src/track.rs", "use crate::{decode::Event, stage::partition};", false),
            ("agent/src/decode.rs", "fn f() { crate::track::g() }", false),
            ("agent/src/cli/run.rs", "use crate::probe::Session;", true),
            ("agent/src/stage.rs", "use crate::request::{Record, step::Step};", true),
            ("agent/src/decode.rs", "use crate::cli;", false),
            ("xtask/src/track.rs", "use crate::request::Record;", true),
        ];
        for (path, text, fine) in cases {
            assert_eq!(findings(path, text).is_empty(), fine, "{path}: {text}");
        }
    }

    #[test]
    fn the_core_is_pure() {
        let cases = [
            ("use std::time::Instant;", false),
            ("use std::time::Duration;", true),
            ("use std::{fs, collections::HashMap};", false),
            ("fn f() { std::time::SystemTime::now(); }", false),
            ("use std::net::{IpAddr, SocketAddr};", true),
            ("use std::net::TcpStream;", false),
            ("use tokio::sync::mpsc;", false),
            ("#[cfg(test)] mod tests { use std::fs; }", true),
        ];
        for (text, fine) in cases {
            assert_eq!(findings("agent/src/stage.rs", text).is_empty(), fine, "{text}");
        }
        assert!(findings("agent/src/probe/attach.rs", "use std::fs;").is_empty());
    }
}
