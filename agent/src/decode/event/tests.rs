use zerocopy::IntoBytes;

use super::*;

fn header(kind: u16, len: usize) -> Header {
    Header { abi: wire::ABI, kind, len: u32::try_from(len).unwrap(), time_ns: 7, tgid: 8, tid: 9 }
}

/// A record of a kind with zeros behind the header.
fn record(kind: u16, len: usize) -> Vec<u8> {
    let mut record = header(kind, len).as_bytes().to_vec();
    record.resize(len, 0);
    record
}

fn data(result: i32, head_len: u16, tail_len: u16, dir: u8, payload: &[u8]) -> Vec<u8> {
    let data = socket::Data {
        header: header(Kind::SocketData as u16, size_of::<socket::Data>() + payload.len()),
        id: socket::SockId { sock: 1, birth_ns: 2 },
        offset: 3,
        network: socket::Network::default(),
        result,
        requested: 4,
        head_len,
        tail_len,
        syscall: 5,
        dir,
        flags: 0,
    };
    [data.as_bytes(), payload].concat()
}

fn observation(json: impl AsRef<[u8]>) -> Vec<u8> {
    let json = json.as_ref();
    let len = size_of::<Header>() + json.len();
    [header(Kind::Observation as u16, len).as_bytes(), json].concat()
}

const FIXED: &[(Kind, usize)] = &[
    (Kind::SocketOpen, size_of::<socket::Open>()),
    (Kind::SocketState, size_of::<socket::State>()),
    (Kind::SocketListen, size_of::<socket::Listen>()),
    (Kind::Step, size_of::<cuda::Step>()),
    (Kind::Tally, size_of::<cuda::Tally>()),
    (Kind::Memory, size_of::<cuda::Memory>()),
    (Kind::MemoryCall, size_of::<memory::Call>()),
    (Kind::Context, size_of::<cuda::Context>()),
    (Kind::Resolved, size_of::<rare::Resolved>()),
    (Kind::Rare, size_of::<rare::Rare>()),
    (Kind::Exec, size_of::<process::Process>()),
    (Kind::Fork, size_of::<process::Process>()),
    (Kind::Exit, size_of::<process::Process>()),
    (Kind::CudaSeen, size_of::<process::Process>()),
];

#[test]
fn malformed_records_are_errors_with_a_reason() {
    let mut other_abi = record(Kind::Step as u16, 128);
    other_abi[0] = 99;
    let mut table = vec![
        ("empty", vec![], "short"),
        ("half a header", record(1, 24)[..23].to_vec(), "short"),
        ("other ABI", other_abi, "abi"),
        ("unknown kind", record(0, 24), "unknown_kind"),
        ("kind of the future", record(0x1ff, 24), "unknown_kind"),
        ("longer than it is", record(Kind::Exit as u16, 48)[..47].to_vec(), "short"),
        ("length less than the header", record(Kind::Exit as u16, 4), "short"),
        ("data without its fields", record(Kind::SocketData as u16, 63), "short"),
        ("payload missing", data(10, 10, 0, 0, b"123456789"), "short"),
        ("tail missing", data(20, 5, 5, 0, b"123456789"), "short"),
        ("more captured than moved", data(3, 2, 2, 0, b"1234"), "bad_field"),
        ("captured from an error", data(-11, 1, 0, 1, b"1"), "bad_field"),
        ("captured from nothing", data(0, 1, 0, 0, b"1"), "bad_field"),
        ("third direction", data(1, 1, 0, 2, b"1"), "bad_field"),
        ("no JSON", observation(""), "bad_observation"),
        ("broken JSON", observation("{\"type\":"), "bad_observation"),
        ("unknown observation", observation("{\"type\":\"weather\"}"), "bad_observation"),
        ("field missing", observation("{\"type\":\"clock\"}"), "bad_observation"),
        ("not UTF-8", observation(b"\"\xff\""), "bad_observation"),
    ];
    for (kind, len) in FIXED {
        table.push(("a byte short", record(*kind as u16, len - 1), "short"));
    }
    for (name, mut bytes, reason) in table {
        let error = decode(&mut bytes).expect_err(name);
        assert_eq!(error.reason(), reason, "{name}: {error}");
    }
}

#[test]
fn whole_records_decode_and_bytes_behind_them_do_not_matter() {
    for (kind, len) in FIXED {
        let mut bytes = record(*kind as u16, *len);
        bytes.extend_from_slice(b"slack");
        assert!(decode(&mut bytes).is_ok(), "{kind:?}");
    }
}

#[test]
fn a_step_from_before_it_had_a_context_has_none() {
    let mut bytes = record(Kind::Step as u16, cuda::STEP_WITHOUT_CONTEXT);
    bytes[112] = 5;
    bytes.extend_from_slice(&[0xff; 8]);
    let Ok(Event::Step(counted)) = decode(&mut bytes) else { panic!("not a step") };
    assert_eq!((counted.step.graph, counted.step.context), (5, 0));
    assert_eq!(counted.fresh, counted.step.work, "nothing was told before");
}

#[test]
fn payload_is_lent_from_the_record() {
    let mut bytes = data(100, 3, 2, 1, b"abcde");
    let Ok(Event::SocketData(data, payload)) = decode(&mut bytes) else { panic!("not data") };
    assert_eq!((&*payload.head, &*payload.tail), (&b"abc"[..], &b"de"[..]));
    assert_eq!(Stamp::from(&data.header), Stamp { time_ns: 7, tgid: 8, tid: 9 });
    payload.head.fill(b'x');
    assert!(bytes.ends_with(b"xxxde"));
}

#[test]
fn any_bytes_decode_or_fail_without_a_panic() {
    let kinds = [0_u16, 1, 2, 3, 4, 16, 17, 18, 24, 25, 32, 33, 34, 35, 0x100, 0xffff];
    let mut seed = 1_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(seed >> 40).unwrap()
    };
    for _ in 0..100_000 {
        let len = next() % 160;
        let mut bytes = record(kinds[next() % kinds.len()], len.max(24));
        for b in bytes.iter_mut().skip(8) {
            *b = next().to_le_bytes()[0];
        }
        if next() % 4 == 0 {
            bytes[4] = next().to_le_bytes()[0];
        }
        bytes.truncate(len);
        let _ = decode(&mut bytes);
    }
}
