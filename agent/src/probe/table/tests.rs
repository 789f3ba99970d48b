//! The table against itself, against the prototypes in it, and against `cuda.h`'s layout.

use std::collections::BTreeSet;

use super::*;

fn symbols() -> impl Iterator<Item = (u16, &'static Row, Symbol)> {
    TABLE
        .iter()
        .enumerate()
        .flat_map(|(i, row)| row.symbols.iter().map(move |&symbol| (u16::try_from(i).unwrap(), row, symbol)))
}

#[test]
fn names_and_symbols_are_unique() {
    let names: BTreeSet<_> = TABLE.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), TABLE.len());
    let all: BTreeSet<_> = symbols().map(|(_, _, symbol)| symbol.name).collect();
    assert_eq!(all.len(), symbols().count());
    assert!(all.contains(DRIVER_MARK));
}

#[test]
fn every_cookie_survives_the_trip_and_is_unique() {
    let mut seen = BTreeSet::new();
    for (number, row, symbol) in symbols() {
        let cookie = row.cookie(number, symbol);
        assert_eq!(Cookie::decode(cookie.encode()), Some(cookie), "{}", symbol.name);
        assert!(seen.insert((cookie.encode(), symbol.name)));
        assert_eq!(cookie.flags & FLAG_PER_THREAD != 0, symbol.per_thread);
    }
}

#[test]
fn symbols_belong_to_their_row_and_suffixes_mean_what_they_say() {
    for (_, row, symbol) in symbols() {
        let suffix = symbol.name.strip_prefix(row.name).unwrap_or_else(|| panic!("{}", symbol.name));
        let per_thread = ["_ptsz", "_ptds"].iter().any(|end| suffix.ends_with(end));
        assert_eq!(per_thread, symbol.per_thread, "{}", symbol.name);
        // `_ptsz`: takes a stream argument; `_ptds`: uses the default stream.
        if per_thread && row.programs() != [names::PROG_RARE_ENTER, names::PROG_RARE_RETURN] {
            assert_eq!(suffix.ends_with("_ptds"), row.stream == Loc::None, "{}", symbol.name);
        }
        assert!(row.prototype.contains(row.name), "{}", row.name);
    }
}

/// The prototypes are the independent statement: count the arguments in them and compare the locations.
#[test]
fn locations_agree_with_the_prototypes() {
    for row in TABLE {
        let arguments = row.prototype.split_once('(').unwrap().1.trim_end_matches(')');
        // A structure of twelve bytes takes two registers.
        let slots: Vec<&str> = arguments
            .split(',')
            .flat_map(|argument| std::iter::repeat_n(argument, 1 + usize::from(argument.contains("dim3 "))))
            .collect();
        let place = |word: &str| {
            slots.iter().position(|argument| argument.contains(word)).map(|index| match index {
                0..=5 => Loc::Arg(u8::try_from(index).unwrap()),
                _ => Loc::Stack(u8::try_from(index - 5).unwrap()),
            })
        };
        if !matches!(row.stream, Loc::Deref(_)) {
            assert_eq!(row.stream, place(" hStream").unwrap_or(Loc::None), "{}: stream", row.name);
        }
        if row.programs().iter().any(|program| program.starts_with("cuda_context")) {
            context(row, place);
            continue;
        }
        let bytes = match row.class {
            Class::StreamCreate => place("flags"),
            Class::CopyBatch => place("count"),
            Class::CopyRows => place("width"),
            Class::Launch => place("numDevices"),
            // Sizes that are not those of what is moved or taken.
            Class::GraphInstantiate | Class::Memset | Class::CaptureBegin => None,
            Class::Link => place("size_t size"),
            Class::Resolve => place("symbolStatus"),
            class if class.is_memory() => place("size_t bytes"),
            _ => place("size_t bytes").or_else(|| place("size_t")),
        };
        assert_eq!(row.bytes, bytes.unwrap_or(Loc::None), "{}: bytes", row.name);
        let object = match row.class {
            Class::GraphLaunch => place("hGraphExec"),
            Class::SyncEvent | Class::EventRecord | Class::WaitEvent | Class::QueryEvent | Class::Destroy => {
                place("hEvent")
            }
            Class::StreamCreate => place("phStream"),
            Class::ExportAddress => place("dptr"),
            Class::SyncContext => place("CUcontext ctx"),
            Class::Copy2D | Class::Copy3D | Class::CopyExtent => place("pCopy"),
            Class::CopyRows => place("height"),
            Class::CopyBatch => place("sizes"),
            // What the call is about comes first, but for the amounts that are asked for.
            class if class.is_memory() => Some(Loc::Arg(0)),
            Class::Resolve => place("pfn"),
            _ => None,
        };
        assert_eq!(row.object, object.unwrap_or(Loc::None), "{}: object", row.name);
        let other = match row.class {
            Class::AllocPitch => place("pPitch"),
            Class::AllocPool => place("pool"),
            Class::AllocArray | Class::AllocArray3D | Class::AllocMipmap => place("desc"),
            Class::CreatePhysical => place("prop"),
            Class::RetainPhysical => place("addr"),
            Class::MapRange => place("handle"),
            Class::SetPool | Class::GetPool => place("attr"),
            Class::MemoryInfo => place("total"),
            Class::ExportAddress => Some(Loc::Arg(0)),
            Class::ImportAddress => place("shareData").or(Some(Loc::Stack(1))),
            _ => None,
        };
        assert_eq!(row.other, other.unwrap_or(Loc::None), "{}: other", row.name);
    }
}

/// The kernel side takes these by their number.
#[test]
fn arguments_beside_the_cookie_are_where_the_kernel_side_looks() {
    for (name, word, index) in [
        ("cuMemAllocPitch", "Height", 3),
        ("cuMemAllocAsync", "hStream", 2),
        ("cuMemAllocFromPoolAsync", "hStream", 3),
        ("cuMemFreeAsync", "hStream", 1),
        ("cudaMallocAsync", "hStream", 2),
        ("cudaFreeAsync", "hStream", 1),
        ("cuGetProcAddress", "cudaVersion", 2),
        ("cuMemPoolSetAttribute", "value", 2),
        ("cuMemPoolGetAttribute", "value", 2),
        ("cuMipmappedArrayCreate", "numMipmapLevels", 2),
    ] {
        let row = TABLE.iter().find(|row| row.name == name).unwrap();
        assert_eq!(row.prototype.split(',').position(|a| a.contains(word)), Some(index), "{name}");
    }
}

#[test]
fn an_address_is_returned_through_a_pointer_to_a_pointer_and_no_other_way() {
    // An export gives a handle that is no address.
    let is_one = |row: &&Row| row.class.is_memory() && row.class != Class::ExportAddress;
    for row in TABLE.iter().filter(is_one) {
        let first = row.prototype.split_once('(').unwrap().1.split(',').next().unwrap();
        let is_handle = !first.starts_with("void *") && !first.starts_with("size_t");
        let gives = first.contains("**") || is_handle && first.contains('*');
        assert_eq!(row.class.gives_address(), gives, "{}", row.name);
    }
}

/// What a context or device call gives stands first; what it is asked with has a name of its own.
fn context(row: &Row, place: impl Fn(&str) -> Option<Loc>) {
    let asked = match row.class {
        Class::DeviceGet => place("ordinal"),
        Class::DeviceByBus => place("pciBusId"),
        _ => place("CUdevice dev"),
    };
    assert_eq!(row.bytes, asked.unwrap_or(Loc::None), "{}", row.name);
    let object = if row.class == Class::ContextReset { Loc::None } else { Loc::Arg(0) };
    assert_eq!(row.object, object, "{}", row.name);
}

#[test]
fn the_launch_configuration_has_its_stream_at_byte_32() {
    /// `CUlaunchConfig` of `cuda.h`.
    #[repr(C)]
    struct Config {
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        stream: usize,
        attributes: usize,
        attribute_count: u32,
    }
    let row = TABLE.iter().find(|row| row.name == "cuLaunchKernelEx").unwrap();
    assert_eq!(row.stream, Loc::Deref(u8::try_from(std::mem::offset_of!(Config, stream)).unwrap()));
}

#[test]
fn only_rows_whose_return_matters_have_a_return_program() {
    for row in TABLE {
        let waits = row.blocking
            || matches!(
                row.class,
                Class::SyncStream
                    | Class::SyncEvent
                    | Class::SyncContext
                    | Class::QueryEvent
                    | Class::QueryStream
                    | Class::CaptureBegin
                    | Class::StreamCreate
            )
            || row.class.is_memory()
            || row.programs().contains(&names::PROG_CONTEXT_RETURN)
            || matches!(row.class as u8, 32..=79);
        assert_eq!(row.programs().len() == 2, waits, "{}", row.name);
    }
}

#[test]
fn functions_are_found_by_the_names_that_are_asked_for() {
    for (name, own_stream, symbol) in [
        ("cuLaunchKernel", false, Some("cuLaunchKernel")),
        ("cuLaunchKernel", true, Some("cuLaunchKernel_ptsz")),
        ("cuLaunchKernel_ptsz", false, Some("cuLaunchKernel_ptsz")),
        ("cuMemAlloc", true, Some("cuMemAlloc_v2")),
        ("cuMemcpyHtoD", false, Some("cuMemcpyHtoD_v2")),
        ("cudaLaunchKernel", false, Some("cudaLaunchKernel")),
        ("cuDeviceGetName", false, None),
        ("", false, None),
    ] {
        assert_eq!(find(name, own_stream, 0).map(|(_, symbol)| symbol.name), symbol, "{name}");
    }
}

#[test]
fn variants_that_nobody_taught_are_told_from_other_functions() {
    for name in [
        "cuLaunchKernel_v9",
        "cuLaunchKernel_v9_ptsz",
        "cuMemAlloc_v3",
        "cuGraphLaunch_v2",
        "cuEventSynchronize_ptsz",
    ] {
        assert!(is_unknown_variant(name), "{name}");
    }
    for name in [
        "cuLaunchKernel",
        "cuLaunchKernel_ptsz",
        "cuLaunchKernelExotic",
        "cuMemAllocHost_v2",
        "cuLaunch",
        "cuLaunchKernel_vx",
        "cuCtxSynchronize_v2",
        // From before CUDA 3.2.
        "cuMemcpyHtoD",
        "cuMemsetD8",
        "cuMemcpy2D",
        "cuMemGetInfo",
        "cuArrayCreate",
    ] {
        assert!(!is_unknown_variant(name), "{name}");
    }
}

#[test]
fn the_version_that_is_asked_for_says_which_arguments_a_function_takes() {
    let row = |name, version| find(name, false, version).map(|(row, _)| TABLE[usize::from(row)].name);
    for (name, version, want) in [
        ("cuCtxCreate", 3_020, "cuCtxCreate"),
        ("cuCtxCreate", 12_040, "cuCtxCreate_v3"),
        ("cuCtxCreate", 13_000, "cuCtxCreate_v4"),
        ("cuMemPrefetchAsync", 12_010, "cuMemPrefetchAsync"),
        ("cuMemPrefetchAsync", 12_020, "cuMemPrefetchAsync_v2"),
        ("cuLaunchKernel", 13_000, "cuLaunchKernel"),
    ] {
        assert_eq!(row(name, version), Some(want), "{name} of {version}");
    }
    // The thread's own stream is asked for beside the version.
    let own = find("cuMemPrefetchAsync", true, 13_000).map(|(_, symbol)| symbol.name);
    assert_eq!(own, Some("cuMemPrefetchAsync_v2_ptsz"));
    for (plain, _, later) in LATER {
        let has = |name: &str| TABLE.iter().any(|row| row.name == name);
        assert!(has(plain) && has(later), "{plain}, {later}");
    }
}

/// What system tests call, and compare with the simulated driver, is what their programs name. The exceptions are forms that
/// nothing has been built against for fifteen years, and what is not simulated.
#[test]
fn every_function_is_called_by_the_system_tests() {
    const NOT_CALLED: &[&str] = &[
        "cuCtxCreate",
        "cuCtxDestroy",
        "cuCtxPopCurrent",
        "cuCtxPushCurrent",
        "cuDevicePrimaryCtxRelease",
        "cuDevicePrimaryCtxReset",
        "cuEventDestroy",
        "cuGraphInstantiate",
        "cuGreenCtxStreamCreate",
        "cuIpcOpenMemHandle",
        "cuLibraryLoadFromFile",
        "cuLinkAddData",
        "cuLinkAddFile",
        "cuLinkAddFile_v2",
        "cuMemAlloc",
        "cuMemAllocHost",
        "cuMemFree",
        "cuMemHostRegister",
        "cuMemImportFromShareableHandle",
        "cuMemPoolExportPointer",
        "cuMemPoolImportPointer",
        "cuMemcpyWithAttributesAsync",
        "cuMemcpyWithAttributesAsync_ptsz",
        "cuLinkCreate",
        "cuStreamDestroy",
    ];
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/system");
    let mut folders = vec![root.join("src/bin"), root.join("tests"), root.join("../caller/src")];
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                text += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    let is_word = |b: char| b.is_ascii_alphanumeric() || b == '_';
    let called: BTreeSet<&str> = text.split(|b: char| !is_word(b)).collect();
    let symbols = || TABLE.iter().filter(|row| !row.runtime).flat_map(|row| row.symbols).map(|one| one.name);
    let missing: Vec<&str> =
        symbols().filter(|name| !called.contains(name) && !NOT_CALLED.contains(name)).collect();
    assert!(missing.is_empty(), "nothing calls {missing:?}");
    let stale: Vec<&&str> =
        NOT_CALLED.iter().filter(|name| symbols().all(|symbol| symbol != **name)).collect();
    assert!(stale.is_empty(), "not in the table: {stale:?}");
}
