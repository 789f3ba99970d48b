//! Memory maps, names and files.

use std::fs;

use super::*;

#[test]
fn lines_of_a_memory_map_are_read() {
    let plain = "7f10-7f20 r-xp 00001000 fe:01 1234                       /usr/lib/libcuda.so.1";
    let cases = [
        (plain, Some("/usr/lib/libcuda.so.1")),
        ("7f10-7f20 r-xp 0 fe:01 1234   /opt/a b/libcuda.so.1 (deleted)\n", Some("/opt/a b/libcuda.so.1")),
        ("7f10-7f20 r-xp 0 fe:01 1234   /opt/a\\012b/libcuda.so", Some("/opt/a\nb/libcuda.so")),
        ("7f10-7f20 rw-p 0 fe:01 1234   /usr/lib/libcuda.so.1", None),
        ("7f10-7f20 r-xp 0 00:00 0 ", None),
        ("7f10-7f20 r-xp 0 00:00 0                       [vdso]", None),
        ("7f10-7f20 r-xp 0 00:05 77   anon_inode:[x]", None),
        ("zz r-xp", None),
        ("", None),
    ];
    for (line, path) in cases {
        let mapping = parse_line(line.as_bytes());
        assert_eq!(mapping.as_ref().map(|m| m.path.to_str().unwrap()), path, "{line}");
    }
    let mapping = parse_line(plain.as_bytes()).unwrap();
    assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7f10, 0x7f20, 0x1000));
    assert_eq!(mapping.file, FileId { device: 0xfe << 32 | 1, inode: 1234 });
}

#[test]
fn bytes_that_are_not_text_are_survived() {
    let mapping = parse_line(b"7f10-7f20 r-xp 0 fe:01 9   /opt/\xff\xfe/libcuda.so.1").unwrap();
    assert!(is_driver_name(&mapping.path));
    assert_eq!(parse_line(b"\xff\xff-1 r-xp 0 fe:01 9 /x"), None);
}

#[test]
fn driver_names_are_told_from_others() {
    for name in ["libcuda.so", "libcuda.so.1", "libcuda.so.550.54.14"] {
        assert!(is_driver_name(&Path::new("/x").join(name)), "{name}");
    }
    for name in ["libcudart.so.12", "libcuda.so_backup", "libcudadebugger.so.1", "mylibcuda.so"] {
        assert!(!is_driver_name(&Path::new("/x").join(name)), "{name}");
    }
}

#[test]
fn what_may_be_a_driver_by_another_name_is_told_from_the_runtime() {
    for name in ["libcuda-control.so", "libCUDA-shim.so.1", "libvgpu-nvidia.so", "mylibcuda.so.1"] {
        assert!(may_be_driver(&Path::new("/x").join(name)), "{name}");
    }
    for name in ["cuda_server", "libvgpu.so", "libcublas.so.12"] {
        assert!(!may_be_driver(&Path::new("/x").join(name)), "{name}");
    }
    assert!(is_runtime_name(Path::new("/x/libcudart-d0da41ae.so.11.0")));
}

#[test]
fn names_that_may_have_tls_are_told_from_others() {
    for name in
        ["libssl.so.3", "libssl.so.1.1", "libssl-3e69114b.so.1.1", "libpython3.12.so.1.0", "_ssl.abi3.so"]
    {
        assert!(may_have_tls(&Path::new("/x").join(name)), "{name}");
    }
    for name in ["libssl3.so", "libcrypto.so.3", "my_ssl.so", "libgnutls.so.30"] {
        assert!(!may_have_tls(&Path::new("/x").join(name)), "{name}");
    }
}

#[test]
fn a_program_that_was_replaced_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("7")).unwrap();
    let procfs = ProcFs::new(folder.path());
    for mark in ["", " (deleted)"] {
        let line = format!("1000-2000 r-xp 0 fe:01 9   /opt/node{mark}\n");
        fs::write(folder.path().join("7/maps"), line).unwrap();
        let exe = format!("/opt/node{mark}");
        assert_eq!(mapped(&procfs, 7, Path::new(&exe)).unwrap().tls.len(), 1, "{exe}");
    }
}

#[test]
fn a_mapped_file_is_opened_through_the_process_root_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("7/root/lib/libcuda.so.1");
    fs::create_dir_all(library.parent().unwrap()).unwrap();
    fs::write(&library, "not a library").unwrap();
    let inode = fs::metadata(&library).unwrap().ino();
    let line = |inode: u64| format!("1000-2000 r-xp 0 fe:01 {inode}   /lib/libcuda.so.1\n").repeat(2);
    fs::write(folder.path().join("7/maps"), line(inode)).unwrap();
    let procfs = ProcFs::new(folder.path());
    let drivers = || mapped(&procfs, 7, Path::new("/bin/server")).unwrap().cuda;
    let mappings = drivers();
    assert_eq!(mappings.len(), 1, "one file, however often mapped");
    assert!(matches!(open_library(Kind::Cuda, &procfs, 7, &mappings[0]), Err(TargetError::Elf { .. })));
    fs::write(folder.path().join("7/maps"), line(inode + 1)).unwrap();
    let replaced = drivers();
    assert!(matches!(open_library(Kind::Cuda, &procfs, 7, &replaced[0]), Err(TargetError::Replaced { .. })));

    // Opening a FIFO would wait for a writer for ever.
    fs::remove_file(&library).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &library, Mode::RUSR).unwrap();
    let inode = fs::metadata(&library).unwrap().ino();
    fs::write(folder.path().join("7/maps"), line(inode)).unwrap();
    let fifo = drivers();
    assert!(matches!(open_library(Kind::Cuda, &procfs, 7, &fifo[0]), Err(TargetError::Replaced { .. })));
}

#[test]
fn every_row_has_its_programs_where_its_functions_are() {
    for row in TABLE {
        let kind = if row.runtime { Kind::Runtime } else { Kind::Cuda };
        for program in row.programs() {
            assert!(kind.programs().contains(program), "{}: {program}", row.name);
        }
    }
}
