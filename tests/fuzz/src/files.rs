//! Files that others write.

use std::{
    cell::RefCell,
    fs::{self, File},
    io::Write,
    path::Path,
};

use agent::{
    config::Config,
    probe::{btf::Btf, elf, hazards::KernelVersion, prologue, targets},
    source::procfs::{ProcFs, container_id, listeners},
};
use rustix::fs::{MemfdFlags, memfd_create};
use tempfile::TempDir;

/// A file of type information begins so, a library otherwise.
const BTF_MAGIC: [u8; 2] = [0x9f, 0xeb];

/// A driver library, or the kernel's type information.
pub fn image(data: &[u8]) {
    if data.starts_with(&BTF_MAGIC) { btf(data) } else { library(data) }
}

fn library(data: &[u8]) {
    let mut file = File::from(memfd_create("library", MemfdFlags::CLOEXEC).expect("a file in memory"));
    file.write_all(data).expect("room in memory");
    let wanted = &["cuLaunchKernel", "cuInit", "getppid"];
    let Ok(found) = elf::exports(&file, wanted, |name| name.starts_with("cu")) else { return };
    for function in found.functions.values() {
        assert!(function.offset < data.len() as u64);
        assert!(prologue::place(&function.prologue).skip < elf::PROLOGUE as u64);
    }
}

fn btf(data: &[u8]) {
    let Ok(btf) = Btf::parse(data.to_vec()) else { return };
    let _ = btf.has_tracepoint("sock_send_length");
    let _ = btf.socket_offsets();
    let _ = btf.network_offsets();
    let _ = btf.offset("a.b.c");
}

/// The first octet chooses the file.
pub fn text(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    match which % 4 {
        0 => config(&String::from_utf8_lossy(data)),
        1 => process(data),
        2 => {
            let _ = container_id(&String::from_utf8_lossy(data));
            let _ = KernelVersion::parse(&String::from_utf8_lossy(data));
        }
        _ => {
            let mut found = Vec::new();
            let _ = listeners(&mut &*data, &mut found);
            assert!(found.len() <= data.len());
        }
    }
}

/// What was read is shown in a way that reads as the same.
fn config(text: &str) {
    let path = Path::new("config.toml");
    let Ok(config) = Config::parse(text, path) else { return };
    for comments in [false, true] {
        let again = Config::parse(&config.to_toml(comments), path).expect("what is shown can be read");
        assert_eq!(config, again);
    }
}

thread_local! {
    /// Its folder `7` is a process.
    static PROC: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

fn process(data: &[u8]) {
    PROC.with_borrow_mut(|proc| {
        let root = proc.get_or_insert_with(|| {
            let root = tempfile::tempdir().expect("a temporary folder");
            fs::create_dir_all(root.path().join("7/net")).expect("a folder in it");
            root
        });
        for name in ["stat", "status", "cgroup", "maps", "net/tcp"] {
            fs::write(root.path().join("7").join(name), data).expect("a file in it");
        }
        let procfs = ProcFs::new(root.path());
        if let Ok(stat) = procfs.stat(7) {
            assert_eq!(stat.pid, 7);
        }
        let _ = procfs.container(7);
        let _ = procfs.seccomp_filter(7);
        let _ = procfs.listeners(7);
        let _ = targets::mapped(&procfs, 7, Path::new("/usr/bin/true"));
    });
}
