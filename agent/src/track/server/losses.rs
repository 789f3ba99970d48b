//! Bytes that were not captured: what is lost with them, and where messages go on.

use super::{
    super::{
        exchanges::Context,
        http1::{Found, Gap, Side, head},
    },
    Server,
};
use crate::decode::Stamp;

impl Server {
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
                self.exchanges.response_end(at, cx);
            }
            (Gap::Lost, Side::Request) => self.request_lost(len),
            (Gap::Lost, Side::Response) => self.response_lost(len, unseen, at, cx),
        }
        // The message may have ended exactly here.
        self.feed(side, &mut [], false, at, cx);
    }

    fn request_lost(&mut self, len: u64) {
        self.exchanges.request_bytes(len);
        let cut = head::cut(self.requests.head());
        self.requests.lose();
        if self.exchanges.current_request().is_some_and(|open| !open.has_head)
            && let Some(request) = head::request(&cut)
        {
            self.proven = true;
            self.exchanges.request_head(request);
        }
        self.exchanges.requests_lost();
    }

    fn response_lost(&mut self, len: u64, unseen: bool, at: Stamp, cx: &mut Context<'_>) {
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
