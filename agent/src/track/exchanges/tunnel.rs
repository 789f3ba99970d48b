//! A connection that has left HTTP behind, a WebSocket or a tunnel: how much goes either way, and until when.
//!
//! Its exchange is the handshake: its times stay, so that it ends with the answer to it. Beside them its record says how
//! many bytes went over the connection until it closed, and so comes when that is known.

use super::{Context, Exchanges, Open};
use crate::{
    decode::Stamp,
    track::{Tracked, body::Body, http1::Side, open::Ending},
};

/// Such a connection.
#[derive(Debug)]
pub(super) struct Tunnel {
    open: Open,
}

impl Tunnel {
    /// Its handshake.
    pub(super) fn open(&self) -> &Open {
        &self.open
    }

    /// One of its ends has no more to say.
    pub(super) fn closed(&mut self, time_ns: u64) {
        self.open.exchange.close_ns.get_or_insert(time_ns);
    }
}

impl Exchanges {
    /// The connection is a tunnel, with which the first exchange was answered. False when there is nothing to tell of it.
    pub(in crate::track) fn become_tunnel(&mut self, cx: &mut Context<'_>) -> bool {
        let Some((open, _)) = self.take_first(cx) else { return false };
        cx.held.add(open.held());
        self.tunnel = Some(Box::new(Tunnel { open }));
        true
    }

    /// The connection is one.
    pub(in crate::track) fn is_tunnel(&self) -> bool {
        self.tunnel.is_some()
    }

    /// Its exchange's number.
    pub(in crate::track) fn tunnel_id(&self) -> Option<u64> {
        self.tunnel.as_ref().map(|tunnel| tunnel.open.id.0)
    }

    /// So many bytes went through it.
    pub(in crate::track) fn through_tunnel(&mut self, side: Side, len: u64) {
        let Some(tunnel) = &mut self.tunnel else { return };
        let exchange = &mut tunnel.open.exchange;
        let bytes = match side {
            Side::Request => &mut exchange.bytes_in,
            Side::Response => &mut exchange.bytes_out,
        };
        *bytes = bytes.saturating_add(len);
    }

    /// It is over. Out of sight, it is not known when.
    pub(super) fn end_tunnel(&mut self, ending: Ending, at: Stamp, cx: &mut Context<'_>) {
        let Some(mut open) = self.tunnel.take().map(|tunnel| tunnel.open) else { return };
        cx.held.sub(open.held());
        if ending != Ending::OutOfSight {
            open.exchange.close_ns.get_or_insert(at.time_ns);
        }
        cx.out.push(Tracked::Finished(open.finish(Ending::Complete, &Body::Opaque)));
    }
}
