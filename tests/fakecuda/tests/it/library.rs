//! The built library: names, first instructions, and use through `dlopen`.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use cuda::Func;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

use crate::isolated::isolated_then;

/// Cargo builds every crate type of a library before its tests.
fn path() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libcuda.so")
}

/// First bytes of every exported function.
fn functions(file: &[u8]) -> BTreeMap<String, (u64, Vec<u8>)> {
    let elf = object::File::parse(file).unwrap();
    let text = elf.sections().find(|s| s.name() == Ok(".text")).unwrap();
    let functions =
        elf.dynamic_symbols().filter(|s| s.is_definition() && s.kind() == object::SymbolKind::Text);
    let bytes = |at| text.data_range(at, 4).unwrap().unwrap_or_default().to_vec();
    functions.map(|s| (s.name().unwrap().to_owned(), (s.address(), bytes(s.address())))).collect()
}

#[test]
fn every_function_is_exported_at_an_address_of_its_own() {
    let file = std::fs::read(path()).unwrap();
    let functions = functions(&file);
    let mut seen = BTreeMap::new();
    for func in Func::ALL {
        let (address, _) = functions.get(func.name()).unwrap_or_else(|| panic!("{} is missing", func.name()));
        // Folded together, a probe on one variant would fire for the other.
        assert_eq!(seen.insert(*address, func.name()), None, "{}", func.name());
    }
    assert!(functions.contains_key("fakecuda_dump_truth"));
}

/// A probe on `push` is several times cheaper than on an instruction that must be single-stepped, and the real
/// library's functions begin with one.
#[cfg(target_arch = "x86_64")]
#[test]
fn every_function_begins_with_push_rbp() {
    let file = std::fs::read(path()).unwrap();
    let functions = functions(&file);
    for func in Func::ALL {
        assert_eq!(functions[func.name()].1[0], 0x55, "{}: built without frame pointers?", func.name());
    }
}

fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: an open library and a C string.
    let at = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!at.is_null(), "{name:?}");
    at
}

#[test]
fn it_works_through_dlopen() {
    let body = || {
        let file = CString::new(path().into_os_string().into_vec()).unwrap();
        // SAFETY: a C string; the library's initialisers do nothing.
        let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        // SAFETY: the signatures are those of cuda.h.
        let (init, count, retain) = unsafe {
            (
                std::mem::transmute::<*mut c_void, extern "C" fn(u32) -> u32>(symbol(library, c"cuInit")),
                std::mem::transmute::<*mut c_void, extern "C" fn(*mut i32) -> u32>(symbol(
                    library,
                    c"cuDeviceGetCount",
                )),
                std::mem::transmute::<*mut c_void, extern "C" fn(*mut u64, i32) -> u32>(symbol(
                    library,
                    c"cuDevicePrimaryCtxRetain",
                )),
            )
        };
        let (mut devices, mut context) = (0, 0);
        assert_eq!((init(0), count(&raw mut devices), retain(&raw mut context, 0)), (0, 0, 0));
        assert_eq!((devices, context != 0), (1, true));
        // Not the copy of the library that is linked into this test.
        assert_eq!(cuda::cuCtxSynchronize(), 3);
    };
    isolated_then("library::it_works_through_dlopen", &[], body, |truth| {
        assert_eq!(
            (&truth["calls"]["cuInit"], &truth["calls"]["cuDevicePrimaryCtxRetain"]),
            (&1.into(), &1.into())
        );
        assert!(truth["calls"]["cuCtxSynchronize"].is_null());
    });
}
