//! Flow control of answers: how much the client lets the server send, and how long that kept it from writing.
//!
//! A server that has used up a window waits until the client makes it larger. Whether it had something to write shows
//! afterwards: then it writes at once.

/// A server writes so soon after the window grew if it had been waiting for that: a busy processor's scheduling slice.
const AT_ONCE_NS: u64 = 20_000_000;
/// What a window holds before anybody says something else.
const DEFAULT: i64 = 65_535;

/// The window that all answers of a connection share, and what each one begins with.
#[derive(Debug)]
pub(super) struct Shared {
    left: i64,
    initial: i64,
    /// Nothing was missed that changed a window.
    pub known: bool,
}

impl Shared {
    /// At the beginning of a connection.
    pub(super) fn new(known: bool) -> Self {
        Self { left: DEFAULT, initial: DEFAULT, known }
    }

    /// It is used up.
    pub(super) fn is_shut(&self) -> bool {
        self.known && self.left <= 0
    }

    /// Of a stream that begins now.
    pub(super) fn window(&self) -> Window {
        Window { left: self.initial, shut_since_ns: None, reopened: None }
    }

    /// The server sent so many bytes.
    pub(super) fn sent(&mut self, len: u32) {
        self.left -= i64::from(len);
    }

    /// The client allows so many more.
    pub(super) fn grow(&mut self, by: u32) {
        self.left = self.left.saturating_add(by.into());
    }

    /// Streams begin with this from now on; by how much those grow that are there.
    pub(super) fn set_initial(&mut self, initial: u32) -> i64 {
        let before = std::mem::replace(&mut self.initial, initial.into());
        self.initial - before
    }
}

/// The window of one stream's answer.
#[derive(Debug)]
pub(super) struct Window {
    left: i64,
    /// Since when nothing may be sent, for want of this window or of the shared one.
    shut_since_ns: Option<u64>,
    /// When that was over, and how long it had lasted.
    reopened: Option<(u64, u64)>,
}

impl Window {
    /// The answer begins. It may find the window shut, but has not waited for it before.
    pub(super) fn begin(&mut self, shared_is_shut: bool, now_ns: u64) {
        (self.shut_since_ns, self.reopened) = (None, None);
        self.settle(shared_is_shut, now_ns);
    }

    /// So many bytes are sent; how long the server had been waiting to send them.
    pub(super) fn sent(&mut self, len: u32, now_ns: u64) -> u64 {
        self.left -= i64::from(len);
        let waited = self.reopened.take().filter(|(at, _)| now_ns.saturating_sub(*at) <= AT_ONCE_NS);
        waited.map_or(0, |(_, lasted_ns)| lasted_ns)
    }

    /// Something grew, by `by` this window.
    pub(super) fn grow(&mut self, by: i64) {
        self.left = self.left.saturating_add(by);
    }

    /// Notes whether something may be sent now.
    pub(super) fn settle(&mut self, shared_is_shut: bool, now_ns: u64) {
        if shared_is_shut || self.left <= 0 {
            self.shut_since_ns.get_or_insert(now_ns);
        } else if let Some(since) = self.shut_since_ns.take() {
            self.reopened = Some((now_ns, now_ns.saturating_sub(since)));
        }
    }
}
