//! Bytes that were not captured or are no frames: what is lost with them, and where frames go on.

use super::{
    super::{exchanges::Context, http1::Side, open::Ending},
    Http2, begins_message, begins_preface, find,
    frame::{Gap, Header, Kind, PREFACE},
};
use crate::decode::Stamp;

impl Http2 {
    /// Tries to find lost framing at the beginning of a call.
    pub(super) fn find(&mut self, side: Side, head: &[u8], total: u64, first: bool) {
        let Self { halves: [requests, responses], streams, .. } = self;
        let half = if side == Side::Request { requests } else { responses };
        if !half.frames.is_lost() {
            return;
        }
        let preface = begins_preface(head) && (first || head.len() >= PREFACE.len());
        if side == Side::Request && preface {
            half.frames.begin();
        } else if begins_message(side, head, half.frames.max)
            || find::chain(head, total, half.frames.max, |id| streams.contains(id))
        {
            half.frames.found();
        }
    }

    /// Goes on behind a part of a call that was not captured.
    pub(super) fn find_in_tail(&mut self, side: Side, tail: &mut [u8], at: Stamp, cx: &mut Context<'_>) {
        let Self { halves: [requests, responses], streams, .. } = self;
        let half = if side == Side::Request { requests } else { responses };
        if !half.frames.is_lost() {
            return self.feed(side, tail, true, at, cx);
        }
        let begin = find::tail_chain(tail, half.frames.max, |id| streams.contains(id));
        let (lost, frames) = tail.split_at_mut(begin.unwrap_or(tail.len()));
        self.feed(side, lost, true, at, cx);
        if begin.is_some() {
            self.half(side).frames.found();
            self.feed(side, frames, true, at, cx);
        }
    }

    /// The first headers after a loss: a client numbers its requests one after the other, so when none is left out, none
    /// was lost.
    pub(super) fn check_numbers(&mut self, side: Side, frame: Header) {
        let next = frame.kind == Kind::Headers && self.streams.is_next(frame.stream);
        let half = self.half(side);
        if half.suspect && matches!(frame.kind, Kind::Headers | Kind::Continuation) {
            half.suspect = false;
            if !next {
                half.lose_headers();
            }
        }
    }

    pub(super) fn garbage(&mut self, side: Side, at: Stamp, cx: &mut Context<'_>) {
        cx.health.ignore("bad_frame");
        self.lost(side, None);
        if !self.proven {
            self.finish(Ending::OutOfSight, "not_http2", at, cx);
        }
    }

    fn lost(&mut self, side: Side, inside: Option<u32>) {
        let answers_lost = self.streams.may_lose_headers();
        let half = self.half(side);
        match side {
            _ if half.block.is_some() => half.lose_headers(),
            Side::Request => half.suspect = true,
            Side::Response if answers_lost => half.lose_headers(),
            Side::Response => {}
        }
        half.inside = inside;
        self.streams.lost(side, inside);
    }

    /// Bytes that were not captured: of this call, or (`unseen`) of calls whose records were lost, so that it is
    /// not known when they went.
    pub(super) fn gap(&mut self, side: Side, len: u64, unseen: bool, at: Stamp, cx: &mut Context<'_>) {
        let half = self.half(side);
        let went = (!unseen).then_some(at);
        match half.frames.gap(len) {
            Gap::InFrame(frame) => {
                half.counted = half.counted.saturating_add(u32::try_from(len).unwrap_or(u32::MAX));
                match frame.kind {
                    Kind::Data => self.streams.gap(side, frame.stream, len, went),
                    Kind::Headers | Kind::Continuation | Kind::Promise => half.headers.lose(),
                    _ => {}
                }
            }
            Gap::PastEnd(frame) => {
                let data = frame.kind == Kind::Data;
                if data {
                    self.streams.gap(side, frame.stream, len, went);
                }
                self.lost(side, data.then_some(frame.stream));
            }
            Gap::Lost => self.lost(side, None),
        }
        // The frame may have ended exactly here.
        if let Some(piece) = self.half(side).frames.next(&mut &mut [][..]) {
            self.piece(side, piece, unseen, at, cx);
        }
    }
}
