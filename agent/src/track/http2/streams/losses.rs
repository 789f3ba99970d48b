//! Bytes of streams that were not captured, or not understood.

use super::{Side, Stamp, Streams};

impl Streams {
    /// So many bytes of a body were not captured; `at` when it is known when they went.
    pub(in crate::track::http2) fn gap(&mut self, side: Side, id: u32, len: u64, at: Option<Stamp>) {
        let Some(stream) = self.table.get_mut(&id) else { return };
        match side {
            Side::Request => {
                if let Some(at) = at {
                    stream.exchanges.read(at, self.arrivals);
                }
                stream.exchanges.request_bytes(len);
                super::takes_last(&mut stream.request_left, len);
                stream.exchanges.request_body().gap(Some(len));
            }
            Side::Response => {
                super::takes_last(&mut stream.answer_left, len);
                stream.exchanges.response_gap(len, at);
            }
        }
    }

    /// Framing was lost: frames of any stream may be missing. `inside`: it was lost in a body of this one.
    pub(in crate::track::http2) fn lost(&mut self, side: Side, inside: Option<u32>) {
        self.lossy = true;
        self.windows_unknown();
        for (id, stream) in &mut self.table {
            match side {
                Side::Request if stream.exchanges.reading() => {
                    stream.request_lost = true;
                    stream.request_left = None;
                    stream.exchanges.requests_lost();
                }
                Side::Request => {}
                Side::Response => {
                    stream.answer_lost = true;
                    stream.answer_left = None;
                    stream.doubtful = inside == Some(*id);
                    stream.exchanges.responses_lost();
                }
            }
        }
    }
}
