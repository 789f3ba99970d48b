//! What services read from and write to the network, and how many connections they have.

use rustc_hash::FxHashMap;
use wire::socket;

use super::{
    super::{ServiceId, call::Call, process::Processes},
    AF_UNIX, Connections, Context, Role,
};

/// Network use of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Open connections that it accepted.
    pub connections: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
}

impl Traffic {
    /// Adds what another one has.
    pub fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.bytes_in = self.bytes_in.saturating_add(other.bytes_in);
        self.bytes_out = self.bytes_out.saturating_add(other.bytes_out);
    }
}

/// Bytes that moved since they were last taken; it is never longer than there are services.
#[derive(Debug, Default)]
pub(in crate::track) struct Moved {
    services: FxHashMap<ServiceId, Traffic>,
}

impl Moved {
    /// A process of the service read or wrote so many.
    fn add(&mut self, service: ServiceId, dir: u8, bytes: u64) {
        let traffic = self.services.entry(service).or_default();
        let sum = if dir == socket::DIR_RECV { &mut traffic.bytes_in } else { &mut traffic.bytes_out };
        *sum = sum.saturating_add(bytes);
    }

    /// Takes them.
    pub(in crate::track) fn take(&mut self) -> impl Iterator<Item = (ServiceId, Traffic)> + '_ {
        self.services.drain()
    }
}

impl Connections {
    /// Services of the processes that serve connections, one for each connection.
    pub(in crate::track) fn accepted(&self, processes: &Processes) -> impl Iterator<Item = ServiceId> {
        let served = self.table.values().filter(|connection| matches!(connection.role, Role::Server(_)));
        served.filter_map(|connection| processes.service(connection.tgid))
    }

    /// Counts the bytes of a call, unless they stay within the service.
    pub(super) fn count(&mut self, data: &socket::Data, cx: &Context<'_>) {
        let Some(connection) = self.table.get(&data.id) else { return };
        let is_local = connection.open.is_some_and(|open| open.family == AF_UNIX);
        let Some(service) = cx.processes.service(data.header.tgid).filter(|_| !is_local) else { return };
        let other = connection.client.and_then(|client| cx.processes.service(client.pid));
        if other != Some(service)
            && let Call::Moved(bytes) = Call::of(data)
        {
            self.moved.add(service, data.dir, bytes);
        }
    }
}
