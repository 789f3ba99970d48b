//! Names of maps, programs and load-time constants, so that neither side spells one by hand.

/// Ring buffer of all records.
pub const EVENTS: &str = "EVENTS";
/// Per-CPU array of `u64`, slots by [`crate::counter::Counter`].
pub const COUNTERS: &str = "COUNTERS";
/// Hash: tgid (`u32`) -> `u32` of `SCOPE_*` bits: which processes are watched. Children inherit in the kernel.
pub const SCOPE: &str = "SCOPE";

/// Watch the process's sockets.
pub const SCOPE_SOCKETS: u32 = 1;
/// Watch the process's CUDA calls.
pub const SCOPE_CUDA: u32 = 2;

/// Set beside the others once the process called an exported function of the driver.
pub const SCOPE_PATH_DRIVER: u32 = 0x100;
/// Likewise, a function of the driver that it was given the address of.
pub const SCOPE_PATH_INNER: u32 = 0x200;
/// Likewise, a function of the runtime.
pub const SCOPE_PATH_RUNTIME: u32 = 0x400;
/// All of these: they are a process's own, and those of its image.
pub const SCOPE_PATHS: u32 = SCOPE_PATH_DRIVER | SCOPE_PATH_INNER | SCOPE_PATH_RUNTIME;

/// Load-time constant (`u32`): 1 where every process that calls CUDA is to be watched. It then is from its first call
/// on; otherwise the agent decides.
pub const WATCH_ALL: &str = "WATCH_ALL";

/// Hash: tgid (`u32`) -> `u32` (ignored): processes whose calls of the CUDA runtime count, because their driver is
/// not attached to.
pub const FALLBACK: &str = "FALLBACK";

/// Hash: tgid (`u32`) -> [`Ranges`]: where the code of drivers is in processes in which one probed function may call
/// another. A call from there is part of the one that made it.
pub const NESTING: &str = "NESTING";
/// Array of one `u64`: entries of [`NESTING`]. What asks first.
pub const NESTING_COUNT: &str = "NESTING_COUNT";
/// Places for code in one process.
pub const RANGES: usize = 8;
/// Begin and end of code, by pairs; zero where unused.
pub type Ranges = [u64; 2 * RANGES];

/// Hash: [`listen_key`] (`u64`) -> `u32` (ignored): listening TCP ports of watched processes. Connections accepted
/// on them are followed from their birth. The kernel side adds ports it sees begin to listen; the agent adds those
/// that were listening before, and removes both.
pub const LISTEN: &str = "LISTEN";

/// Array of [`PORT_WORDS`] `u64`, a bit for each port: ports that are in [`LISTEN`], in whatever namespace, or were once.
/// What asks first whether a segment is of any interest; a bit too many costs a look-up. Written by the agent alone,
/// before it adds to [`LISTEN`]; the kernel side has a map of its own for what it adds.
pub const LISTEN_PORTS: &str = "LISTEN_PORTS";
/// Entries of [`LISTEN_PORTS`].
pub const PORT_WORDS: u32 = 65_536 / 64;

/// Key of [`LISTEN`]: a port (host byte order) in a network namespace (inode number; 0 while
/// [`crate::socket::Offsets`] are not resolved).
pub const fn listen_key(netns: u32, port: u16) -> u64 {
    netns as u64 | (port as u64) << 32
}

/// The port of a [`listen_key`].
pub const fn port_of(key: u64) -> u16 {
    let [.., low, high, _, _] = key.to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// LRU hash: address of a socket (`u64`) -> its birth (`u64`), together a [`crate::socket::SockId`]: sockets of which
/// the agent wants long calls captured whole. The kernel side knows HTTP/2 by its preface and the beginning of
/// pipelining without being told.
pub const WHOLE_CALLS: &str = "WHOLE_CALLS";

/// Load-time constant (`u32`): tgid of the agent, which is never watched.
pub const OWN_TGID: &str = "OWN_TGID";
/// Load-time constant (`u32`): 1 where the kernel has `bpf_loop` (5.17). Without it loops have few turns, and less of long
/// calls is captured.
pub const HAS_LOOP: &str = "HAS_LOOP";
/// Load-time constant ([`crate::socket::Offsets`]): where the fields of kernel structures are.
pub const OFFSETS: &str = "OFFSETS";

/// raw tracepoint `sock_recv_length`.
pub const PROG_SOCK_RECV: &str = "sock_recv";
/// raw tracepoint `sock_send_length`.
pub const PROG_SOCK_SEND: &str = "sock_send";
/// raw tracepoint `sys_exit`: tier B, in place of the two above.
pub const PROG_SOCK_EXIT: &str = "sock_exit";
/// raw tracepoint `inet_sock_set_state`.
pub const PROG_SOCK_STATE: &str = "sock_state";
/// raw tracepoint `tcp_destroy_sock`: frees the entry of a closed connection, and tells that of one that the peer has
/// reset nothing more is read. Without it entries age.
pub const PROG_SOCK_DESTROY: &str = "sock_destroy";
/// Iterator over open files (`task_file`), which the agent runs when it has found a service: TCP connections of watched
/// processes that began before they were watched. Optional.
pub const PROG_SOCK_OLDER: &str = "sock_older";
/// raw tracepoint `tcp_probe`: arrival of requests and acknowledgement of answers. Optional.
pub const PROG_SEGMENT: &str = "sock_segment";
/// raw tracepoint `sched_process_exec`.
pub const PROG_EXEC: &str = "process_exec";
/// raw tracepoint `sched_process_fork`.
pub const PROG_FORK: &str = "process_fork";
/// raw tracepoint `sched_process_exit`.
pub const PROG_EXIT: &str = "process_exit";

/// uprobe: launches and graph launches.
pub const PROG_LAUNCH: &str = "cuda_launch";
/// uprobe: asynchronous copies.
pub const PROG_COPY: &str = "cuda_copy";
/// uprobe: event record.
pub const PROG_EVENT_RECORD: &str = "cuda_event_record";
/// uprobe: stream waits for event.
pub const PROG_WAIT_EVENT: &str = "cuda_wait_event";
/// uprobe: entry of a result marker (stream, event, context synchronize; blocking copies).
pub const PROG_SYNC_ENTER: &str = "cuda_sync_enter";
/// uretprobe: return of a result marker.
pub const PROG_SYNC_RETURN: &str = "cuda_sync_return";
/// uprobe: entry of a call that asks whether work is done.
pub const PROG_QUERY_ENTER: &str = "cuda_query_enter";
/// uretprobe: return of the same.
pub const PROG_QUERY_RETURN: &str = "cuda_query_return";
/// uprobe: entry of a call that makes a stream or begins a capture.
pub const PROG_BEGIN_ENTER: &str = "cuda_begin_enter";
/// uretprobe: return of the same.
pub const PROG_BEGIN_RETURN: &str = "cuda_begin_return";
/// uprobe: end of a capture, a stream or an event.
pub const PROG_END: &str = "cuda_end";
/// raw tracepoint that is attached nowhere: the agent runs it now and then, and it tells work that nobody waits for.
pub const PROG_TALLY: &str = "cuda_tally";
/// uprobe: entry of a memory row.
pub const PROG_MEMORY_ENTER: &str = "cuda_memory_enter";
/// uretprobe: return of a memory row.
pub const PROG_MEMORY_RETURN: &str = "cuda_memory_return";
/// uprobe: changes the current context of a thread.
pub const PROG_CONTEXT_CURRENT: &str = "cuda_context_current";
/// uprobe: entry of a call that says which device a context or a number is.
pub const PROG_CONTEXT_ENTER: &str = "cuda_context_enter";
/// uretprobe: return of the same.
pub const PROG_CONTEXT_RETURN: &str = "cuda_context_return";
/// uprobe: entry of a function that looks others up by name.
pub const PROG_RESOLVE_ENTER: &str = "cuda_resolve_enter";
/// uretprobe: return of the same.
pub const PROG_RESOLVE_RETURN: &str = "cuda_resolve_return";
/// uprobe: entry of a rare row.
pub const PROG_RARE_ENTER: &str = "cuda_rare_enter";
/// uretprobe: return of a rare row.
pub const PROG_RARE_RETURN: &str = "cuda_rare_return";
/// uprobe: entry of a function that reads or writes plaintext of TLS.
pub const PROG_TLS_ENTER: &str = "tls_enter";
/// uretprobe: return of the same.
pub const PROG_TLS_RETURN: &str = "tls_return";
/// uprobe: a step of a handshake of TLS.
pub const PROG_TLS_HANDSHAKE: &str = "tls_handshake";
/// uprobe: end of a TLS connection in its library.
pub const PROG_TLS_FREE: &str = "tls_free";
