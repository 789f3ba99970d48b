//! The values that tracking hands on: one HTTP exchange, and the news about it while it runs.

use wire::{cuda, socket::SockId};

use crate::request::record::{Arrival, Flag, Outcome};

/// An exchange, numbered in the order in which their first bytes were seen. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExchangeId(pub u64);

/// A service, numbered in the order in which they were first seen. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u32);

/// A content-bearing event of an answer (a token or several).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentEvent {
    /// When the write that completed it ended in the kernel.
    pub time_ns: u64,
    /// Thread that wrote it.
    pub tid: u32,
}

/// The watched process at the other end of a connection, which sent the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Process of its last call on the connection.
    pub pid: u32,
    /// Thread that last wrote to it; 0 when not known.
    pub tid: u32,
}

/// What an exchange shows of itself that tells whether another one belongs to it. `None` means not known (yet).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Request method.
    pub method: Option<String>,
    /// Path without the query string.
    pub path: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// The answer is a stream.
    pub streaming: Option<bool>,
    /// Largest number of completion tokens the client asked for.
    pub max_tokens: Option<u64>,
    /// Bytes of the request behind its head, framing included.
    pub body_bytes: Option<u64>,
    /// Value of `x-request-id`.
    pub request_id: Option<String>,
    /// Trace id of a valid `traceparent`.
    pub trace_id: Option<String>,
    /// Thread that read the request.
    pub reader_tid: u32,
    /// Where it was accepted.
    pub listener: Option<(ServiceId, u16)>,
    /// A probe or admin path.
    pub probe: bool,
    /// Content-bearing events of the answer, once it is over.
    pub chunks: Option<u64>,
    /// Tokens of the answer that it states.
    pub output_tokens: Option<u64>,
    /// First content-bearing event of the answer, once it is over.
    pub first_token_ns: Option<u64>,
    /// Last byte of the answer, once it is over.
    pub last_byte_out_ns: Option<u64>,
}

/// News, in the order of events.
#[derive(Debug)]
pub enum Tracked {
    /// A process of a service has read the head of a request. Ends with [`Tracked::Finished`] or
    /// [`Tracked::Forgotten`].
    Begun {
        /// Which exchange.
        exchange: ExchangeId,
        /// Process that reads it.
        pid: u32,
        /// Where it was accepted.
        listener: Option<(ServiceId, u16)>,
        /// When.
        time_ns: u64,
    },
    /// What was begun turned out to be no exchange, or nobody's.
    Forgotten {
        /// Which exchange.
        exchange: ExchangeId,
    },
    /// The whole request has been read by the server.
    RequestRead {
        /// Which exchange.
        exchange: ExchangeId,
        /// Service of the process that read it.
        service: ServiceId,
        /// Last byte read.
        time_ns: u64,
        /// Thread that read it.
        tid: u32,
        /// Who sent it, if that is a watched process.
        client: Option<Client>,
        /// What it shows of itself.
        sight: Box<Sight>,
    },
    /// A content-bearing event was written, of an exchange whose request was seen.
    Content {
        /// Which exchange.
        exchange: ExchangeId,
        /// When and by whom.
        event: ContentEvent,
    },
    /// The exchange is over. There was no [`Tracked::RequestRead`] for it if its request was not read to the end
    /// (an answer before that, a disconnect, a loss, or the agent came too late).
    Finished(Box<Exchange>),
    /// The answer of a finished exchange that has [`Exchange::awaits_delivery`] is with the client, or it will never
    /// be known (`None`). Comes once for each.
    Delivered {
        /// Which exchange.
        exchange: ExchangeId,
        /// When, and over what network.
        delivery: Option<Delivery>,
    },
    /// A GPU step of a process that belongs to a service.
    Step {
        /// Its service.
        service: ServiceId,
        /// The step.
        step: cuda::Step,
    },
    /// Work of a process of a service that was not counted before.
    Counted {
        /// Its service.
        service: ServiceId,
        /// The work.
        work: cuda::Work,
        /// Launches that went into a capture instead.
        captured: u64,
    },
    /// A memory call of a process that belongs to a service.
    Memory {
        /// Its service.
        service: ServiceId,
        /// The call.
        memory: wire::memory::Call,
    },
    /// A process of the service ended; its steps stop here.
    ProcessExit {
        /// Its service.
        service: ServiceId,
        /// The process.
        pid: u32,
        /// No process of the service is left, as far as is known.
        last: bool,
        /// When.
        time_ns: u64,
    },
    /// Messages or events share the calls of a connection, so that what is left out of a long one may be a whole one; or
    /// its requests name their model where it is left out. Whoever captures should leave out less; a replay can't.
    WantWhole(SockId),
    /// Time passes (from the clock observation).
    Tick {
        /// Now, monotonic.
        time_ns: u64,
    },
    /// The run ends: whatever is provisional becomes final.
    End {
        /// Now, monotonic.
        time_ns: u64,
    },
}

/// The client has acknowledged the last byte of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When.
    pub acked_ns: u64,
    /// Smoothed round-trip time then, microseconds.
    pub srtt_us: Option<u32>,
    /// Segments sent again since the answer before on this connection.
    pub retransmits: Option<u32>,
}

/// One finished exchange: everything that the wire told of it. `None` means not known.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state in disguise")]
pub struct Exchange {
    /// Its number.
    pub id: Option<ExchangeId>,
    /// Service of the process.
    pub service: Option<ServiceId>,
    /// Connection.
    pub connection: Option<SockId>,
    /// Process that read the request (or wrote the answer, if the request was not seen).
    pub pid: u32,
    /// Thread that read the last byte of the request.
    pub reader_tid: u32,
    /// Port it was accepted on.
    pub local_port: Option<u16>,
    /// Peer's address and port, as text.
    pub peer: Option<String>,
    /// Who sent the request, if that is a watched process.
    pub client: Option<Client>,
    /// "HTTP/1.1", …
    pub protocol: String,
    /// Request method.
    pub method: Option<String>,
    /// Path without the query string.
    pub path: Option<String>,
    /// API it speaks ("openai.chat", "ollama.generate", …, "http" for any other), from path and body.
    pub api: Option<String>,
    /// A probe or admin path: kept apart from requests.
    pub probe: bool,
    /// Model, from the answer, else from the request's body, else from its path.
    pub model: Option<String>,
    /// Version of the model, likewise, or from the path.
    pub model_version: Option<String>,
    /// The answer is a stream (content type, else the request's flag).
    pub streaming: Option<bool>,
    /// Status of the final response head.
    pub status: Option<u16>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Why the answer ended, in the API's own word (`finish_reason`, `stop_reason`, `done_reason`, …).
    pub finish_reason: Option<String>,
    /// Connection established (only for the first exchange on it).
    pub accept_ns: Option<u64>,
    /// First request byte arrived; read, where [`Self::arrival`] says so.
    pub first_byte_in_ns: Option<u64>,
    /// Last request byte arrived; likewise.
    pub last_byte_in_ns: Option<u64>,
    /// How the two are known.
    pub arrival: Option<Arrival>,
    /// Last request byte read.
    pub read_done_ns: Option<u64>,
    /// First byte of the final response head written.
    pub first_byte_out_ns: Option<u64>,
    /// First content-bearing event of a streaming answer; `None` for other answers, which have no TTFT.
    pub first_token_ns: Option<u64>,
    /// Last response byte written.
    pub last_byte_out_ns: Option<u64>,
    /// Delivery of the answer, where it was known when the exchange finished.
    pub delivery: Option<Delivery>,
    /// A [`Tracked::Delivered`] will come.
    pub awaits_delivery: bool,
    /// Connection closed or aborted while the exchange was open.
    pub close_ns: Option<u64>,
    /// Request bytes, head included.
    pub bytes_in: u64,
    /// Bytes of the request's head, where it was seen.
    pub head_bytes_in: Option<u64>,
    /// Response bytes, head included.
    pub bytes_out: u64,
    /// Content-bearing events, at most [`MAX_CONTENT`]; `content_total` has their number.
    pub content: Vec<ContentEvent>,
    /// Number of content-bearing events.
    pub content_total: u64,
    /// Content-bearing events may be missing among those that were seen: their number and the gaps between them are
    /// not known.
    pub content_missed: bool,
    /// They may be missing behind the last one that was seen: when the content ended is not known either.
    pub end_missed: bool,
    /// Several choices interleave: gaps between events are not token gaps.
    pub interleaved: bool,
    /// Prompt tokens that the answer states, those from a cache included.
    pub input_tokens: Option<u64>,
    /// Tokens of the answer that it states.
    pub output_tokens: Option<u64>,
    /// Where it states them (`usage`, `meta_info`, `timings`, `ollama`, `details`).
    pub tokens_source: Option<&'static str>,
    /// Largest number of completion tokens the client asked for.
    pub max_tokens: Option<u64>,
    /// The client asked for a `usage` event at the end of the stream.
    pub include_usage: Option<bool>,
    /// How long the client said it would wait, from its first byte.
    pub timeout_ns: Option<u64>,
    /// Time between a write refused or cut short by a full socket and the next successful one, summed.
    pub blocked_ns: u64,
    /// Value of `x-request-id`.
    pub request_id: Option<String>,
    /// Trace id of a valid `traceparent`.
    pub trace_id: Option<String>,
    /// Warnings.
    pub flags: Vec<Flag>,
}

impl Exchange {
    /// Where it was accepted: by whom, and on which port.
    pub fn listener(&self) -> Option<(ServiceId, u16)> {
        self.service.zip(self.local_port)
    }

    /// What it shows of itself so far; of the answer, what a finished one has.
    pub fn sight(&self) -> Sight {
        Sight {
            method: self.method.clone(),
            path: self.path.clone(),
            model: self.model.clone(),
            streaming: self.streaming,
            max_tokens: self.max_tokens,
            body_bytes: self.head_bytes_in.map(|head| self.bytes_in.saturating_sub(head)),
            request_id: self.request_id.clone(),
            trace_id: self.trace_id.clone(),
            reader_tid: self.reader_tid,
            listener: self.listener(),
            probe: self.probe,
            chunks: (self.content_total > 0 && !self.content_missed).then_some(self.content_total),
            output_tokens: self.output_tokens,
            first_token_ns: self.first_token_ns,
            last_byte_out_ns: self.last_byte_out_ns,
        }
    }
}

/// Content events kept per exchange (16 bytes each); beyond, only their number is.
pub const MAX_CONTENT: usize = 16_384;
