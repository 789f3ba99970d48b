//! Memory that grows with what peers send: where each part of it ends, and what all connections share.
//!
//! | what | at most | counted as |
//! |---|---|---|
//! | connections ([`super::TrackSettings::max_connections`]) | 16,384, the longest idle go | ignored `connection_table_full` |
//! | **for all connections together** ([`super::TrackSettings::max_held`]): heads, header tables, exchanges, content events | 64 MiB, the largest go | limit `connection_memory` |
//! | a head of HTTP/1 that is not complete | 64 KiB | ignored `bad_request`, `bad_response` |
//! | requests on a connection that are not answered; the same of HTTP/2 | 64; 512 streams | ignored `pipeline_full`; limit `http2_streams` |
//! | a header table of HTTP/2, of a direction | 512 entries, 16 KiB of values | (the oldest value is unknown then) |
//! | a header block of HTTP/2; a value in it | 256 KiB are read, nothing is kept; 1 KiB | ignored `http2_headers_unknown` |
//! | streams that are over | the last 256 of a connection | |
//! | content events of an exchange | 16,384 times, then their number | record: `chunks` and no more times |
//! | a path, a model, a request id of a record | 512, 256, 128 characters | record: an ellipsis, or it is absent |
//! | nesting and kept text of JSON | 64 levels, 256 bytes | |
//! | a gRPC model name | 127 bytes | |
//! | answers of a connection that wait for an acknowledgement | 512 | limit `deliveries` |
//! | of these, answers behind the client's end, which are held until it comes | 64 | (`client_disconnect` at once) |
//! | processes, services, ports of a process, ended processes | 16,384, 4,096, 256, 1,024 | ignored `process_table_full`, `service_table_full`, `port_table_full` |
//!
//! Behind tracking: requests in flight (65,536), steps and memory calls of a process (32,768 and 16,384), services
//! (1,024) and their processes (64), exchanges within exchanges (65,536, with a million content events of those that
//! are over, limit `nested_events`) in [`crate::request`]; answers that wait for their delivery (4,096, with a million
//! content events) in [`crate::pipeline`]; kept requests and series of metrics in `export`, by configuration.

/// The part that all connections share, bytes.
pub(super) const MAX_HELD: usize = 64 << 20;
/// What an exchange that is open holds, its strings, the readers of its bodies and its stream included.
pub(super) const EXCHANGE: usize = 5 * 1024;
/// The same of a content event.
pub(super) const EVENT: usize = size_of::<super::ContentEvent>();

/// What is held for peers, over all connections.
#[derive(Debug)]
pub(super) struct Held {
    bytes: usize,
    max: usize,
}

impl Held {
    /// Nothing yet.
    pub(super) fn new(max: usize) -> Self {
        Self { bytes: 0, max }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// So many more are held.
    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// So many less.
    pub(super) fn sub(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// What was `counted` is now so many.
    pub(super) fn recount(&mut self, counted: &mut usize, now: usize) {
        self.sub(std::mem::replace(counted, now));
        self.add(now);
    }

    /// Something has to go.
    pub(super) fn is_over(&self) -> bool {
        self.bytes > self.max
    }

    /// Enough has gone that the next one does not come at once.
    pub(super) fn has_room(&self) -> bool {
        self.bytes <= self.max - self.max / 16
    }
}
