//! Every program of the object, where it goes, and what is not known without it.

use wire::names;

use super::super::{table::Program, targets::Kind};

/// A program on a raw tracepoint.
#[derive(Clone, Copy, Debug)]
pub struct Tracepoint {
    /// Program.
    pub program: Program,
    /// Tracepoint.
    pub name: &'static str,
}

/// Every raw tracepoint that is used, of both tiers.
pub const TRACEPOINTS: &[Tracepoint] = &[
    Tracepoint { program: names::PROG_SOCK_RECV, name: "sock_recv_length" },
    Tracepoint { program: names::PROG_SOCK_SEND, name: "sock_send_length" },
    Tracepoint { program: names::PROG_SOCK_EXIT, name: "sys_exit" },
    Tracepoint { program: names::PROG_SOCK_STATE, name: "inet_sock_set_state" },
    Tracepoint { program: names::PROG_SOCK_DESTROY, name: "tcp_destroy_sock" },
    Tracepoint { program: names::PROG_SEGMENT, name: "tcp_probe" },
    Tracepoint { program: names::PROG_EXEC, name: "sched_process_exec" },
    Tracepoint { program: names::PROG_FORK, name: "sched_process_fork" },
    Tracepoint { program: names::PROG_EXIT, name: "sched_process_exit" },
];

/// Every uprobe program.
pub fn uprobes() -> impl Iterator<Item = Program> {
    [Kind::Cuda, Kind::Tls].into_iter().flat_map(Kind::programs).copied()
}

/// What is not known without a program.
pub fn loses(program: Program) -> &'static str {
    match program {
        names::PROG_SOCK_RECV | names::PROG_SOCK_SEND | names::PROG_SOCK_EXIT => "requests are not seen",
        names::PROG_SOCK_DESTROY => "a socket address that is used again may continue an old connection",
        names::PROG_SOCK_OLDER => {
            "a connection that is older than the agent is known from its first call on, and not counted before"
        }
        names::PROG_SOCK_STATE => "new connections count as mid_stream, and aborts are seen late",
        names::PROG_SEGMENT => {
            "the wait of requests before they are read, and the delivery of answers, are not known"
        }
        names::PROG_EXEC | names::PROG_FORK | names::PROG_EXIT => {
            "new processes are noticed only by the next scan"
        }
        names::PROG_SYNC_RETURN | names::PROG_SYNC_ENTER => "GPU steps are not seen",
        names::PROG_QUERY_RETURN | names::PROG_QUERY_ENTER => "waits by polling are no steps",
        names::PROG_BEGIN_RETURN | names::PROG_BEGIN_ENTER => {
            "captured launches count as work, and new streams as old ones"
        }
        names::PROG_END => "captures and streams seem to go on for ever",
        names::PROG_TALLY => "work that nobody waits for is counted when its process ends, and not before",
        names::PROG_MEMORY_RETURN | names::PROG_MEMORY_ENTER => "device memory calls are not seen",
        names::PROG_RESOLVE_RETURN | names::PROG_RESOLVE_ENTER => {
            "calls by addresses that are not those of exported functions are not seen"
        }
        names::PROG_RARE_RETURN | names::PROG_RARE_ENTER => "loading and compiling of kernels is not seen",
        names::PROG_EVENT_RECORD | names::PROG_WAIT_EVENT => {
            "steps that end in an event wait lack their work"
        }
        names::PROG_COPY => "copies are not counted",
        names::PROG_LAUNCH => "launches are not counted and steps lack their begin",
        names::PROG_CONTEXT_RETURN | names::PROG_CONTEXT_ENTER | names::PROG_CONTEXT_CURRENT => {
            "which device a call is for is inferred from NVML and /proc"
        }
        names::PROG_TLS_RETURN | names::PROG_TLS_ENTER => "requests over TLS are not seen",
        names::PROG_TLS_HANDSHAKE => {
            "of TLS connections that begin at the same time, some cannot be told apart"
        }
        names::PROG_TLS_FREE => "a TLS connection whose memory is used again may continue an old one",
        _ => "something is not known",
    }
}
