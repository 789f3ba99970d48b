//! One process per test, with its own simulated devices.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use cuda::*;
use serde_json::Value;
use tempfile::TempDir;

const NAME: &str = "FAKECUDA_TEST";
const TRUTH_EXTRA: &str = "FAKECUDA_TEST_DIR";

/// Runs `body` in a process of its own. `test` is the full name of the calling test.
pub(crate) fn isolated(test: &str, env: &[(&str, &str)], body: impl FnOnce()) {
    isolated_then(test, env, body, |_| ());
}

/// The same, and gives what the process wrote as truth when it exited to `check`.
pub(crate) fn isolated_then(
    test: &str,
    env: &[(&str, &str)],
    body: impl FnOnce(),
    check: impl FnOnce(Value),
) {
    if std::env::var(NAME).as_deref() == Ok(test) {
        return body();
    }
    let dir = tempfile::tempdir().unwrap();
    let output = command(test, &dir).envs(env.iter().copied()).output().unwrap();
    let said = [output.stdout, output.stderr].map(|out| String::from_utf8_lossy(&out).into_owned()).concat();
    assert!(output.status.success() && said.contains("1 passed"), "{test}: {}\n{said}", output.status);
    if let Ok(truth) = std::fs::read(dir.path().join("truth.json")) {
        check(serde_json::from_slice(&truth).unwrap());
    }
}

fn command(test: &str, dir: &TempDir) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(NAME, test).env(TRUTH_EXTRA, dir.path());
    command.env("FAKECUDA_SHM", dir.path().join("shm")).env("FAKECUDA_TRUTH", dir.path().join("truth.json"));
    command
}

/// The directory of the test.
pub(crate) fn dir() -> PathBuf {
    std::env::var_os(TRUTH_EXTRA).unwrap().into()
}

/// Is this the process that a test started as its other side?
pub(crate) fn is_peer() -> bool {
    std::env::var_os("FAKECUDA_TEST_PEER").is_some()
}

/// Starts the same test once more as its other side, on the same devices.
pub(crate) fn peer() -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&std::env::var(NAME).unwrap(), "--exact", "--nocapture"]).env("FAKECUDA_TEST_PEER", "1");
    command.env_remove("FAKECUDA_TRUTH").stdout(Stdio::piped()).spawn().unwrap()
}

/// The call must have worked.
#[track_caller]
pub(crate) fn ok(result: CUresult) {
    assert_eq!(result, 0);
}

/// Calls a function that returns one thing.
#[track_caller]
pub(crate) fn get<T: Default>(call: impl FnOnce(Out<'_, T>) -> CUresult) -> T {
    let mut value = T::default();
    ok(call(Some(&mut value)));
    value
}

/// Initialised, with a current context and a kernel.
pub(crate) struct Gpu {
    /// The kernel.
    pub(crate) function: u64,
}

impl Gpu {
    pub(crate) fn new() -> Self {
        ok(cuInit(0));
        let context: u64 = get(|out| cuDevicePrimaryCtxRetain(out, 0));
        ok(cuCtxSetCurrent(context));
        let module = get(|out| cuModuleLoadData(out, b"image".as_ptr().cast()));
        // SAFETY: a C string.
        let function = get(|out| unsafe { cuModuleGetFunction(out, module, c"kernel".as_ptr()) });
        Self { function }
    }

    /// A kernel that takes `units` times `FAKECUDA_UNIT_NS`.
    #[track_caller]
    pub(crate) fn launch(&self, units: u32, stream: u64) {
        ok(self.try_launch(units, stream));
    }

    pub(crate) fn try_launch(&self, units: u32, stream: u64) -> CUresult {
        let none = std::ptr::null_mut();
        cuLaunchKernel(self.function, units, 1, 1, 32, 1, 1, 0, stream, none, none)
    }
}

/// A stream with these flags: 0 blocking, 1 non-blocking.
#[track_caller]
pub(crate) fn stream(flags: u32) -> u64 {
    get(|out| cuStreamCreate(out, flags))
}

/// An event with timing.
#[track_caller]
pub(crate) fn event() -> u64 {
    get(|out| cuEventCreate(out, 0))
}

/// `CUDA_ERROR_NOT_READY`.
pub(crate) const NOT_READY: CUresult = 600;
