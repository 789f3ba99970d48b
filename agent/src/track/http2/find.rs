//! Where frames begin, when that is not known: by what proves itself.
//!
//! A frame's header has few values that can be right, and each says where the next one is. Looked at is only what
//! masking keeps (headers of frames, the first octet of a header block), so a recording proves the same.

use super::frame::{FOUND_MAX, HEADER, Header, Kind, PREFACE};

/// The bytes of a call of `total` bytes are frames, up to its end or as far as they were captured. One frame that does
/// not end with the call is enough only on a `known` stream.
pub(super) fn chain(bytes: &[u8], total: u64, max: u32, known: impl Fn(u32) -> bool) -> bool {
    let (mut at, mut enough) = (0, false);
    while let Some(header) = convincing(bytes, at, max) {
        enough = at > 0 || known(header.stream);
        at += HEADER + header.len as usize;
        if at as u64 == total {
            return true;
        }
    }
    // Either the captured bytes end here, or this is no frame.
    enough && bytes.len() < at.saturating_add(HEADER)
}

fn convincing(bytes: &[u8], at: usize, max: u32) -> Option<Header> {
    let header = Header::read(bytes.get(at..)?.first_chunk::<HEADER>()?);
    header.is_convincing(max).then_some(header)
}

/// Where at the end of a call frames of `known` streams begin that end exactly with it.
pub(super) fn tail_chain(bytes: &[u8], max: u32, known: impl Fn(u32) -> bool) -> Option<usize> {
    (0..bytes.len()).find(|begin| {
        let (bytes, mut at) = (&bytes[*begin..], 0);
        while let Some(header) = convincing(bytes, at, max).filter(|h| h.stream == 0 || known(h.stream)) {
            at += HEADER + header.len as usize;
        }
        at == bytes.len()
    })
}

/// How the bytes of a call begin HTTP/2, if they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::track) struct Proof {
    /// It is a request; otherwise a response.
    pub request: bool,
    /// So many of the bytes prove it.
    pub len: usize,
}

/// The bytes of a call begin with a client's preface, or with the head of a request or a response.
pub(in crate::track) fn begins(bytes: &[u8]) -> Option<Proof> {
    begins_within(bytes, FOUND_MAX)
}

/// The same, in a frame that is not longer than `max`.
pub(super) fn begins_within(bytes: &[u8], max: u32) -> Option<Proof> {
    if bytes.starts_with(PREFACE) {
        return Some(Proof { request: true, len: PREFACE.len() });
    }
    let header = Header::read(bytes.first_chunk::<HEADER>()?);
    if header.kind != Kind::Headers || !header.is_convincing(max) {
        return None;
    }
    let at = HEADER + usize::from(header.lead());
    // What is no content is masked, so that a recording would not prove the same by it.
    let padding = if header.is_padded() { u32::from(*bytes.get(HEADER)?) } else { 0 };
    if u32::from(header.lead()) + padding >= header.len {
        return None;
    }
    let request = match bytes.get(at)? {
        // `:authority`, `:method`, `:path`, `:scheme`: the whole field, or its name.
        0x81..=0x87 | 0x41..=0x47 | 0x01..=0x07 | 0x11..=0x17 => true,
        // `:status`.
        0x88..=0x8e | 0x48..=0x4e | 0x08..=0x0e => false,
        _ => return None,
    };
    Some(Proof { request, len: at + 1 })
}

#[cfg(test)]
mod tests;
