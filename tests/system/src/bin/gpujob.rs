//! A job on simulated GPUs: so many kernels, a wait, a pause, again and again; a thread for each device.
//!
//! `gpujob [NAME] --libcuda FILE [--start FILE] [--working FILE] --stop FILE [--device N]… [--kernels N] [--units N]
//! [--pause-us N] [--uuid] [--blocks N] [--block-mib N] [--hole-every N]`
//!
//! It loads the driver at once and calls it when the file `--start` is there, makes the file `--working` after its
//! first step, and ends when `--stop` is there. It holds `--blocks` of memory on each device, less every N-th of
//! them (`--hole-every`). `NAME` is for
//! whoever looks at its command line.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// How often a file that is waited for is looked for.
const INTERVAL: Duration = Duration::from_millis(2);

struct Arguments {
    libcuda: PathBuf,
    start: Option<PathBuf>,
    working: Option<PathBuf>,
    stop: PathBuf,
    devices: Vec<c_int>,
    kernels: u32,
    units: c_uint,
    pause: Duration,
    uuid: bool,
    blocks: usize,
    block_mib: usize,
    hole_every: usize,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let (mut libcuda, mut start, mut working, mut stop) = (None, None, None, None);
        let (mut devices, mut kernels, mut units, mut pause, mut uuid) = (Vec::new(), 4, 100, 0, false);
        let (mut blocks, mut block_mib, mut hole_every) = (0, 64, 0);
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix("--") else { continue };
            let mut value = || words.next().with_context(|| format!("--{option} wants a value"));
            match option {
                "libcuda" => libcuda = Some(value()?.into()),
                "start" => start = Some(value()?.into()),
                "working" => working = Some(value()?.into()),
                "stop" => stop = Some(value()?.into()),
                "device" => devices.push(value()?.parse()?),
                "kernels" => kernels = value()?.parse()?,
                "units" => units = value()?.parse()?,
                "pause-us" => pause = value()?.parse()?,
                "uuid" => uuid = true,
                "blocks" => blocks = value()?.parse()?,
                "block-mib" => block_mib = value()?.parse()?,
                "hole-every" => hole_every = value()?.parse()?,
                _ => bail!("what is --{option}?"),
            }
        }
        let (libcuda, stop) = (libcuda.context("--libcuda is missing")?, stop.context("--stop is missing")?);
        Ok(Self {
            libcuda,
            start,
            working,
            stop,
            devices,
            kernels,
            units,
            pause: Duration::from_micros(pause),
            uuid,
            blocks,
            block_mib,
            hole_every,
        })
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let driver = Driver::open(&arguments.libcuda)?;
    while arguments.start.as_ref().is_some_and(|start| !start.exists()) {
        thread::sleep(INTERVAL);
    }
    driver.call("cuInit", |function: extern "C" fn(c_uint) -> c_uint| function(0))?;
    let (driver, arguments) = (&driver, &arguments);
    thread::scope(|scope| {
        let start = |&device: &c_int| scope.spawn(move || work(driver, device, arguments));
        let jobs: Vec<_> = arguments.devices.iter().map(start).collect();
        jobs.into_iter().try_for_each(|job| job.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
    })
}

/// On the legacy default stream, whose handle is the same in every context.
fn work(driver: &Driver, ordinal: c_int, arguments: &Arguments) -> Result<()> {
    type Launch = extern "C" fn(
        Raw,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        Raw,
        *mut Raw,
        *mut Raw,
    ) -> c_uint;
    let (mut device, mut context, mut module, mut function) = (0, null_mut(), null_mut(), null_mut());
    let get = |call: extern "C" fn(*mut c_int, c_int) -> c_uint| call(&raw mut device, ordinal);
    driver.call("cuDeviceGet", get)?;
    if arguments.uuid {
        let mut uuid = [0_u8; 16];
        let ask = |call: extern "C" fn(*mut u8, c_int) -> c_uint| call(uuid.as_mut_ptr(), device);
        driver.call("cuDeviceGetUuid_v2", ask)?;
    }
    let retain = |call: extern "C" fn(*mut Raw, c_int) -> c_uint| call(&raw mut context, device);
    driver.call("cuDevicePrimaryCtxRetain", retain)?;
    driver.call("cuCtxSetCurrent", |call: extern "C" fn(Raw) -> c_uint| call(context))?;
    let load =
        |call: extern "C" fn(*mut Raw, *const c_char) -> c_uint| call(&raw mut module, c"kernel".as_ptr());
    driver.call("cuModuleLoadData", load)?;
    let name = c"kernel".as_ptr();
    let find =
        |call: extern "C" fn(*mut Raw, Raw, *const c_char) -> c_uint| call(&raw mut function, module, name);
    driver.call("cuModuleGetFunction", find)?;
    hold(driver, arguments)?;
    let launch: Launch = driver.function("cuLaunchKernel")?;
    let synchronize: extern "C" fn(Raw) -> c_uint = driver.function("cuStreamSynchronize")?;
    let mut working = arguments.working.as_ref();
    while !arguments.stop.exists() {
        for _ in 0..arguments.kernels {
            let code =
                launch(function, arguments.units, 1, 1, 1, 1, 1, 0, null_mut(), null_mut(), null_mut());
            ensure!(code == 0, "cuLaunchKernel failed with {code}");
        }
        ensure!(synchronize(null_mut()) == 0, "cuStreamSynchronize failed");
        if let Some(working) = working.take() {
            std::fs::write(working, "")?;
        }
        if !arguments.pause.is_zero() {
            thread::sleep(arguments.pause);
        }
    }
    Ok(())
}

type Raw = *mut c_void;

/// Takes memory, as far as there is any, and gives some of it back where holes are wanted.
fn hold(driver: &Driver, arguments: &Arguments) -> Result<()> {
    let alloc: extern "C" fn(*mut u64, usize) -> c_uint = driver.function("cuMemAlloc_v2")?;
    let mut held = Vec::new();
    for _ in 0..arguments.blocks {
        let mut address = 0;
        if alloc(&raw mut address, arguments.block_mib << 20) != 0 {
            break;
        }
        held.push(address);
    }
    let is_hole = |(at, _): &(usize, u64)| arguments.hole_every > 0 && at % arguments.hole_every == 0;
    let mut given_back = held.into_iter().enumerate().filter(is_hole).map(|(_, address)| address);
    given_back.try_for_each(|address| {
        driver.call("cuMemFree_v2", |free: extern "C" fn(u64) -> c_uint| free(address))
    })
}

/// The library, never closed.
struct Driver(Raw);

// SAFETY: a handle of `dlopen` is for all threads.
unsafe impl Sync for Driver {}

impl Driver {
    fn open(path: &Path) -> Result<Self> {
        let name = CString::new(path.to_str().context("the path is UTF-8")?)?;
        // SAFETY: a C string; the library's constructors are those that the user asked for.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        ensure!(!library.is_null(), "cannot load {}", path.display());
        Ok(Self(library))
    }

    /// The function of that name, whose C signature the caller knows.
    fn function<F: Copy>(&self, name: &str) -> Result<F> {
        const { assert!(size_of::<F>() == size_of::<Raw>()) };
        let text = CString::new(name)?;
        // SAFETY: the library is loaded, and the name is a C string.
        let address = unsafe { libc::dlsym(self.0, CStr::as_ptr(&text)) };
        ensure!(!address.is_null(), "there is no {name}");
        // SAFETY: `F` is a pointer to a function of the driver's signature, as the caller says.
        Ok(unsafe { std::mem::transmute_copy::<Raw, F>(&address) })
    }

    fn call<F: Copy>(&self, name: &str, call: impl FnOnce(F) -> c_uint) -> Result<()> {
        let code = call(self.function(name)?);
        ensure!(code == 0, "{name} failed with {code}");
        Ok(())
    }
}
