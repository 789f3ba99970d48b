//! Bytes that were not captured or are not understood: what is lost with them, and where messages go on.

use super::{Context, Found, Gap, Server, Side, Stamp, Tracked, ends_chunked, head, mask_all, side, socket};

impl Server {
    /// Bytes of which it is not known what they are, unless they end a chunked body.
    pub(super) fn lost_bytes(
        &mut self,
        side: Side,
        bytes: &mut [u8],
        last: bool,
        at: Stamp,
        cx: &mut Context<'_>,
    ) {
        if self.exchanges.is_tunnel() {
            mask_all(bytes);
            return self.exchanges.through_tunnel(side, bytes.len() as u64);
        }
        let in_message = match side {
            Side::Request => self.exchanges.reading(),
            Side::Response => self.exchanges.answering(),
        };
        let end = if last && in_message && self.closed.is_none() { ends_chunked(bytes) } else { 0 };
        // The line end before the last chunk is what tells it.
        let keep = if end > 0 { (end + 2).min(bytes.len()) } else { 0 };
        let (bytes, kept) = bytes.split_at_mut(bytes.len() - keep);
        match side {
            _ if self.closed.is_some() => mask_all(bytes),
            // The body may still tell something: neither JSON nor events need framing to be found again.
            Side::Request if in_message => {
                self.exchanges.request_body().feed(bytes, end > 0);
            }
            Side::Response if in_message => self.exchanges.response_body(bytes, end > 0, at, cx),
            _ => mask_all(bytes),
        }
        self.unknown(side, (bytes.len() + kept.len()) as u64, at, cx);
        if end > 0 {
            self.direction(side).body(None);
            self.end(side, at, cx);
        }
    }

    fn unknown(&mut self, side: Side, len: u64, at: Stamp, cx: &mut Context<'_>) {
        match side {
            _ if self.closed.is_some() => {}
            Side::Request => self.exchanges.request_bytes(len),
            Side::Response => self.exchanges.response_unknown(len, at, cx),
        }
    }

    /// The middle of a call, which was not captured.
    pub(super) fn left_out(&mut self, side: Side, len: u64, at: Stamp, cx: &mut Context<'_>) {
        let was_lost = self.direction(side).is_lost();
        let may_hold_events = side == Side::Response && self.exchanges.in_stream();
        self.gap(side, len, false, at, cx);
        // A boundary was in it, and it is likely that the next such call has one too.
        let is_lost = !was_lost && self.direction(side).is_lost();
        if is_lost || may_hold_events {
            self.want_whole(cx);
        }
    }

    /// Asks, once, for all of long calls on this connection.
    pub(super) fn want_whole(&mut self, cx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.wants_whole, true) {
            cx.out.push(Tracked::WantWhole(self.exchanges.origin().id));
        }
    }

    /// Bytes that were not captured: of this call, or (`unseen`) of calls whose records were lost, so that it is
    /// not known when they went.
    pub(super) fn gap(&mut self, side: Side, len: u64, unseen: bool, at: Stamp, cx: &mut Context<'_>) {
        let gap = self.direction(side).gap(len);
        if unseen && (gap == Gap::PastEnd || self.direction(side).ended()) {
            self.exchanges.end_unseen(side);
        }
        match (gap, side) {
            (Gap::InBody, Side::Request) => {
                self.exchanges.request_bytes(len);
                self.exchanges.request_body().gap(Some(len));
            }
            (Gap::InBody, Side::Response) => self.exchanges.response_gap(len, (!unseen).then_some(at)),
            (Gap::PastEnd, Side::Request) => {
                self.exchanges.requests_lost();
                self.exchanges.request_end(at, cx);
            }
            (Gap::PastEnd, Side::Response) => {
                self.exchanges.responses_lost();
                self.exchanges.response_end(at, &mut self.deliveries, cx);
            }
            (Gap::Lost, Side::Request) => self.request_lost(len, at, cx),
            (Gap::Lost, Side::Response) => self.response_lost(len, unseen, at, cx),
        }
        // The message may have ended exactly here.
        self.feed(side, &mut [], false, at, cx);
    }

    /// Bytes went that no record tells of.
    pub(super) fn went_unseen(&mut self, data: &socket::Data, cx: &mut Context<'_>) {
        let Some(expected) = &mut self.expected[usize::from(data.dir)] else { return };
        let missing = data.offset.saturating_sub(*expected);
        if missing > 0 {
            *expected = data.offset;
            cx.health.ignore("socket_bytes_missing");
            self.gap(side(data), missing, true, Stamp::from(&data.header), cx);
        }
    }

    pub(super) fn request_lost(&mut self, len: u64, at: Stamp, cx: &mut Context<'_>) {
        self.exchanges.request_bytes(len);
        let cut = head::cut(self.requests.head());
        self.requests.lose();
        if self.exchanges.current_request().is_some_and(|open| !open.has_head)
            && let Some(request) = head::request(&cut)
        {
            self.proven = true;
            self.exchanges.request_head(request, at, cx);
        }
        self.exchanges.requests_lost();
    }

    pub(super) fn response_lost(&mut self, len: u64, unseen: bool, at: Stamp, cx: &mut Context<'_>) {
        let cut = head::cut(self.responses.head());
        self.responses.lose();
        let response = if self.exchanges.answering() { None } else { head::response(&cut) };
        if let Some(response) = response.filter(|r| r.status >= 200) {
            let request_lost = self.requests.is_lost();
            self.exchanges.response_head(&response, at, request_lost, cx);
        }
        self.exchanges.responses_lost();
        if unseen {
            self.exchanges.lost_calls(len);
            self.exchanges.response_gap(len, None);
        } else {
            self.unknown(Side::Response, len, at, cx);
        }
    }

    /// Tries to find lost framing at the beginning of a call.
    pub(super) fn find(
        &mut self,
        side: Side,
        head: &[u8],
        len: u64,
        tail: &[u8],
        at: Stamp,
        cx: &mut Context<'_>,
    ) {
        if self.closed.is_some() {
            return;
        }
        match (self.direction(side).find(head, len, tail), side) {
            (None, _) | (Some(Found::Chunk(..)), Side::Request) => {}
            (Some(Found::Message), Side::Request) => self.exchanges.leave_request(),
            (Some(Found::Message), Side::Response) => self.exchanges.skip_answered(cx),
            // An end that belongs to nothing.
            (Some(Found::Chunk(begin, end)), _) if begin == end && self.exchanges.open().is_empty() => {}
            (Some(Found::Chunk(begin, end)), Side::Response) => {
                let request_lost = self.requests.is_lost();
                self.exchanges.response_found(&head[begin..end], at, request_lost, cx);
            }
        }
    }
}
