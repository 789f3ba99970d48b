//! What an HTTP/2 server wrote and when, from the notes of `stamp.c`: the truth about its streams.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use system::truth::Stamp;

use crate::truth::Truth;

const NOTE: usize = 24;
const FRAME: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// The answer on one stream.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Its body.
    pub body: Vec<u8>,
    /// Its headers as they are coded; `grpc-message` is in plain text.
    headers: Vec<u8>,
    /// Length of the body so far, and the write that completed a frame.
    frames: Vec<(usize, Stamp)>,
    /// The write that completed its last frame.
    pub last: Option<Stamp>,
}

/// Answers by the client's port and the stream's number.
pub type Streams = BTreeMap<(u16, u32), Written>;

/// The answers that a server on `port` wrote.
pub fn streams(notes: &Path, port: u16) -> Result<Streams> {
    let bytes = fs::read(notes).with_context(|| format!("cannot read {}", notes.display()))?;
    let mut rest = &bytes[..];
    let (mut streams, mut unfinished) = (BTreeMap::new(), BTreeMap::<u16, Vec<u8>>::new());
    while let Some((note, behind)) = rest.split_first_chunk::<NOTE>() {
        let [at @ .., l0, l1, p0, p1, n0, n1, n2, n3] = *note;
        let (before, after) = at.split_at(8);
        let time = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b));
        let len = u32::from_le_bytes([n0, n1, n2, n3]) as usize;
        if behind.len() < len {
            // Not whole yet.
            break;
        }
        let (written, next) = behind.split_at(len);
        rest = next;
        if u16::from_le_bytes([l0, l1]) == port {
            let peer = u16::from_le_bytes([p0, p1]);
            let pending = unfinished.entry(peer).or_default();
            pending.extend_from_slice(written);
            take_frames(peer, pending, [time(before), time(after)], &mut streams);
        }
    }
    Ok(streams)
}

/// Takes the frames that are complete.
fn take_frames(peer: u16, pending: &mut Vec<u8>, stamp: Stamp, streams: &mut Streams) {
    while let Some(&[a, b, c, kind, _, s0, s1, s2, s3]) = pending.first_chunk::<FRAME>() {
        let len = FRAME + u32::from_be_bytes([0, a, b, c]) as usize;
        if pending.len() < len {
            return;
        }
        let frame: Vec<u8> = pending.drain(..len).collect();
        if matches!(kind, DATA | HEADERS | CONTINUATION) {
            let stream = streams.entry((peer, u32::from_be_bytes([s0, s1, s2, s3]))).or_default();
            let part = if kind == DATA { &mut stream.body } else { &mut stream.headers };
            part.extend_from_slice(&frame[FRAME..]);
            stream.frames.push((stream.body.len(), stamp));
            stream.last = Some(stamp);
        }
    }
}

impl Written {
    /// The write with which the body's byte `at` was out.
    fn written(&self, at: usize) -> Option<Stamp> {
        self.frames.iter().find(|(end, _)| *end > at).map(|(_, stamp)| *stamp)
    }

    /// Writes that completed events: documents that end with an empty line, or gRPC messages; those with content.
    pub fn content(&self) -> Vec<Stamp> {
        let is_content = |event: &[u8]| event.windows(MARK.len()).any(|part| part == MARK);
        let (mut begin, mut stamps) = (0, Vec::new());
        while let Some(len) = self.body.get(begin..).and_then(event_len) {
            if is_content(&self.body[begin..begin + len]) {
                stamps.extend(self.written(begin + len - 1));
            }
            begin += len;
        }
        stamps
    }
}

/// Content carries this word and nothing else does: see `answer.py`.
const MARK: &[u8] = b"lorem";

/// Length of the event that begins here.
fn event_len(body: &[u8]) -> Option<usize> {
    if let [0 | 1, len @ ..] = body {
        let len = 5 + u32::from_be_bytes(*len.first_chunk()?) as usize;
        return (body.len() >= len).then_some(len);
    }
    body.windows(2).position(|end| end == b"\n\n").map(|at| at + 2)
}

/// Adds the times to what a peer said of its requests. An answer, or the message of its status, says whose it is.
pub fn with_times(mut truths: Vec<Truth>, streams: &Streams) -> Vec<Truth> {
    for truth in &mut truths {
        let id = truth.request_id.as_deref().unwrap_or_default().as_bytes();
        let has = |bytes: &[u8]| bytes.windows(id.len().max(1)).any(|part| part == id);
        let is_its = |written: &&Written| has(&written.body) || has(&written.headers);
        let Some(written) = streams.values().find(is_its) else { continue };
        truth.t_last_write_ns = written.last;
        if truth.streaming {
            truth.content_write_ns = written.content();
            truth.t_first_token_write_ns = truth.content_write_ns.first().copied();
        }
    }
    truths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let len = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
        [&len[1..], &[kind, 0], &stream.to_be_bytes(), payload].concat()
    }

    #[test]
    fn frames_of_streams_get_the_times_of_their_writes() {
        let event = |text: &str| format!("data: {text} id-1\n\n").into_bytes();
        let first =
            [frame(HEADERS, 1, b"h"), frame(DATA, 1, &event("role")), frame(DATA, 3, b"id-3")].concat();
        let second = frame(DATA, 1, &event("lorem"));
        let (mut streams, mut pending) = (BTreeMap::new(), first);
        take_frames(9, &mut pending, [1, 2], &mut streams);
        pending.extend(&second[..20]);
        take_frames(9, &mut pending, [3, 4], &mut streams);
        pending.extend(&second[20..]);
        take_frames(9, &mut pending, [5, 6], &mut streams);
        let truth =
            |id: &str, streaming| Truth { request_id: Some(id.into()), streaming, ..Truth::default() };
        let truths =
            with_times(vec![truth("id-1", true), truth("id-3", false), truth("id-5", true)], &streams);
        assert_eq!(
            (truths[0].t_first_token_write_ns, truths[0].t_last_write_ns),
            (Some([5, 6]), Some([5, 6]))
        );
        assert_eq!((truths[1].t_first_token_write_ns, truths[1].t_last_write_ns), (None, Some([1, 2])));
        assert_eq!(truths[2].t_last_write_ns, None);
    }
}
