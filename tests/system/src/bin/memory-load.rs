//! Calls the CUDA driver as it is told on stdin, one call a line, and answers each on stdout.
//!
//! `memory-load LIBRARY`. A call is the exported name and its arguments: a number; `@0` to `@3`, the address of a word
//! for a result; `*1,2,3`, the address of these words. Words behind the sixth go to the stack. The answer is the result code and the four words. Two lines mean
//! something else: `truth PATH` writes the driver's own counts there, `threads N ROUNDS` lets N threads call every
//! function that allocates or frees, ROUNDS times. At the end of the input it exits.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::io::{BufRead as _, Write as _, stdin, stdout};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, ensure};

/// Six arguments in registers, and the words of one that is passed by value (a `CUipcMemHandle`) on the stack.
type Function =
    unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u32;

/// Words that calls write results to. A handle for other processes is as long; what is not zero of a simulated one is in
/// the first four.
type Results = [u64; 8];

struct Driver {
    library: *mut c_void,
    functions: Mutex<HashMap<String, Function>>,
}

// SAFETY: a handle of the loader, which every thread may use.
unsafe impl Send for Driver {}
// SAFETY: likewise.
unsafe impl Sync for Driver {}

impl Driver {
    fn open(path: &str) -> Result<Self> {
        let text = CString::new(path)?;
        // SAFETY: a C string; the library's constructors are those that the caller asked for.
        let library = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW) };
        ensure!(!library.is_null(), "cannot load {path}");
        Ok(Self { library, functions: Mutex::default() })
    }

    fn symbol(&self, name: &str) -> Result<*mut c_void> {
        let text = CString::new(name)?;
        // SAFETY: the handle is never closed, and the name is a C string.
        let address = unsafe { libc::dlsym(self.library, text.as_ptr()) };
        ensure!(!address.is_null(), "the driver does not export {name}");
        Ok(address)
    }

    fn function(&self, name: &str) -> Result<Function> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(name) {
            return Ok(*function);
        }
        // SAFETY: functions of the driver take integers, pointers and such structures, and look at no more registers
        // and words than they have arguments.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(self.symbol(name)?) };
        functions.insert(name.to_owned(), function);
        Ok(function)
    }

    #[expect(clippy::many_single_char_names, reason = "arguments without a meaning here")]
    fn call(&self, name: &str, arguments: &[u64]) -> Result<u32> {
        let mut given = [0; 14];
        given[..arguments.len()].copy_from_slice(arguments);
        let [a, b, c, d, e, f, word @ ..] = given;
        let function = self.function(name)?;
        let [g, h, i, j, k, l, m, n] = word;
        // SAFETY: the caller's pointers are to words that live.
        Ok(unsafe { function(a, b, c, d, e, f, g, h, i, j, k, l, m, n) })
    }

    /// A call that returns one word; it must work.
    fn get(&self, name: &str, rest: &[u64]) -> Result<u64> {
        let mut word = 0_u64;
        let mut arguments = vec![(&raw mut word).expose_provenance() as u64];
        arguments.extend(rest);
        let code = self.call(name, &arguments)?;
        ensure!(code == 0, "{name} failed with {code}");
        Ok(word)
    }

    fn must(&self, name: &str, arguments: &[u64]) -> Result<()> {
        let code = self.call(name, arguments)?;
        ensure!(code == 0, "{name} failed with {code}");
        Ok(())
    }

    fn dump(&self, path: &str) -> Result<u32> {
        let text = CString::new(path)?;
        let address = self.symbol("fakecuda_dump_truth")?;
        // SAFETY: the simulated driver's own function of that name, with this signature.
        let dump = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> u32>(address)
        };
        // SAFETY: a C string.
        Ok(unsafe { dump(text.as_ptr()) })
    }
}

fn main() -> Result<()> {
    let library = std::env::args().nth(1).context("usage: memory-load LIBRARY")?;
    let driver = Arc::new(Driver::open(&library)?);
    let mut out = stdout().lock();
    for line in stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut results: Results = [0; 8];
        let code = match words[..] {
            [] => continue,
            ["truth", path] => driver.dump(path)?,
            ["threads", threads, rounds] => many(&driver, threads.parse()?, rounds.parse()?)?,
            [name, ref arguments @ ..] => one(&driver, name, arguments, &mut results)?,
        };
        let [a, b, c, d, ..] = results;
        writeln!(out, "{code} {a} {b} {c} {d}")?;
        out.flush()?;
    }
    Ok(())
}

fn one(driver: &Driver, name: &str, arguments: &[&str], results: &mut Results) -> Result<u32> {
    let at = results.as_mut_ptr().expose_provenance() as u64;
    // What arguments point to lives until the call is over.
    let mut buffers: Vec<Vec<u64>> = Vec::new();
    let mut numbers = Vec::new();
    for argument in arguments {
        numbers.push(if let Some(slot) = argument.strip_prefix('@') {
            let slot: u64 = slot.parse()?;
            ensure!(slot < 4, "there are four words for results");
            at + 8 * slot
        } else if let Some(list) = argument.strip_prefix('*') {
            let words: Result<Vec<u64>, _> = list.split(',').map(str::parse).collect();
            buffers.push(words?);
            buffers.last().map_or(0, |buffer| buffer.as_ptr().expose_provenance() as u64)
        } else {
            argument.parse()?
        });
    }
    driver.call(name, &numbers)
}

/// Every thread in the context that is current in this one.
fn many(driver: &Arc<Driver>, threads: u64, rounds: u64) -> Result<u32> {
    let context = driver.get("cuCtxGetCurrent", &[])?;
    let all: Vec<_> = (0..threads)
        .map(|thread| {
            let driver = Arc::clone(driver);
            thread::spawn(move || (0..rounds).try_for_each(|round| every(&driver, context, thread + round)))
        })
        .collect();
    for thread in all {
        thread.join().ok().context("a thread panicked")??;
    }
    Ok(0)
}

/// Every function that allocates or frees, once or more, and some that fail.
fn every(driver: &Driver, context: u64, n: u64) -> Result<()> {
    const KIB: u64 = 1 << 10;
    driver.must("cuCtxSetCurrent", &[context])?;
    let size = KIB * (1 + n % 16);
    let block = driver.get("cuMemAlloc_v2", &[size])?;
    let managed = driver.get("cuMemAllocManaged", &[size, 1])?;
    let mut pitch = 0_u64;
    let rows = driver
        .get("cuMemAllocPitch_v2", &[(&raw mut pitch).expose_provenance() as u64, 100, 1 + n % 7, 4])?;
    let pool = driver.get("cuMemPoolCreate", &[0])?;
    let mut pooled = vec![driver.get("cuMemAllocAsync", &[size, 0])?];
    pooled.push(driver.get("cuMemAllocAsync_ptsz", &[size, 0])?);
    pooled.push(driver.get("cuMemAllocFromPoolAsync", &[size, pool, 0])?);
    pooled.push(driver.get("cuMemAllocFromPoolAsync_ptsz", &[size, pool, 0])?);
    let flat = [16_u64, 2 + n % 3, 0x20 | 4 << 32];
    let deep = [16_u64, 2, 1 + n % 3, 0x10 | 1 << 32, 0];
    let flat = driver.get("cuArrayCreate_v2", &[flat.as_ptr().expose_provenance() as u64])?;
    let array = driver.get("cuArray3DCreate_v2", &[deep.as_ptr().expose_provenance() as u64])?;
    let place = [1_u64, 1];
    let handle = driver.get("cuMemCreate", &[64 * KIB, place.as_ptr().expose_provenance() as u64, 0])?;
    let range = driver.get("cuMemAddressReserve", &[64 * KIB, 0, 0, 0])?;
    driver.must("cuMemMap", &[range, 64 * KIB, 0, handle, 0])?;
    driver.must("cuMemRelease", &[handle])?;
    let host = driver.get("cuMemHostAlloc", &[size, 0])?;
    let older = driver.get("cuMemAllocHost_v2", &[size])?;
    driver.must("cuMemHostRegister_v2", &[block, size, 0])?;

    // None of these can work.
    let mut none = 0_u64;
    let none = (&raw mut none).expose_provenance() as u64;
    let refused = [
        driver.call("cuMemAlloc_v2", &[none, 1 << 40])?,
        driver.call("cuMemAllocAsync", &[none, 1 << 40, 0])?,
        driver.call("cuMemCreate", &[none, 1 << 40, place.as_ptr().expose_provenance() as u64, 0])?,
    ];
    ensure!(refused == [2, 2, 2], "there is more memory than was thought: {refused:?}");
    ensure!(driver.call("cuMemFree_v2", &[block + 1])? != 0, "that is no block");

    driver.must("cuMemHostUnregister", &[block])?;
    driver.must("cuMemFreeHost", &[host])?;
    driver.must("cuMemFreeHost", &[older])?;
    driver.must("cuMemUnmap", &[range, 64 * KIB])?;
    driver.must("cuMemAddressFree", &[range, 64 * KIB])?;
    driver.must("cuArrayDestroy", &[flat])?;
    driver.must("cuArrayDestroy", &[array])?;
    for (name, address) in ["cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemFree_v2"].iter().zip(&pooled) {
        driver.must(name, &[*address, 0])?;
    }
    driver.must("cuMemFree_v2", &[rows])?;
    driver.must("cuMemFree_v2", &[managed])?;
    // Left behind now and then, so that there is something in the end; the last of a pool as well.
    if !n.is_multiple_of(5) {
        driver.must("cuMemFree_v2", &[block])?;
        driver.must("cuMemFreeAsync", &[pooled[3], 0])?;
    }
    driver.must("cuMemPoolDestroy", &[pool])
}
