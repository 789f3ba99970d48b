//! The driver's file as packagers and upgrades treat it. Named after the rows of the catalogue of known bugs
//! (`rN_…`).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use stacks::machine::Need;
use system::agent::{Agent, Follower, Record};
use system::host;
use system::rig::{Load, Server, ServerOptions, Shape};

use crate::Test;

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("r12_library_that_is_not_executable", Need::Nothing, r12_not_executable),
    ("r43_library_replaced_while_it_is_used", Need::Nothing, r43_replaced),
];

const LIMIT: Duration = Duration::from_mins(1);
const REQUESTS: u32 = 10;

/// A copy of the driver: an inode of its own.
fn driver(dir: &Path, name: &str) -> Result<PathBuf> {
    let copy = dir.join(name);
    fs::copy(host::libcuda()?, &copy)?;
    Ok(copy)
}

fn server(libcuda: &Path, dir: &Path) -> Result<Server> {
    fs::create_dir_all(dir)?;
    let options = ServerOptions { libcuda: Some(libcuda.to_path_buf()), ..ServerOptions::new(Shape::Single) };
    Server::start(&options, dir)
}

/// The `round`-th load on one server: each of its requests has its steps.
fn expect_steps(server: &Server, follower: &mut Follower, round: u32, dir: &Path) -> Result<()> {
    Load::requests(2, REQUESTS).start(server.port, dir)?.finish(LIMIT)?;
    let all = |records: &[Record]| of(server, records).count() >= (round * REQUESTS) as usize;
    let records = follower.wait("the records", server.port, LIMIT, all)?;
    let blind = of(server, &records).find(|record| record.steps.unwrap_or_default() == 0);
    ensure!(blind.is_none(), "a request without its steps: {blind:#?}");
    Ok(())
}

fn of<'a>(server: &Server, records: &'a [Record]) -> impl Iterator<Item = &'a Record> {
    let port = server.port;
    records.iter().filter(move |record| record.local_port == Some(port))
}

/// A library needs no permission to be executed, and a uprobe on it needs none either.
fn r12_not_executable(dir: &Path) -> Result<()> {
    let libcuda = driver(dir, "libcuda.so.1")?;
    fs::set_permissions(&libcuda, fs::Permissions::from_mode(0o644))?;
    let mut server = server(&libcuda, dir)?;
    let mut agent = Agent::start(dir, &["--port", &server.port.to_string()])?;
    agent.wait_attached(&server)?;
    let mut follower = agent.follow(dir)?;
    expect_steps(&server, &mut follower, 1, dir)?;
    server.stop()
}

/// An upgrade puts another file at the same path. Who runs goes on with the old one; who starts gets the new one.
/// Both are seen.
fn r43_replaced(dir: &Path) -> Result<()> {
    let libcuda = driver(dir, "libcuda.so.1")?;
    let mut old = server(&libcuda, &dir.join("old"))?;
    let mut agent = Agent::start(dir, &[])?;
    agent.wait_attached(&old)?;
    let mut follower = agent.follow(dir)?;
    expect_steps(&old, &mut follower, 1, &dir.join("old"))?;
    fs::rename(driver(dir, "libcuda.so.1.new")?, &libcuda)?;
    expect_steps(&old, &mut follower, 2, &dir.join("old"))?;
    let mut new = server(&libcuda, &dir.join("new"))?;
    agent.wait_attached(&new)?;
    expect_steps(&new, &mut follower, 1, &dir.join("new"))?;
    old.stop()?;
    new.stop()
}
