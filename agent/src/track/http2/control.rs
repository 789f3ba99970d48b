//! Values of control frames.

use super::{
    super::{exchanges::Context, http1::Side, open::Ending},
    Http2,
    frame::{Header, Kind},
};
use crate::decode::Stamp;

/// The setting of a stream's window.
const INITIAL_WINDOW_SIZE: u16 = 4;
/// Bits of a window's growth; the one above has no meaning.
const MAX_WINDOW: u32 = (1 << 31) - 1;
/// The setting that limits the length of frames.
const MAX_FRAME_SIZE: u16 = 5;

impl Http2 {
    pub(super) fn value(
        &mut self,
        side: Side,
        frame: Header,
        value: [u8; 8],
        at: Stamp,
        cx: &mut Context<'_>,
    ) {
        match (frame.kind, side) {
            (Kind::Settings, _) => self.setting(side, value, at),
            (Kind::Reset, Side::Request) => self.streams.finish(frame.stream, Ending::ClientGone, at, cx),
            (Kind::Reset, Side::Response) => self.streams.finish(frame.stream, Ending::ServerGone, at, cx),
            (Kind::Window, Side::Request) => {
                let [by @ .., _, _, _, _] = value;
                self.streams.window_grew(frame.stream, u32::from_be_bytes(by) & MAX_WINDOW, at.time_ns);
            }
            (Kind::GoAway, Side::Response) => {
                let [last @ .., _, _, _, _] = value;
                self.streams.refuse(u32::from_be_bytes(last), Ending::ServerGone, at, cx);
            }
            _ => {}
        }
    }

    /// One setting. What one side allows, the other one may send.
    fn setting(&mut self, side: Side, value: [u8; 8], at: Stamp) {
        let [high, low, value @ .., _, _] = value;
        let value = u32::from_be_bytes(value);
        match (u16::from_be_bytes([high, low]), side) {
            (MAX_FRAME_SIZE, _) => {
                let other = if side == Side::Request { Side::Response } else { Side::Request };
                let frames = &mut self.half(other).frames;
                frames.max = frames.max.max(value);
            }
            (INITIAL_WINDOW_SIZE, Side::Request) => self.streams.windows_begin_with(value, at.time_ns),
            _ => {}
        }
    }
}
