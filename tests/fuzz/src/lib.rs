//! Hostile bytes for every parser of the agent.
//!
//! A target takes any bytes and panics when something that must hold does not. `cargo xtask fuzz` drives one with
//! libFuzzer; what it found stays in `cases/TARGET/`, which `cargo test` runs without it.
//!
//! | module | knows |
//! |---|---|
//! | [`exchanges`] | calls on sockets, over any splits and gaps |
//! | [`body`] | bodies of the APIs, in which every text that must go carries a mark |
//! | [`records`] | records of the ring buffer and of recordings |
//! | [`files`] | files that others write: libraries, type information, configuration, `/proc` |
//! | [`script`], [`make`] | bytes as a list of calls; records as the kernel side makes them |
//! | [`memory`] | how much memory a target took |

pub mod body;
pub mod exchanges;
pub mod files;
pub mod make;
pub mod memory;
pub mod records;
pub mod script;
pub mod seeds;

/// A parser, and what must hold of it.
#[derive(Debug)]
pub struct Target {
    /// As on the command line, and of its folder of cases.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Longest input, bytes.
    pub max_len: usize,
    /// Most memory it may hold at any time, bytes, over what it held before.
    pub max_memory: usize,
    /// First inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Panics when something that must hold does not.
    pub run: fn(&[u8]),
}

const MIB: usize = 1 << 20;

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "http1",
        about: "HTTP/1.1 in both directions: splits, gaps, losses, closes",
        max_len: 8192,
        max_memory: 8 * MIB,
        seeds: seeds::http1,
        run: exchanges::run,
    },
    Target {
        name: "http2",
        about: "HTTP/2, HPACK and gRPC likewise",
        max_len: 8192,
        max_memory: 8 * MIB,
        seeds: seeds::http2,
        run: exchanges::run,
    },
    Target {
        name: "json",
        about: "JSON bodies of every API",
        max_len: 8192,
        max_memory: 4 * MIB,
        seeds: seeds::json,
        run: body::json,
    },
    Target {
        name: "events",
        about: "server-sent events and newline-separated JSON of every API",
        max_len: 8192,
        max_memory: 4 * MIB,
        seeds: seeds::events,
        run: body::events,
    },
    Target {
        name: "record",
        about: "records of the ring buffer",
        max_len: 8192,
        max_memory: 8 * MIB,
        seeds: seeds::record,
        run: records::ring,
    },
    Target {
        name: "recording",
        about: "recordings",
        max_len: 64 * 1024,
        max_memory: 16 * MIB,
        seeds: seeds::recording,
        run: records::recording,
    },
    Target {
        name: "image",
        about: "driver libraries (ELF) and kernel type information (BTF)",
        max_len: 16 * 1024,
        max_memory: 80 * MIB,
        seeds: seeds::image,
        run: files::image,
    },
    Target {
        name: "text",
        about: "the configuration file and /proc",
        max_len: 8192,
        max_memory: 8 * MIB,
        seeds: seeds::text,
        run: files::text,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

impl Target {
    /// Runs it on one input, and looks at the memory it took.
    pub fn check(&self, data: &[u8]) {
        let before = memory::begin();
        (self.run)(data);
        let took = memory::peak().saturating_sub(before);
        assert!(took <= self.max_memory, "{} took {took} bytes for {} of input", self.name, data.len());
    }
}
