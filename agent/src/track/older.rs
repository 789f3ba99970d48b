//! How many connections of a service are older than the agent's look at it: the first request of each carries
//! `mid_stream`.

use std::collections::BTreeMap;

use wire::socket::{FLAG_MID_STREAM, Open};

use super::{
    ServiceId,
    ends::AF_UNIX,
    process::{MAX_SERVICES, Processes},
};

/// The counts of all services.
#[derive(Debug, Default)]
pub(super) struct Older {
    services: BTreeMap<ServiceId, u64>,
}

impl Older {
    /// A connection proved to be one that a process of a service accepted.
    pub(super) fn found(&mut self, open: &Open, processes: &Processes) {
        if open.flags & FLAG_MID_STREAM == 0 || open.family == AF_UNIX {
            return;
        }
        let Some(service) = processes.service_at(open.header.tgid, open.header.time_ns) else { return };
        if self.services.len() >= MAX_SERVICES {
            self.services.retain(|id, _| processes.knows(*id));
        }
        *self.services.entry(service).or_default() += 1;
    }

    /// All of them, by service.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ServiceId, u64)> {
        self.services.iter().map(|(service, connections)| (*service, *connections))
    }
}
