//! The kernel side's own counters: one slot of the per-CPU array [`crate::names::COUNTERS`] each.
//!
//! Every event that is lost, skipped or guessed at in the kernel is counted here, never dropped in silence.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// A slot of the counter array.
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Counter {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Counter {
            /// All counters, in slot order.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Its name in metrics and in /status: lower case, words joined by `_`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

counters! {
    /// Records handed to the ring buffer.
    Submitted = "submitted",
    /// Socket records lost because the ring buffer was full.
    DropSocket = "drop_socket_ring_full",
    /// Step records lost because the ring buffer was full; their work stays pending and joins the next step.
    DropStep = "drop_step_ring_full",
    /// Memory records lost because the ring buffer was full.
    DropMemory = "drop_memory_ring_full",
    /// Process records lost because the ring buffer was full.
    DropProcess = "drop_process_ring_full",
    /// Socket payload that could not be read from user memory (size and time are still exact).
    PayloadUnreadable = "payload_unreadable",
    /// Socket calls that carry no readable payload by nature (`io_uring`, sendfile, splice).
    PayloadNone = "payload_none",
    /// Calls that were to be captured whole and are longer than is captured of any; the middle is a gap of known
    /// length.
    CallCut = "call_cut",
    /// Vectored calls that were to be captured whole while the room to gather them was in use; all but the beginning and
    /// the end is a gap of known length.
    GatherBusy = "gather_busy",
    /// Calls of watched processes in the 32-bit convention while tier B is in use: what they moved is not seen.
    CallForeign = "call_foreign",
    /// Vectored calls with more segments, or batches with more messages, than are walked; the rest is a gap.
    IovecTruncated = "iovec_truncated",
    /// A map was full and an entry could not be made; the event behind it is incomplete or lost.
    MapFull = "map_full",
    /// A return without its entry (attached in the middle of the call, or the entry was evicted).
    ReturnUnmatched = "return_unmatched",
    /// A CUDA argument that could not be read from user memory.
    ArgumentUnreadable = "argument_unreadable",
    /// A stream that did not fit its process's list: context-wide waits do not cover it.
    StreamListFull = "stream_list_full",
    /// A stream that waits on more other streams than are tracked; a step may miss that work until later.
    DependencyFull = "dependency_full",
    /// Probe hits of processes that are not watched.
    Unwatched = "unwatched",
    /// An attach cookie that does not decode (a bug: the agent and the object disagree).
    BadCookie = "bad_cookie",
    /// Waits for a CUDA event whose record was not seen (older than the agent, or evicted): its work stays pending
    /// and joins the next step of its stream.
    EventUnknown = "event_unknown",
    /// Segments that arrived while so many others were unread that the arrival of the one before is not kept.
    ArrivalMerged = "arrival_merged",
    /// Reads of which it is not known when their bytes arrived, on connections where it should be.
    ArrivalUnknown = "arrival_unknown",
    /// Plaintext records of TLS lost because the ring buffer was full.
    DropTls = "drop_tls_ring_full",
    /// Calls of a TLS library whose plaintext could not be read from user memory, or whose length is not known.
    PlaintextUnreadable = "plaintext_unreadable",
    /// Tally records put off because the ring buffer was full; their work comes with the next.
    TallyDelayed = "tally_delayed",
    /// Polls that found work done and come too seldom to say when it was: no step came of them.
    PollTooSlow = "poll_too_slow",
    /// Batches of more copies than are added up.
    BatchTruncated = "copy_batch_truncated",
    /// Context and device records lost because the ring buffer was full.
    DropContext = "drop_context_ring_full",
    /// Contexts pushed on so many others that the lowest are forgotten: what is current after as many pops is unknown.
    ContextStackFull = "context_stack_full",
    /// Bytes on TCP connections that moved without a call that was seen (tier B: `io_uring` and 32-bit calls; either
    /// tier: `splice` out of a socket, reads without a copy): each lot of them is a gap of known length.
    BytesUnseen = "bytes_unseen",
    /// Records of functions looked up by name lost because the ring buffer was full: an address that is not attached
    /// to may stay so.
    DropResolved = "drop_resolved_ring_full",
    /// Records of rare CUDA calls (modules, graphs) lost because the ring buffer was full.
    DropRare = "drop_rare_ring_full",
    /// CUDA calls within another probed one, which counts them.
    Nested = "nested",
    /// Waits for all streams of a process while as many others were going on as are followed: what such a wait proved
    /// joins the next step.
    WideWaits = "wide_waits_many",
    /// Processes watched from their first CUDA call on, before the agent knew of them.
    Admitted = "admitted",
    /// Calls of a TLS library within so many others of it, on one thread, that they are not followed: their plaintext is
    /// not seen, and what they do with sockets links nothing.
    TlsCallTooDeep = "tls_calls_too_deep",
}

const _: () = {
    let mut i = 0;
    while i < Counter::ALL.len() {
        assert!(Counter::ALL[i] as usize == i);
        i += 1;
    }
};
