//! Where the library is: never by the loader's cache, which in a container knows nothing of the host's driver.

use std::path::{Path, PathBuf};

/// Name of the library.
const NAME: &str = "libnvidia-ml.so.1";

/// Folders below a root in which drivers put their libraries.
const FOLDERS: &[&str] = &[
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/wsl/lib",
    "usr/local/nvidia/lib64",
    "usr/local/nvidia/lib",
    "usr/local/lib",
    "usr/local/glibc/usr/lib",
    "opt/nvidia/lib64",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "run/opengl-driver/lib",
    "home/kubernetes/bin/nvidia/lib64",
    "opt/bin/nvidia/lib64",
];

/// Roots, nearest first: this one, the container that holds the driver, and the same two on the host.
const ROOTS: &[&str] = &["", "run/nvidia/driver", "proc/1/root", "proc/1/root/run/nvidia/driver"];

/// The library below `root`, which is `/` outside of tests.
pub fn find(root: &Path) -> Option<PathBuf> {
    let places = ROOTS.iter().flat_map(|from| FOLDERS.iter().map(move |folder| (from, folder)));
    places.map(|(from, folder)| root.join(from).join(folder).join(NAME)).find(|path| is_library(path))
}

/// A file with something in it: an empty one stands where a container runtime would mount the real one.
fn is_library(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.len() > 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn put(root: &Path, folder: &str, bytes: &[u8]) -> PathBuf {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(NAME);
        fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn the_nearest_library_that_is_one_is_found() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(find(root), None);
        let folders = [
            "proc/1/root/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
            "proc/1/root/home/kubernetes/bin/nvidia/lib64",
            "run/nvidia/driver/usr/lib64",
            "usr/lib/aarch64-linux-gnu",
        ];
        for folder in folders {
            let path = put(root, folder, b"ELF");
            assert_eq!(find(root), Some(path), "{folder}");
        }
        put(root, "usr/lib/x86_64-linux-gnu", b"");
        assert_eq!(find(root), Some(root.join(folders[3]).join(NAME)));
    }
}
