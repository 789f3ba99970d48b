//! What the connection tells: acknowledgements, and how it ends.

use super::{Context, Ending, Http2, Stamp, socket};

impl Http2 {
    /// The client has acknowledged what was written.
    pub(in crate::track) fn ack(&mut self, ack: &socket::Ack, cx: &mut Context<'_>) {
        self.streams.deliveries.acked(ack, cx.out);
    }

    /// The connection is out of sight: no acknowledgement will come.
    pub(in crate::track) fn give_up_deliveries(&mut self, cx: &mut Context<'_>) {
        self.streams.deliveries.give_up(cx.out);
    }

    /// The connection went to another state.
    pub(in crate::track) fn state(&mut self, state: &socket::State, local: bool, cx: &mut Context<'_>) {
        let at = Stamp::from(&state.header);
        match (state.old, state.new) {
            (_, socket::tcp::CLOSE_WAIT) => self.streams.client_closed(at.time_ns),
            // As on a connection of HTTP/1: a reset by the client, after which something may still be read ...
            (socket::tcp::ESTABLISHED | socket::tcp::CLOSE_WAIT, socket::tcp::CLOSE) if !local => {
                self.streams.client_closed(at.time_ns);
                self.streams.finish_all(Ending::ClientGone, at, cx);
            }
            // ... the client had closed, also before what was read since ...
            (socket::tcp::CLOSE_WAIT, socket::tcp::CLOSE) => {
                self.streams.client_closed(at.time_ns);
                self.finish(Ending::ServerGone, "after_close", at, cx);
            }
            // ... and nothing more is read.
            (socket::tcp::CLOSE, socket::tcp::CLOSE) => {
                self.finish(Ending::ClientGone, "after_close", at, cx);
            }
            (_, socket::tcp::FIN_WAIT1 | socket::tcp::CLOSE) => {
                self.finish(Ending::ServerGone, "after_close", at, cx);
            }
            _ => {}
        }
    }

    /// Ends what is open; whatever comes after is of no use.
    pub(in crate::track) fn finish(
        &mut self,
        ending: Ending,
        why: &'static str,
        at: Stamp,
        cx: &mut Context<'_>,
    ) {
        self.streams.finish_all(ending, at, cx);
        for half in &mut self.halves {
            half.lose_headers();
            half.frames.lose();
        }
        self.closed.get_or_insert(why);
        self.recount(cx);
    }
}
