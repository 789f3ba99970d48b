//! Flow control of the streams: see [`super::super::windows`].

use super::Streams;

impl Streams {
    /// A frame of data of the answer begins.
    pub(in super::super) fn sent(&mut self, id: u32, len: u32, now_ns: u64) {
        self.shared.sent(len);
        let Some(stream) = self.table.get_mut(&id) else { return };
        let waited_ns = stream.window.sent(len, now_ns);
        stream.exchanges.waited(waited_ns);
        if self.shared.is_shut() {
            self.settle_windows(now_ns);
        } else if self.shared.known {
            stream.window.settle(false, now_ns);
        }
    }

    /// The headers of an answer are out, and its body may follow.
    pub(super) fn begin_window(&mut self, id: u32, now_ns: u64) {
        let is_shut = self.shared.is_shut();
        if self.shared.known
            && let Some(stream) = self.table.get_mut(&id)
        {
            stream.window.begin(is_shut, now_ns);
        }
    }

    /// The client allows so many more bytes of a stream, or of all of them.
    pub(in super::super) fn window_grew(&mut self, id: u32, by: u32, now_ns: u64) {
        let was_shut = self.shared.is_shut();
        if id == 0 {
            self.shared.grow(by);
            if was_shut && !self.shared.is_shut() {
                self.settle_windows(now_ns);
            }
        } else if let Some(stream) = self.table.get_mut(&id) {
            stream.window.grow(by.into());
            if self.shared.known {
                stream.window.settle(was_shut, now_ns);
            }
        }
    }

    /// The client lets each answer begin with so many bytes, those that have begun too.
    pub(in super::super) fn windows_begin_with(&mut self, initial: u32, now_ns: u64) {
        let by = self.shared.set_initial(initial);
        self.table.values_mut().for_each(|stream| stream.window.grow(by));
        self.settle_windows(now_ns);
    }

    fn settle_windows(&mut self, now_ns: u64) {
        if self.shared.known {
            let is_shut = self.shared.is_shut();
            self.table.values_mut().for_each(|stream| stream.window.settle(is_shut, now_ns));
        }
    }

    /// How much may be sent is not known any more: nobody is said to wait for it.
    pub(in super::super) fn windows_unknown(&mut self) {
        self.shared.known = false;
        for stream in self.table.values_mut() {
            stream.window = self.shared.window();
        }
    }
}
