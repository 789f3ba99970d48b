//! Which inference server a process is part of, and of what version.
//!
//! The kind follows from its name, its command line and the libraries that it maps, by closed sets of words: of command
//! lines nothing leaves this file but those. The version is that of the installed package (`NAME-VERSION.dist-info` in a
//! folder of Python packages that it uses) or what a file of the server's image says.

use std::{collections::BTreeSet, fs, io::BufRead as _, path::Path};

use super::{ProcFs, read_small};

/// Most lines of a memory map that are read.
const MAX_LINES: usize = 1 << 17;
/// Most folders of Python packages that are looked into, and entries of each.
const MAX_FOLDERS: usize = 8;
const MAX_ENTRIES: usize = 16_384;
/// Longest version that is one.
const MAX_VERSION: usize = 64;

/// An inference server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Engine {
    /// Its name, one of a closed set.
    pub kind: &'static str,
    /// Its version, where a file tells.
    pub version: Option<String>,
}

/// How a kind of server is known. Words are compared with names of programs and modules, as a whole or up to a dot, a
/// dash or a colon pair.
struct Kind {
    name: &'static str,
    /// In the name of the process (up to 15 bytes) or on the command line.
    words: &'static [&'static str],
    /// File names of libraries begin so.
    libraries: &'static [&'static str],
    /// Its Python packages.
    packages: &'static [&'static str],
    /// A file that has the version as its first word.
    version_file: Option<&'static str>,
}

/// The first that fits counts: what is built on others stands before them.
const KINDS: [Kind; 12] = [
    Kind { name: "vllm", words: &["vllm", "VLLM"], libraries: &[], packages: &["vllm"], version_file: None },
    Kind { name: "sglang", words: &["sglang"], libraries: &[], packages: &["sglang"], version_file: None },
    Kind {
        name: "tgi",
        words: &["text-generation", "text_generation_server"],
        libraries: &[],
        packages: &["text_generation_server"],
        version_file: None,
    },
    Kind {
        name: "tensorrt_llm",
        words: &["trtllm", "tensorrt_llm"],
        libraries: &["libtensorrt_llm.so"],
        packages: &["tensorrt_llm"],
        version_file: None,
    },
    Kind {
        name: "triton",
        words: &["tritonserver", "triton_python_backend_stub", "triton_python_b"],
        libraries: &["libtritonserver.so"],
        packages: &[],
        version_file: Some("opt/tritonserver/TRITON_VERSION"),
    },
    Kind { name: "ollama", words: &["ollama"], libraries: &[], packages: &[], version_file: None },
    Kind {
        name: "llama.cpp",
        words: &["llama-server", "llama_cpp"],
        libraries: &["libllama.so"],
        packages: &["llama_cpp_python"],
        version_file: None,
    },
    Kind {
        name: "torchserve",
        words: &["torchserve", "org.pytorch.serve", "model_service_worker"],
        libraries: &[],
        packages: &["torchserve"],
        version_file: None,
    },
    Kind {
        name: "lmdeploy",
        words: &["lmdeploy"],
        libraries: &[],
        packages: &["lmdeploy"],
        version_file: None,
    },
    Kind {
        name: "ray_serve",
        words: &["ray::ServeReplica", "ray::ServeReplic"],
        libraries: &[],
        packages: &["ray"],
        version_file: None,
    },
    Kind { name: "bentoml", words: &["bentoml"], libraries: &[], packages: &["bentoml"], version_file: None },
    Kind {
        name: "litserve",
        words: &["litserve"],
        libraries: &[],
        packages: &["litserve"],
        version_file: None,
    },
];

impl ProcFs {
    /// The server that a process named `comm` is part of.
    pub fn engine(&self, pid: u32, comm: &str) -> Option<Engine> {
        let cmdline = read_small(&self.path(pid, "cmdline")).ok()?;
        let (libraries, folders) = self.mapped_names(pid);
        let kind = KINDS.iter().find(|kind| kind.is_it(comm, &cmdline, &libraries))?;
        Some(Engine { kind: kind.name, version: self.version(pid, kind, &folders) })
    }

    /// File names of the libraries that a process maps, and folders of Python packages among their paths.
    fn mapped_names(&self, pid: u32) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut libraries, mut folders) = (BTreeSet::new(), BTreeSet::new());
        let Ok(maps) = self.maps(pid) else { return (libraries, folders) };
        for line in maps.lines().take(MAX_LINES).map_while(Result::ok) {
            let Some(at) = line.find('/') else { continue };
            let path = &line[at..];
            libraries.extend(path.rsplit('/').next().filter(|name| name.contains(".so")).map(str::to_owned));
            for word in ["/site-packages/", "/dist-packages/"] {
                if let Some(end) = path.find(word).filter(|_| folders.len() < MAX_FOLDERS) {
                    folders.insert(path[1..end + word.len()].to_owned());
                }
            }
        }
        (libraries, folders)
    }

    fn version(&self, pid: u32, kind: &Kind, folders: &BTreeSet<String>) -> Option<String> {
        let root = self.path(pid, "root");
        let packaged = folders.iter().find_map(|folder| package_version(&root.join(folder), kind.packages));
        packaged.or_else(|| {
            let text = read_small(&root.join(kind.version_file?)).ok()?;
            version(String::from_utf8_lossy(&text).split_whitespace().next()?)
        })
    }
}

impl Kind {
    fn is_it(&self, comm: &str, cmdline: &[u8], libraries: &BTreeSet<String>) -> bool {
        let words = cmdline.split(|byte| matches!(byte, 0 | b'/'));
        let mut words = words.chain([comm.as_bytes()]);
        words.any(|word| self.words.iter().any(|name| begins(word, name.as_bytes())))
            || self.libraries.iter().any(|name| libraries.iter().any(|library| library.starts_with(name)))
    }
}

/// The word is the name, or the name and something behind a sign that ends it.
fn begins(word: &[u8], name: &[u8]) -> bool {
    let rest = word.strip_prefix(name);
    rest.is_some_and(|rest| rest.first().is_none_or(|sign| matches!(sign, b'.' | b'-' | b':' | b'_' | b'=')))
}

/// The version of the first of these packages that is installed in a folder.
fn package_version(folder: &Path, packages: &[&str]) -> Option<String> {
    let entries = fs::read_dir(folder).ok()?;
    let names = entries.take(MAX_ENTRIES).flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let of = |name: String| {
        let (package, number) = name.strip_suffix(".dist-info")?.split_once('-')?;
        packages.iter().any(|it| it.eq_ignore_ascii_case(package)).then(|| version(number))?
    };
    names.into_iter().find_map(of)
}

/// A text that can be a version: short, and nothing but what versions are made of.
fn version(text: &str) -> Option<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_');
    let is_one = !text.is_empty() && text.len() <= MAX_VERSION && text.chars().all(good);
    is_one.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process with a command line, a memory map and files below its root.
    fn fake(cmdline: &[u8], maps: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, ProcFs) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("7");
        fs::create_dir_all(folder.join("root")).unwrap();
        fs::write(folder.join("cmdline"), cmdline).unwrap();
        fs::write(folder.join("maps"), maps).unwrap();
        for (name, text) in files {
            let path = folder.join("root").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let procfs = ProcFs::new(root.path());
        (root, procfs)
    }

    #[test]
    fn servers_are_known_by_closed_sets_of_words() {
        let cases: [(&str, &[u8], &str, Option<&str>); 13] = [
            ("python3", b"/usr/bin/python3\0-m\0vllm.entrypoints.openai.api_server\0", "", Some("vllm")),
            ("vllm", b"/opt/venv/bin/python\0/opt/venv/bin/vllm\0serve\0m\0", "", Some("vllm")),
            ("VLLM::EngineCor", b"VLLM::EngineCore", "", Some("vllm")),
            ("sglang::schedul", b"sglang::scheduler_TP0", "", Some("sglang")),
            ("text-generation", b"text-generation-router\0", "", Some("tgi")),
            ("tritonserver", b"tritonserver\0--model-repository=/models\0", "", Some("triton")),
            ("ollama", b"/usr/bin/ollama\0serve\0", "", Some("ollama")),
            ("llama-server", b"/usr/lib/ollama/llama-server\0", "", Some("ollama")),
            (
                "myserver",
                b"./myserver\0",
                "7f00-7f01 r-xp 0 08:01 5 /opt/lib/libllama.so.1\n",
                Some("llama.cpp"),
            ),
            ("java", b"java\0org.pytorch.serve.ModelServer\0", "", Some("torchserve")),
            ("python3", b"python3\0app.py\0--note=not-vllm\0", "", None),
            ("vllmish", b"vllmish\0", "", None),
            ("python3", b"", "", None),
        ];
        for (comm, cmdline, maps, want) in cases {
            let (_root, procfs) = fake(cmdline, maps, &[]);
            assert_eq!(procfs.engine(7, comm).map(|engine| engine.kind), want, "{comm}");
        }
    }

    #[test]
    fn versions_are_those_of_packages_and_files() {
        let maps = "7f00-7f01 r-xp 0 08:01 5 /opt/venv/lib/python3.12/site-packages/torch/lib/libtorch.so\n";
        let folder = "opt/venv/lib/python3.12/site-packages";
        let installed = |name: &str| format!("{folder}/{name}.dist-info/METADATA");
        let cases = [
            (&b"vllm\0"[..], installed("vllm-0.33.0+cu128"), "", Some("0.33.0+cu128")),
            (b"vllm\0", installed("vllm_extra-1.0"), "", None),
            (b"vllm\0", installed("vllm-a b"), "", None),
            (b"tritonserver\0", "opt/tritonserver/TRITON_VERSION".to_owned(), "2.61.0\n", Some("2.61.0")),
        ];
        for (cmdline, path, text, want) in cases {
            let (_root, procfs) = fake(cmdline, maps, &[(&path, text)]);
            let found = procfs.engine(7, "x").unwrap();
            assert_eq!(found.version.as_deref(), want, "{path}");
        }
    }
}
