//! First inputs: what real peers say, so that a run begins behind the first checks of a parser.

use std::path::{Path, PathBuf};

use agent::{
    probe::btf::VMLINUX,
    source::recording::{MAX_RECORD, Reader, Writer},
};
use wire::socket::{DIR_RECV, DIR_SEND};

use crate::{
    body,
    make::{Captured, Maker},
    records,
    script::script,
};

const CHAT: &[u8] = br#"{"model":"m","stream":true,"max_tokens":9,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"so \"and\" \u00e9"}]}"#;
const ANSWER: &[u8] = br#"{"id":"a","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"yes","tool_calls":[]},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#;
const EVENT: &[u8] =
    b"data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn request(path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: h:80\r\nx-request-id: r-1\r\nAuthorization: Bearer s\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn answer(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nserver: u\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x};e=1\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// HTTP/1.1.
pub fn http1() -> Vec<Vec<u8>> {
    let chat = request("/v1/chat/completions?k=v", CHAT);
    let events = [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        &chunk(EVENT)[..],
    ]
    .concat();
    let end = [&chunk(EVENT)[..], &chunk(b"data: [DONE]\n\n"), b"0\r\nx-trailer: t\r\n\r\n"].concat();
    let pipelined = [request("/v1/completions", b"{}"), request("/a", b"")].concat();
    let continued = b"PUT /a HTTP/1.1\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n";
    let upgrade = b"GET /ws HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let (get, head) = (&b"GET http://u:p@h:1/a?b HTTP/1.0\r\n\r\n"[..], &b"HEAD / HTTP/1.1\r\n\r\n"[..]);
    vec![
        script(&[(DIR_RECV, &chat), (DIR_SEND, &events), (DIR_SEND, &end)]),
        script(&[(DIR_RECV, &request("/v1/chat/completions", CHAT)), (DIR_SEND, &answer(ANSWER))]),
        script(&[(DIR_RECV, &pipelined), (DIR_SEND, &answer(ANSWER)), (DIR_SEND, &answer(b""))]),
        script(&[
            (DIR_RECV, continued),
            (DIR_SEND, b"HTTP/1.1 100 Continue\r\n\r\n"),
            (DIR_RECV, &chunk(b"{}")),
            (DIR_RECV, b"0\r\n\r\n"),
            (DIR_SEND, b"HTTP/1.1 204 No\r\n\r\n"),
        ]),
        script(&[(DIR_RECV, upgrade), (DIR_SEND, b"HTTP/1.1 101 S\r\n\r\n"), (DIR_SEND, b"\x81\x05hello")]),
        script(&[(DIR_RECV, get), (DIR_SEND, b"HTTP/1.0 200 OK\r\n\r\nuntil the end")]),
        script(&[
            (DIR_RECV, head),
            (DIR_SEND, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"),
            (DIR_RECV, head),
            (DIR_SEND, b"HTTP/1.1 304 N\r\nContent-Encoding: gzip\r\n\r\n"),
        ]),
        // Cut, lost, failed, and another connection.
        [
            &b"\x18\x84"[..],
            &chat,
            b"\xfe\xdc\x19\x84",
            &events,
            b"\xfe\xdc\x21\x05",
            &end,
            b"\xfe\xdc\x29\x01a\xfe\xdc\x32\x08a\xfe\xdc\x3a\x09",
            &chat,
            b"\xfe\xdc\x30\x03a",
        ]
        .concat(),
    ]
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, len @ ..] = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    [&len[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn field(name: &str, value: &str) -> Vec<u8> {
    let len = |text: &str| u8::try_from(text.len() & 0x7f).unwrap_or(0);
    [&[0x40, len(name)], name.as_bytes(), &[len(value)], value.as_bytes()].concat()
}

fn message(body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap_or(0).to_be_bytes();
    [&[0][..], &len, body].concat()
}

/// HTTP/2.
pub fn http2() -> Vec<Vec<u8>> {
    let settings = frame(4, 0, 0, &[0, 5, 0, 0, 0x40, 0]);
    let post = |path: &str| [&[0x83, 0x86][..], &field(":path", path)].concat();
    let ok = |content: &str| [&[0x88][..], &field("content-type", content)].concat();
    let opened =
        [PREFACE, &settings, &frame(1, 4, 1, &post("/v1/completions")), &frame(0, 1, 1, CHAT)].concat();
    let streamed = [
        &settings[..],
        &frame(1, 4, 1, &ok("text/event-stream")),
        &frame(0, 0, 1, EVENT),
        &frame(0, 9, 1, b"\x02data: [DONE]\n\n\0\0"),
    ]
    .concat();
    let infer = post("/inference.GRPCInferenceService/ModelInfer");
    let grpc = [PREFACE, &frame(1, 4, 1, &infer), &frame(0, 1, 1, &message(b"\x0a\x01m\x12\x01s"))].concat();
    let (split, rest) = infer.split_at(9);
    let continued =
        [PREFACE, &frame(1, 1, 1, split), &frame(9, 4, 1, rest), &frame(3, 0, 1, &[0, 0, 0, 8])].concat();
    let grpc_answer = [
        &settings[..],
        &frame(1, 4, 1, &ok("application/grpc")),
        &frame(0, 0, 1, &message(b"\x0a\x01m")),
        &frame(1, 5, 1, &field("grpc-status", "0")),
    ]
    .concat();
    // `:path` of the static table's Huffman example, twice by index.
    let huffman =
        [&[0x82, 0x44, 0x8c][..], &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]]
            .concat();
    let indexed = [
        PREFACE,
        &frame(1, 5, 1, &huffman),
        &frame(1, 5, 3, &[0x82, 0xbe, 0x10, 1, b'a', 1, b's', 0x3f, 0xe1, 0x1f]),
    ]
    .concat();
    let away =
        [&frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]), &frame(5, 4, 1, &[0, 0, 0, 2, 0x82])[..]].concat();
    vec![
        script(&[(DIR_RECV, &opened), (DIR_SEND, &streamed)]),
        script(&[(DIR_RECV, &grpc), (DIR_SEND, &grpc_answer)]),
        script(&[(DIR_RECV, &continued), (DIR_SEND, &grpc_answer), (DIR_SEND, &away)]),
        script(&[(DIR_RECV, &indexed), (DIR_SEND, &streamed), (DIR_SEND, &away)]),
        [
            &b"\x00\x00"[..],
            &opened,
            b"\xfe\xdc\x19\x45",
            &streamed,
            b"\xfe\xdc\x20\x05",
            &frame(1, 5, 5, &infer),
            b"\xfe\xdc\x39\x03",
            &streamed,
        ]
        .concat(),
        [&b"\x30\x08a\xfe\xdc\x01\x00"[..], &streamed, b"\xfe\xdc\x00\x00", &frame(1, 5, 9, &infer)].concat(),
    ]
}

/// JSON bodies.
pub fn json() -> Vec<Vec<u8>> {
    let bodies: [&[u8]; 7] = [
        CHAT,
        ANSWER,
        br#"{"error":{"message":"no","code":400}}"#,
        br#"{"model":"m","message":{"role":"a","content":"hi"},"done":true,"done_reason":"stop","eval_count":2,"prompt_eval_count":3}"#,
        br#"[{"generated_text":"a","details":{"finish_reason":"length","generated_tokens":2}}]"#,
        br#"{"text":"a","meta_info":{"finish_reason":{"type":"stop"},"prompt_tokens":1,"completion_tokens":2}}"#,
        br#"{"content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":-2.5e9,"cache_read_input_tokens":null}}"#,
    ];
    (0..body::PATHS.len())
        .flat_map(|api| bodies.iter().map(move |body| with(api, 1 + api % 2, body)))
        .collect()
}

fn with(api: usize, how: usize, body: &[u8]) -> Vec<u8> {
    let octet = |n: usize| u8::try_from(n).unwrap_or(0);
    [&[octet(api), octet(how)], body].concat()
}

/// Streams.
pub fn events() -> Vec<Vec<u8>> {
    let line = br#"{"model":"m","message":{"content":"hi"},"done":false}"#;
    let event = |text: &str| ["event: a\r\ndata: ", text, "\r\n\r\n: c\n"].concat().into_bytes();
    let bodies = [
        [EVENT, EVENT, b"data: [DONE]\n\n"].concat(),
        event(r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}"#),
        event(r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}"#),
        event(r#"{"type":"response.completed","response":{"status":"completed","model":"m"}}"#),
        event(r#"{"index":0,"token":{"text":"a","special":false},"generated_text":null}"#),
        event(r#"{"text":"a b","meta_info":{"completion_tokens":2}}"#),
        [&line[..], b"\n", line, b"\r\n{\"done\":true,\"eval_count\":2}\n"].concat(),
    ];
    (0..body::PATHS.len())
        .flat_map(|api| bodies.iter().map(move |body| with(api, 12 + usize::from(body[0] == b'{'), body)))
        .collect()
}

/// Records: of the recordings that tests replay, and one of each kind.
pub fn record() -> Vec<Vec<u8>> {
    let mut maker = Maker::new(1);
    maker.open(0, 1, 0);
    maker.call(0, DIR_RECV, Captured::whole(&request("/v1/completions", CHAT)));
    maker.call(0, DIR_SEND, Captured::whole(&answer(ANSWER)));
    maker.ack(0);
    maker.state(0, 1, 7);
    let mut seeds = vec![records::join(&maker.records)];
    for records in recorded(2000).chunks(40) {
        let kinds: Vec<&[u8]> = records.iter().filter_map(|record| record.get(2..4)).collect();
        let first = |(at, _): &(usize, &Vec<u8>)| !kinds[..*at].contains(&kinds[*at]);
        let some: Vec<Vec<u8>> = records.iter().enumerate().filter(first).map(|(_, r)| r.clone()).collect();
        seeds.push(records::join(&some));
    }
    seeds
}

/// Beginnings of the recordings that tests replay.
pub fn recording() -> Vec<Vec<u8>> {
    [0, 3, 60, 200]
        .map(|count| {
            let mut file = Vec::new();
            let mut writer = Writer::new(&mut file, u64::MAX).expect("room in memory");
            for record in recorded(count) {
                writer.write(&record).expect("a record that was read");
            }
            file
        })
        .into()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../recordings")
}

/// The first records of a recording.
fn recorded(count: usize) -> Vec<Vec<u8>> {
    let file = std::fs::read(folder().join("demo-split.slrec")).expect("a recording of the tests");
    let mut reader = Reader::new(&file[..]).expect("a whole recording");
    let mut record = Vec::with_capacity(MAX_RECORD);
    let mut records = Vec::new();
    while records.len() < count && reader.read(&mut record).expect("a whole recording") {
        records.push(record.clone());
    }
    records
}

/// A small library, and the beginning of the running kernel's type information.
pub fn image() -> Vec<Vec<u8>> {
    let mut seeds = vec![library(), types()];
    if let Ok(btf) = std::fs::read(VMLINUX) {
        seeds.push(btf[..btf.len().min(16 * 1024)].to_vec());
    }
    seeds
}

/// Files that are read as text.
pub fn text() -> Vec<Vec<u8>> {
    let id = "0123456789abcdef".repeat(4);
    let texts = [
        (0, include_str!("../../../deploy/stagelens.toml").to_owned()),
        (0, "listen = \"127.0.0.1:1\"\n[discovery]\npids = [1, 2]\n".to_owned()),
        (1, "7 (a) (b) x) S 3 5 6 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 987654 4096000 12 0 0".to_owned()),
        (1, "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n".to_owned()),
        (1, "7f0000000000-7f0000001000 r-xp 00000000 08:01 77 /usr/lib/libcuda.so.1 (deleted)\n".to_owned()),
        (2, format!("12:memory:/docker/{id}\n0::/system.slice/docker-{id}.scope\n")),
        (2, "6.18.0-rc1-amd64".to_owned()),
        (3, "  sl  local_address\n   0: 0100007F:24C6 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0\n".to_owned()),
    ];
    texts.iter().map(|(which, text)| [&[*which], text.as_bytes()].concat()).collect()
}

/// A structure `sock` with one field in a structure of its own.
fn types() -> Vec<u8> {
    let strings = b"\0sock\0__sk_common\0sock_common\0skc_family\0";
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let structure = 4 << 24 | 1;
    let types = words(&[1, structure, 8, 6, 2, 0, 18, structure, 8, 30, 0, 16]);
    let lengths = words(&[24, 0, 48, 48, u32::try_from(strings.len()).unwrap_or(0)]);
    [&[0x9f, 0xeb, 1, 0][..], &lengths, &types, strings].concat()
}

/// An ELF library with one function, `cuInit`.
fn library() -> Vec<u8> {
    let mut file = vec![0; 0x400];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    let long = |n: u64| n.to_le_bytes();
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[3, 0, 62, 0, 1]);
    put(32, &long(64));
    put(40, &long(0x200));
    put(52, &[64, 0, 56, 0, 1, 0, 64, 0, 4, 0, 3]);
    // One segment: the whole file, to be run.
    put(64, &[1, 0, 0, 0, 5]);
    put(96, &long(0x400));
    put(104, &long(0x400));
    put(0x100, b"\0cuInit\0.dynsym\0.dynstr\0.shstr\0");
    // Symbol 1: `cuInit`, global function at 0x180.
    put(0x158, &[1, 0, 0, 0, 0x12, 0, 1, 0]);
    put(0x160, &long(0x180));
    put(0x180, &[0xf3, 0x0f, 0x1e, 0xfa, 0x55]);
    let mut section = |index: usize, name: u8, kind: u8, at: u64, len: u64, link: u8, entry: u64| {
        let header = 0x200 + index * 64;
        put(header, &[name, 0, 0, 0, kind]);
        put(header + 16, &long(at));
        put(header + 24, &long(at));
        put(header + 32, &long(len));
        put(header + 40, &[link, 0, 0, 0, 1]);
        put(header + 56, &long(entry));
    };
    section(1, 8, 11, 0x140, 48, 2, 24);
    section(2, 16, 3, 0x100, 32, 0, 0);
    section(3, 24, 3, 0x100, 32, 0, 0);
    file
}
