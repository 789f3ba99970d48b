//! What the core keeps of connections and streams, in bytes of heap each.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

use agent::pipeline::{Output, Pipeline, Settings};
use wire::socket::{DIR_RECV, DIR_SEND, SockId};

#[path = "hand/request.rs"]
#[expect(dead_code, reason = "shared with tests that replay a whole request")]
mod hand;

use hand::{HEAD, READ_NS, Wire};

/// Bytes on the heap, as they were asked for.
static HEAP: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: everything is done by `System`; counting touches no memory of others.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HEAP.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's own promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HEAP.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's own promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A pipeline, and what went over each connection.
struct Node {
    pipeline: Pipeline,
    out: Vec<Output>,
    wires: Vec<Wire>,
    requests: usize,
}

impl Node {
    fn new(wires: Vec<Wire>) -> Self {
        let connections = wires.len();
        let mut node = Self { pipeline: Pipeline::new(Settings {}), out: Vec::new(), wires, requests: 0 };
        for record in hand::beginning() {
            node.take(record);
        }
        for n in 0..connections {
            node.take(hand::open(id(n), READ_NS));
        }
        node
    }

    fn take(&mut self, mut record: Vec<u8>) {
        self.pipeline.process(&mut record, &mut self.out);
        self.requests += self.out.drain(..).filter(|out| matches!(out, Output::Request(_))).count();
    }

    /// The same bytes on each of some connections.
    fn all(&mut self, range: Range<usize>, dir: u8, bytes: &str) {
        for n in range {
            let record = self.wires[n].data(dir, READ_NS, bytes);
            self.take(record);
        }
    }

    fn begin(&mut self, range: Range<usize>) {
        self.all(range.clone(), DIR_RECV, &hand::request());
        self.all(range, DIR_SEND, HEAD);
    }
}

fn id(connection: usize) -> SockId {
    SockId { sock: 64 * connection as u64, birth_ns: READ_NS }
}

fn heap() -> usize {
    HEAP.load(Ordering::Relaxed)
}

/// Bytes of heap that `work` added, for each of `count`.
fn grown_by(count: usize, work: impl FnOnce()) -> usize {
    let before = heap();
    work();
    heap().saturating_sub(before) / count
}

/// One test, since the heap is everybody's. Measured: 1,483 bytes, 2,405 and 16.
#[test]
fn connections_and_streams_take_what_is_said_of_them() {
    const CONNECTIONS: usize = 10_000;
    const STREAMS: usize = 2_000;
    const EVENTS: usize = 64;
    let wires = (0..CONNECTIONS).map(|n| Wire::new(id(n))).collect();
    let before = heap();
    let mut node = Node::new(wires);
    let answer = HEAD.to_owned() + &hand::token("a") + &hand::end();
    for n in 0..CONNECTIONS {
        node.all(n..n + 1, DIR_RECV, &hand::request());
        node.all(n..n + 1, DIR_SEND, &answer);
    }
    assert_eq!(node.requests, CONNECTIONS);
    let connection = heap().saturating_sub(before) / CONNECTIONS;
    let stream = grown_by(STREAMS, || node.begin(0..STREAMS));
    let event = grown_by(STREAMS * EVENTS, || {
        for _ in 0..EVENTS {
            node.all(0..STREAMS, DIR_SEND, &hand::token("a"));
        }
    });
    assert!(
        connection <= 1792 && stream <= 2816 && event <= 16,
        "a connection takes {connection} bytes, a stream {stream} more, an event {event}"
    );
    // What a stream took is given back, but for some room in tables.
    let before = heap();
    node.all(0..STREAMS, DIR_SEND, &hand::end());
    assert_eq!(node.requests, CONNECTIONS + STREAMS);
    let given_back = before.saturating_sub(heap()) / STREAMS;
    assert!(
        10 * given_back >= 9 * (stream + EVENTS * event),
        "of a stream {given_back} bytes are given back at its end"
    );
}
