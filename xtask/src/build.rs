//! Release builds of the product and of the test rig.

use std::fs;

use anyhow::{Context, Result};

use crate::command::{cargo, run};
use crate::setup::Ready;
use crate::{out, workspace};

/// The packages that make up the product and the rig.
const PACKAGES: [&str; 7] =
    ["agent", "fakecuda", "fakecudart", "fakenvml", "caller", "modelserver", "loadgen"];
/// The simulated driver: what its libraries are built as, and the names that programs look for.
const LIBRARIES: [(&str, &str); 3] = [
    ("libcuda.so", "libcuda.so.1"),
    ("libcudart.so", "libcudart.so.12"),
    ("libnvidia_ml.so", "libnvidia-ml.so.1"),
];

/// Builds everything, and puts the simulated driver where the rig expects it: `target/rig`.
pub(crate) fn release(ready: &Ready) -> Result<()> {
    if let Err(reason) = &ready.bpf_toolchain {
        out::progress("build", format_args!("without BPF programs, the agent can only replay: {reason}"));
    }
    out::progress("build", "agent and test rig (release)");
    let mut build = cargo();
    build.args(["build", "--release", "--locked"]);
    for package in PACKAGES {
        build.args(["--package", package]);
    }
    run(&mut build)?;
    LIBRARIES.iter().try_for_each(|(built, name)| place(built, name))
}

/// A copy, not a link: the agent tells libraries apart by inode, and so a rebuild must make a new one while old
/// processes keep theirs.
fn place(built: &str, name: &str) -> Result<()> {
    let built = workspace::release().join(built);
    let rig = workspace::target().join("rig");
    fs::create_dir_all(&rig).with_context(|| format!("cannot create {}", rig.display()))?;
    let placed = rig.join(name);
    if same_bytes(&built, &placed) {
        return Ok(());
    }
    let fresh = rig.join(format!("{name}.new"));
    fs::copy(&built, &fresh).with_context(|| format!("cannot copy {}", built.display()))?;
    fs::rename(&fresh, &placed).with_context(|| format!("cannot replace {}", placed.display()))?;
    Ok(())
}

fn same_bytes(left: &std::path::Path, right: &std::path::Path) -> bool {
    matches!((fs::read(left), fs::read(right)), (Ok(left), Ok(right)) if left == right)
}
