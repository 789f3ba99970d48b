//! Debian packages: installed on the host where they must be, unpacked under `target/tools` where that is enough.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::command::{in_path, quiet};
use crate::{out, workspace};

/// Why packages cannot be installed here, as a sentence; `None` if they can.
pub(crate) fn obstacle() -> Option<String> {
    if !in_path("apt-get") {
        return Some("this is no Debian or Ubuntu (no apt-get)".into());
    }
    (!rustix::process::geteuid().is_root()).then(|| "installing packages needs root".into())
}

/// Whether dpkg has every one of `packages` installed.
pub(crate) fn installed(packages: &[&str]) -> bool {
    packages.iter().all(|package| {
        quiet(Command::new("dpkg-query").args(["-W", "-f=${Status}", package]))
            .is_ok_and(|status| status.ends_with("ok installed"))
    })
}

/// Installs what is missing of `packages`. Errors name the package or the obstacle.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if installed(packages) {
        return Ok(());
    }
    if let Some(obstacle) = obstacle() {
        bail!("cannot install {}: {obstacle}", packages.join(", "));
    }
    update();
    quiet(apt().args(["install", "-y", "-qq", "--no-install-recommends"]).args(packages))?;
    Ok(())
}

/// Downloads `package` and unpacks it under `target/tools/<package>`, touching nothing of the host: no root needed,
/// and no daemon gets started. Returns the folder.
pub(crate) fn unpack(package: &str) -> Result<PathBuf> {
    let dir = workspace::tools().join(package);
    if !in_path("apt-get") {
        bail!("this is no Debian or Ubuntu (no apt-get)");
    }
    if obstacle().is_none() {
        update();
    }
    let scratch = tempfile::tempdir_in(workspace::tools()).context("cannot create a scratch folder")?;
    // apt drops to its own user for downloads and warns where it cannot enter the folder; root may fetch as root.
    quiet(apt().args(["-o", "APT::Sandbox::User=root", "download", package]).current_dir(scratch.path()))?;
    let archive = fs::read_dir(scratch.path())?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get download left no package of {package}"))?;
    extract(&archive, &dir)?;
    Ok(dir)
}

fn extract(archive: &Path, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    quiet(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(dir)).map(drop)
}

/// Refreshes the package lists, once a run. Old lists may still do, so a failure is only told.
fn update() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        if let Err(error) = quiet(apt().args(["update", "-qq"])) {
            out::progress(
                "setup",
                format_args!("the package lists could not be refreshed, using old ones: {error}"),
            );
        }
    });
}

fn apt() -> Command {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").args([
        "-o",
        "Acquire::Retries=3",
        "-o",
        "DPkg::Lock::Timeout=300",
    ]);
    apt
}
