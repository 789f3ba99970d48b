//! The answering side of [`Exchanges`].

use super::{Context, Exchanges};
use crate::{
    decode::Stamp,
    request::record::Flag,
    track::{
        ContentEvent, Tracked,
        body::Body,
        delivery::Deliveries,
        http1::{Framing, head},
        mask::mask_all,
        memory,
        open::{Ending, Open},
    },
};

/// A client that has the whole answer may close before the write that carried its end has returned: so much later
/// (a busy processor's scheduling slice) the answer still counts as complete.
const CLOSE_RACE_NS: u64 = 20_000_000;

impl Exchanges {
    /// A write ended; `full` when the socket took no more. Keeps account of the time it was full.
    pub(in crate::track) fn wrote(&mut self, time_ns: u64, full: bool) {
        if let Some(since) = self.blocked_since_ns.take()
            && let Some(front) = self.open.front_mut()
        {
            front.exchange.blocked_ns += time_ns.saturating_sub(since);
        }
        self.blocked_since_ns = full.then_some(time_ns);
    }

    /// A write was refused by a full socket.
    pub(in crate::track) fn refused(&mut self, time_ns: u64) {
        self.blocked_since_ns.get_or_insert(time_ns);
    }

    /// The first exchange's answer was kept from being written for so long.
    pub(in crate::track) fn waited(&mut self, blocked_ns: u64) {
        if let Some(front) = self.open.front_mut() {
            front.exchange.blocked_ns += blocked_ns;
        }
    }

    /// A response head begins.
    pub(in crate::track) fn response_begin(&mut self, at: Stamp) {
        self.head_begun_ns = Some(at.time_ns);
    }

    /// So many bytes of the response were written.
    pub(in crate::track) fn response_bytes(&mut self, len: u64, at: Stamp) {
        if len == 0 {
            return;
        }
        if !self.answering {
            self.head_bytes = self.head_bytes.saturating_add(len);
        } else if let Some(front) = self.open.front_mut() {
            front.exchange.bytes_out = front.exchange.bytes_out.saturating_add(len);
            front.exchange.last_byte_out_ns = Some(at.time_ns);
        }
    }

    /// An interim response is over.
    pub(in crate::track) fn interim(&mut self) {
        self.head_begun_ns = None;
    }

    /// The final response's head is complete; how its body is framed.
    pub(in crate::track) fn response_head(
        &mut self,
        response: &head::Response,
        at: Stamp,
        request_lost: bool,
        cx: &mut Context<'_>,
    ) -> Framing {
        let framing = response.headers.framing.unwrap_or(Framing::UntilClose);
        let bodyless = matches!(response.status, 101 | 204 | 304);
        if self.open.is_empty() && response.status == 408 && !self.requests_lost {
            // A server's good-bye to an idle connection answers nothing.
            cx.health.ignore("response_without_request");
            self.head_bytes = 0;
            return framing;
        }
        let begun_ns = self.head_begun_ns.take();
        let front = self.answer(at, request_lost, cx);
        let body = front.response_head(response, begun_ns);
        let method = front.exchange.method.as_deref();
        let bodyless =
            bodyless || method == Some("HEAD") || (method == Some("CONNECT") && response.status < 300);
        self.response_body = body;
        if bodyless { Framing::Length(0) } else { framing }
    }

    /// The response whose body goes on, though its head was not seen.
    pub(in crate::track) fn response_found(
        &mut self,
        body: &[u8],
        at: Stamp,
        request_lost: bool,
        cx: &mut Context<'_>,
    ) {
        if self.answering {
            self.response_body.resume(body);
            return;
        }
        let whole = self.origin.whole;
        // Its first bytes alone say what it is: where they are few, a stream is not taken for one.
        cx.health.ignore("response_head_unseen");
        let front = self.answer(at, request_lost, cx);
        let body = Body::guess(body, front.grammar().answer());
        let events = body.is_stream();
        if whole {
            front.flag(Flag::Gap);
        }
        if events {
            front.exchange.streaming = Some(true);
        }
        self.response_body = body;
    }

    /// The first exchange gets its answer; one without a request if there is none.
    fn answer(&mut self, at: Stamp, request_lost: bool, cx: &mut Context<'_>) -> &mut Open {
        if self.open.is_empty() {
            let before_attach = self.first && !self.origin.whole;
            let open = self.begin(at, cx);
            if !before_attach {
                open.flag(Flag::Gap);
            }
        }
        let read_unseen = self.reading && self.open.len() == 1 && request_lost;
        if read_unseen && let Some(last_read) = self.last_read {
            self.request_end(last_read, cx);
        }
        self.answering = true;
        let bytes = std::mem::take(&mut self.head_bytes);
        let front = &mut self.open[0];
        front.exchange.bytes_out = front.exchange.bytes_out.saturating_add(bytes);
        front.exchange.last_byte_out_ns = Some(at.time_ns);
        front
    }

    /// Bytes of the response's body, which are masked; `last` when it is known to end with them.
    pub(in crate::track) fn response_body(
        &mut self,
        bytes: &mut [u8],
        last: bool,
        at: Stamp,
        cx: &mut Context<'_>,
    ) {
        if !self.answering {
            mask_all(bytes);
            return;
        }
        let events = self.response_body.feed(bytes, last);
        let Some(front) = self.open.front_mut() else { return };
        for _ in 0..events {
            let event = ContentEvent { time_ns: at.time_ns, tid: at.tid };
            for event in front.release(event).into_iter().flatten() {
                if front.content(event) {
                    cx.held.add(memory::EVENT);
                }
                if front.announced {
                    cx.out.push(Tracked::Content { exchange: front.id, event });
                }
            }
        }
    }

    /// So many bytes of the response are missing; they were written `at`, if that is known.
    pub(in crate::track) fn response_gap(&mut self, len: u64, at: Option<Stamp>) {
        let events = self.answering && self.response_body.gap(Some(len));
        let Some(front) = self.open.front_mut() else { return };
        if events {
            front.miss_events(at, self.response_body.in_content());
        }
        front.exchange.bytes_out = front.exchange.bytes_out.saturating_add(len);
        if let Some(at) = at {
            front.exchange.last_byte_out_ns = Some(at.time_ns);
        }
    }

    /// Records of whole calls that wrote so many bytes of responses were lost, and framing with them.
    pub(in crate::track) fn lost_calls(&mut self, len: u64) {
        if let Some(front) = self.open.front_mut() {
            front.lost_calls(len);
        }
    }

    /// One of them came late.
    pub(in crate::track) fn late_call(&mut self, len: u64) {
        if let Some(front) = self.open.front_mut() {
            front.late_call(len);
        }
    }

    /// Bytes of responses were lost, and framing with them.
    pub(in crate::track) fn responses_lost(&mut self) {
        self.head_begun_ns = None;
        self.head_bytes = 0;
        if self.answering {
            self.response_body.gap(None);
        }
        if let Some(front) = self.open.front_mut() {
            front.miss_events(None, false);
        }
    }

    /// A stream of events is being answered.
    pub(in crate::track) fn in_stream(&self) -> bool {
        self.answering && self.response_body.is_stream()
    }

    /// A response's bytes of which it is not known what they are.
    pub(in crate::track) fn response_unknown(&mut self, len: u64, at: Stamp, cx: &mut Context<'_>) {
        if self.open.is_empty() && self.first && !self.origin.whole {
            self.response_body = Body::Opaque;
            self.answer(at, false, cx);
        }
        if let Some(front) = self.open.front_mut() {
            front.exchange.bytes_out = front.exchange.bytes_out.saturating_add(len);
            front.exchange.last_byte_out_ns = Some(at.time_ns);
        }
    }

    /// The response's last headers were written; with a gRPC call's status, if it is `known` what they say.
    pub(in crate::track) fn trailers(&mut self, grpc_status: Option<u32>, known: bool) {
        if let Some(front) = self.open.front_mut()
            && (grpc_status.is_some() || !known)
        {
            front.grpc_status(grpc_status);
        }
    }

    /// The response's last byte was written.
    pub(in crate::track) fn response_end(
        &mut self,
        at: Stamp,
        deliveries: &mut Deliveries,
        cx: &mut Context<'_>,
    ) {
        if !self.answering {
            return;
        }
        let in_time = |closed: u64| at.time_ns.saturating_sub(closed) <= CLOSE_RACE_NS;
        // A unix socket takes nothing for a peer that is gone.
        let is_there = self.origin.is_unix || deliveries.has_ended();
        if self.peer_closed_ns.is_none_or(in_time) || is_there {
            if let Some(front) = self.open.front_mut() {
                front.exchange.close_ns = None;
            }
            self.finish_first(Ending::Complete, Some(deliveries), cx);
        } else if self.may_hold() {
            self.hold(deliveries, cx);
        } else {
            self.finish_first(Ending::ClientGone, None, cx);
        }
    }

    /// A response begins after a loss. On connections without pipelining it answers the latest request: what is
    /// before that was answered unseen.
    pub(in crate::track) fn skip_answered(&mut self, cx: &mut Context<'_>) {
        if self.answering {
            self.finish_first(Ending::OutOfSight, None, cx);
        }
        while self.open.len() > 1 {
            self.finish_first(Ending::OutOfSight, None, cx);
        }
    }
}
