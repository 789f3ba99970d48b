//! HTTP/2 as a client writes it by hand: frames, and headers that need no table.

/// The client's first bytes: the preface, and settings that let the server send whatever it likes.
pub fn begin() -> Vec<u8> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const WINDOW: u32 = 1 << 30;
    let [a, b, c, d] = WINDOW.to_be_bytes();
    let settings = frame(4, 0, 0, &[0, 4, a, b, c, d]);
    [PREFACE, &settings, &frame(8, 0, 0, &WINDOW.to_be_bytes())].concat()
}

/// A frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    // Fits: nobody writes longer ones here.
    let len = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field that is in no table, in plain text.
fn field(name: &str, value: &str) -> Vec<u8> {
    let len = |text: &str| u8::try_from(text.len()).unwrap_or_default();
    [&[0, len(name)][..], name.as_bytes(), &[len(value)], value.as_bytes()].concat()
}

/// A request of the common chat API on one stream, whole.
pub fn chat(stream: u32, id: &str, body: &str) -> Vec<u8> {
    post(stream, "/v1/chat/completions", id, body)
}

/// A POST on one stream, whole.
pub fn post(stream: u32, path: &str, id: &str, body: &str) -> Vec<u8> {
    let fields = [
        // `:method POST` and `:scheme http` have numbers.
        vec![0x83, 0x86],
        field(":path", path),
        field(":authority", "peer"),
        field("content-type", "application/json"),
        field("x-request-id", id),
    ];
    [frame(1, 4, stream, &fields.concat()), frame(0, 1, stream, body.as_bytes())].concat()
}

/// Where the last frame of a stream ends in what a server sent, once it is there.
pub fn end_of(stream: u32, bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(&[a, b, c, kind, flags, s0, s1, s2, s3]) =
        bytes.get(at..).and_then(|rest| rest.first_chunk())
    {
        at += 9 + u32::from_be_bytes([0, a, b, c]) as usize;
        let is_its = u32::from_be_bytes([s0, s1, s2, s3]) == stream && kind <= 1;
        if is_its && flags & 1 != 0 {
            return (bytes.len() >= at).then_some(at);
        }
    }
    None
}
