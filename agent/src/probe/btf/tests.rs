//! The reader on a small blob built here, on damaged ones, and on the running kernel's.

use super::*;

/// Builds a blob: types as word lists, names by number in the string section.
struct Blob {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl Blob {
    fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0] }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = u32::try_from(self.strings.len()).unwrap();
        self.strings.extend_from_slice(name.as_bytes());
        self.strings.push(0);
        at
    }

    fn words(&mut self, words: &[u32]) {
        self.types.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn plain(&mut self, kind: u32, name: &str, refers: u32) {
        let name = self.name(name);
        self.words(&[name, kind << 24, refers]);
    }

    fn structure(&mut self, kind: u32, flag: bool, name: &str, members: &[(&str, u32, u32)]) {
        let name = self.name(name);
        let vlen = u32::try_from(members.len()).unwrap();
        self.words(&[name, u32::from(flag) << 31 | kind << 24 | vlen, 64]);
        for &(member, kind, offset) in members {
            let member = self.name(member);
            self.words(&[member, kind, offset]);
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let [types, strings] =
            [&self.types, &self.strings].map(|section| u32::try_from(section.len()).unwrap());
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        bytes.extend([24, 0, types, types, strings].iter().flat_map(|word: &u32| word.to_le_bytes()));
        bytes.extend_from_slice(&self.types);
        bytes.extend_from_slice(&self.strings);
        bytes
    }
}

/// 1 int, 2 inner struct, 3 anonymous union, 4 typedef of 2, 5 const of 4, 6 outer struct, 7 first `twice`,
/// 8 second `twice`, 9 pointer, 10 tracepoint typedef.
fn sample() -> Blob {
    let mut blob = Blob::new();
    blob.plain(1, "int", 4);
    blob.words(&[32]);
    blob.structure(4, false, "inner", &[("a", 1, 0), ("b", 1, 32)]);
    blob.structure(5, false, "", &[("x", 1, 0), ("", 2, 64)]);
    blob.plain(8, "inner_t", 2);
    blob.plain(10, "", 4);
    blob.structure(
        4,
        true,
        "outer",
        &[("first", 1, 0), ("", 3, 64), ("deep", 5, 192), ("bits", 1, 5 << 24 | 3), ("p", 9, 256)],
    );
    blob.structure(4, false, "twice", &[("other", 1, 0)]);
    blob.structure(4, false, "twice", &[("wanted", 1, 96)]);
    blob.plain(2, "", 2);
    blob.plain(8, "btf_trace_sock_send_length", 9);
    blob
}

#[test]
fn fields_are_found_by_path() {
    let btf = Btf::parse(sample().bytes()).unwrap();
    let cases = [
        ("outer.first", 0),
        ("outer.x", 8),
        ("outer.b", 20),
        ("outer.deep", 24),
        ("outer.deep.b", 28),
        ("twice.wanted", 12),
        ("outer.p", 32),
    ];
    for (path, offset) in cases {
        assert_eq!(btf.offset(path).unwrap(), offset, "{path}");
    }
    assert!(btf.has_tracepoint("sock_send_length"));
    assert!(!btf.has_tracepoint("sock_recv_length"));
}

#[test]
fn what_is_not_there_is_named() {
    let btf = Btf::parse(sample().bytes()).unwrap();
    for (path, missing) in
        [("absent.a", "absent"), ("outer.zzz", "zzz"), ("outer.deep.q", "q"), ("outer.p.a", "a")]
    {
        let error = btf.offset(path).unwrap_err();
        assert!(matches!(&error, BtfError::NotFound { part, .. } if part == missing), "{path}: {error:?}");
    }
    assert!(matches!(btf.offset("outer.bits"), Err(BtfError::BitField { .. })));
}

#[test]
fn every_cut_and_every_flipped_byte_is_survived() {
    let bytes = sample().bytes();
    for len in 0..bytes.len() {
        assert!(Btf::parse(bytes[..len].to_vec()).is_err(), "cut at {len}");
    }
    for at in 0..bytes.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= mask;
            if let Ok(btf) = Btf::parse(bytes) {
                let _outcome = (btf.offset("outer.deep.b"), btf.offset("outer.b"), btf.has_tracepoint("x"));
            }
        }
    }
}

#[test]
fn types_that_contain_themselves_end() {
    let mut blob = Blob::new();
    blob.plain(8, "loop", 1);
    blob.structure(4, false, "self", &[("", 2, 0), ("", 2, 0), ("", 1, 0)]);
    let btf = Btf::parse(blob.bytes()).unwrap();
    assert!(btf.offset("self.a").is_err());
}

#[test]
fn the_running_kernel_has_the_fields() {
    if !std::path::Path::new(VMLINUX).exists() {
        println!("skipped: {VMLINUX} is absent, this kernel has no type information");
        return;
    }
    let btf = Btf::vmlinux().unwrap();
    let offsets = btf.socket_offsets().unwrap();
    // The layout of `sock_common` begins with the address pair on every kernel of this age.
    assert_eq!((offsets.peer_v4, offsets.local_v4), (0, 4));
    assert_eq!((offsets.peer_port, offsets.local_port, offsets.family), (12, 14, 16));
    assert_eq!(offsets.task_tgid, offsets.task_pid + 4);
    assert!(offsets.net > 0 && offsets.netns_inum > 0);
    assert!(offsets.task_files > 0 && offsets.socket_sock > 0);
    assert!(offsets.task_signal > 0 && offsets.signal_live > 0 && offsets.sock_shutdown > 0);
    assert!(btf.has_tracepoint("sched_process_exec") && btf.has_tracepoint("sys_exit"));
}
