//! Maps and load-time constants. Names that the agent uses are in [`wire::names`]; the rest is private.
//!
//! Plain hashes where losing an entry would falsify a count (streams, calls); LRU where entries go stale without a
//! sign (events are destroyed unseen) or where the agent can live with a restart of the entry (sockets).

use core::ptr;

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf};
use wire::counter::Counter;
use wire::names::{PORT_WORDS, Ranges};
use wire::socket::Offsets;

use crate::atomic::Word;
use crate::cuda::begin::BeginCall;
use crate::cuda::call::{MemoryCall, SyncCall};
use crate::cuda::clock::Clock;
use crate::cuda::context::{ContextCall, Contexts, Said};
use crate::cuda::list::StreamList;
use crate::cuda::nest::LastEntry;
use crate::cuda::query::QueryCall;
use crate::cuda::rare::RareCall;
use crate::cuda::resolve::{Place, ResolveCall};
use crate::cuda::stream::{EventKey, Stream, StreamKey};
use crate::socket::gather::{ROOMS, Room};
use crate::socket::identity::Socket;
use crate::tls::call::Calls;
use crate::tls::identity::{Ssl, SslKey};

/// Default size; the agent sets its own at load.
const RING_BYTES: u32 = 16 << 20;

#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

#[map]
pub(crate) static COUNTERS: PerCpuArray<Word> = PerCpuArray::with_max_entries(Counter::ALL.len() as u32, 0);

#[map]
pub(crate) static SCOPE: HashMap<u32, u32> = HashMap::with_max_entries(8192, 0);

#[map]
pub(crate) static LISTEN: HashMap<u64, u32> = HashMap::with_max_entries(8192, 0);

/// Ports of [`LISTEN`], as the agent has it.
#[map]
pub(crate) static LISTEN_PORTS: Array<u64> = Array::with_max_entries(PORT_WORDS, 0);

/// Ports of [`LISTEN`] that were added here. A map of its own, because the agent writes whole words.
#[map]
pub(crate) static OWN_PORTS: Array<Word> = Array::with_max_entries(PORT_WORDS, 0);

/// `struct sock` address -> what is known of the socket.
#[map]
pub(crate) static SOCKS: LruHashMap<u64, Socket> = LruHashMap::with_max_entries(65536, 0);

/// Birth of sockets whose long calls the agent wants whole.
#[map]
pub(crate) static WHOLE_CALLS: LruHashMap<u64, u64> = LruHashMap::with_max_entries(4096, 0);

/// Where vectored calls are gathered, see [`crate::socket::gather`].
#[map]
pub(crate) static GATHER: Array<Room> = Array::with_max_entries(ROOMS, 0);

#[map]
pub(crate) static STREAMS: HashMap<StreamKey, Stream> = HashMap::with_max_entries(4096, 0);

/// tgid -> its streams, for waits that cover all of them.
#[map]
pub(crate) static STREAM_LISTS: HashMap<u32, StreamList> = HashMap::with_max_entries(1024, 0);

/// How streams relate to the legacy one, from their creation on: few of those that are made are used.
#[map]
pub(crate) static STREAM_KINDS: LruHashMap<StreamKey, Word> = LruHashMap::with_max_entries(8192, 0);

/// What had been asked of the GPU when an event was recorded.
#[map]
pub(crate) static CUDA_EVENTS: LruHashMap<EventKey, Clock> = LruHashMap::with_max_entries(8192, 0);

/// Thread (`pid_tgid`) -> the wait it is in.
#[map]
pub(crate) static SYNC_CALLS: HashMap<u64, SyncCall> = HashMap::with_max_entries(4096, 0);

/// Thread (`pid_tgid`) -> what it asks whether it is done.
#[map]
pub(crate) static QUERY_CALLS: LruHashMap<u64, QueryCall> = LruHashMap::with_max_entries(4096, 0);

/// Thread (`pid_tgid`) -> the stream or capture it begins.
#[map]
pub(crate) static BEGIN_CALLS: HashMap<u64, BeginCall> = HashMap::with_max_entries(4096, 0);

/// Thread (`pid_tgid`) -> the memory call it is in.
#[map]
pub(crate) static MEMORY_CALLS: HashMap<u64, MemoryCall> = HashMap::with_max_entries(4096, 0);

/// tgid -> what was seen of its memory calls. One that is evicted counts as seen in part.
#[map]
pub(crate) static MEMORY_HISTORY: LruHashMap<u32, Word> = LruHashMap::with_max_entries(4096, 0);
/// Thread (`pid_tgid`) -> its current context, and those below it.
#[map]
pub(crate) static CONTEXTS: HashMap<u64, Contexts> = HashMap::with_max_entries(8192, 0);

/// Thread (`pid_tgid`) -> the context or device call it is in.
#[map]
pub(crate) static CONTEXT_CALLS: HashMap<u64, ContextCall> = HashMap::with_max_entries(1024, 0);

/// What a process was last told of a device, see [`crate::cuda::context`].
#[map]
pub(crate) static CONTEXTS_SAID: LruHashMap<u64, Said> = LruHashMap::with_max_entries(4096, 0);

/// tgid -> when a watched process, or an image of one, ended that had it, ns.
#[map]
pub(crate) static IMAGES: LruHashMap<u32, u64> = LruHashMap::with_max_entries(4096, 0);

/// Thread (`pid_tgid`) -> the rare call it is in.
#[map]
pub(crate) static RARE_CALLS: HashMap<u64, RareCall> = HashMap::with_max_entries(4096, 0);

/// Thread (`pid_tgid`) -> the search for a function it is in.
#[map]
pub(crate) static RESOLVE_CALLS: HashMap<u64, ResolveCall> = HashMap::with_max_entries(4096, 0);

/// Addresses of functions that processes were given, as far as they were reported.
#[map]
pub(crate) static RESOLVED: LruHashMap<Place, u32> = LruHashMap::with_max_entries(16384, 0);

#[map]
pub(crate) static FALLBACK: HashMap<u32, u32> = HashMap::with_max_entries(1024, 0);

#[map]
pub(crate) static NESTING: HashMap<u32, Ranges> = HashMap::with_max_entries(1024, 0);

#[map]
pub(crate) static NESTING_COUNT: Array<Word> = Array::with_max_entries(1, 0);

/// Thread (`pid_tgid`) -> the probed function that it entered last. Only of processes in [`NESTING`].
#[map]
pub(crate) static LAST_ENTRIES: LruHashMap<u64, LastEntry> = LruHashMap::with_max_entries(8192, 0);

/// Thread (`pid_tgid`) -> calls within calls whose return is to be passed over. Likewise.
#[map]
pub(crate) static DEPTHS: HashMap<u64, Word> = HashMap::with_max_entries(8192, 0);

/// Unwatched processes that were reported as CUDA users.
#[map]
pub(crate) static CUDA_SEEN: LruHashMap<u32, u32> = LruHashMap::with_max_entries(1024, 0);

/// Thread (`pid_tgid`) -> the calls of a TLS library that it is in.
#[map]
pub(crate) static TLS_CALLS: HashMap<u64, Calls> = HashMap::with_max_entries(4096, 0);

/// What is known of a TLS connection.
#[map]
pub(crate) static SSLS: LruHashMap<SslKey, Ssl> = LruHashMap::with_max_entries(32768, 0);

/// tgid of the agent; set at load.
#[unsafe(no_mangle)]
static OWN_TGID: u32 = 0;

/// Whether every process that calls CUDA is watched; set at load.
#[unsafe(no_mangle)]
static WATCH_ALL: u32 = 0;

/// Where kernel structures have their fields; set at load.
#[unsafe(no_mangle)]
static OFFSETS: Offsets = Offsets {
    family: 0,
    state: 0,
    local_port: 0,
    peer_port: 0,
    local_v4: 0,
    peer_v4: 0,
    local_v6: 0,
    peer_v6: 0,
    net: 0,
    netns_inum: 0,
    task_tgid: 0,
    task_pid: 0,
    protocol: 0,
    rcv_nxt: 0,
    copied_seq: 0,
    snd_una: 0,
    snd_nxt: 0,
    write_seq: 0,
    srtt_us: 0,
    total_retrans: 0,
    segment_seq: 0,
    segment_end_seq: 0,
    segment_ack_seq: 0,
    unix_peer: 0,
    unix_address: 0,
    sock_socket: 0,
    socket_inode: 0,
    sock_shutdown: 0,
    task_files: 0,
    files_table: 0,
    table_entries: 0,
    table_files: 0,
    file_inode: 0,
    file_private: 0,
    inode_mode: 0,
    socket_sock: 0,
    task_signal: 0,
    signal_live: 0,
    task_status: 0,
};

pub(crate) fn own_tgid() -> u32 {
    // SAFETY: a static. Volatile, because the value is patched in after compilation.
    unsafe { ptr::read_volatile(&raw const OWN_TGID) }
}

pub(crate) fn watches_all() -> bool {
    // SAFETY: as above.
    unsafe { ptr::read_volatile(&raw const WATCH_ALL) != 0 }
}

/// One of the [`Offsets`]; 0 when it was not resolved.
macro_rules! offset {
    ($field:ident) => {
        $crate::maps::read_offset(core::mem::offset_of!(wire::socket::Offsets, $field))
    };
}
pub(crate) use offset;

/// Use [`offset!`].
#[inline(always)]
pub(crate) fn read_offset(at: usize) -> usize {
    // SAFETY: a field of a static. Volatile, because the value is patched in after compilation.
    unsafe { ptr::read_volatile((&raw const OFFSETS).cast::<u32>().add(at / size_of::<u32>())) as usize }
}
