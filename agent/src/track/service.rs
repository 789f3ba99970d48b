//! The services that are known: their names, their ports, and whether anything of them still runs.
//!
//! One whose processes are all gone is remembered, since the next process of it most likely comes soon. It goes when
//! there is no room for another one, the one that has been gone longest first.

use rustc_hash::{FxHashMap, FxHashSet};

use super::ServiceId;
use crate::{decode::ProcessSeen, health::Health};

/// Services that are told apart at a time.
pub(super) const MAX_SERVICES: usize = 4096;
/// Listening ports remembered per service.
const MAX_PORTS: usize = 256;

#[derive(Debug)]
struct Service {
    /// What it is known by to discovery.
    key: String,
    name: String,
    ports: FxHashSet<(u32, u16)>,
    /// Processes of it that run.
    living: usize,
    /// When the last of them ended, counted in such ends.
    left: u64,
}

/// The services.
#[derive(Debug, Default)]
pub(super) struct Services {
    table: FxHashMap<ServiceId, Service>,
    by_key: FxHashMap<String, ServiceId>,
    /// Number of the next one.
    next: u32,
    /// Ends so far of last processes.
    ends: u64,
}

impl Services {
    /// The service of a process that was seen; `None`, counted, when there are too many that run.
    pub(super) fn intern(&mut self, seen: &ProcessSeen, health: &mut Health) -> Option<ServiceId> {
        if let Some(id) = self.by_key.get(&seen.service) {
            let service = self.table.get_mut(id)?;
            if service.name != seen.service_name {
                service.name.clone_from(&seen.service_name);
            }
            return Some(*id);
        }
        if self.table.len() >= MAX_SERVICES && !self.make_room() {
            health.ignore("service_table_full");
            return None;
        }
        let id = ServiceId(self.next);
        self.next = self.next.checked_add(1)?;
        let service = Service {
            key: seen.service.clone(),
            name: seen.service_name.clone(),
            ports: FxHashSet::default(),
            living: 0,
            left: self.ends,
        };
        self.table.insert(id, service);
        self.by_key.insert(seen.service.clone(), id);
        Some(id)
    }

    /// Forgets the one that has been gone longest; false when all of them run.
    fn make_room(&mut self) -> bool {
        let gone = self.table.iter().filter(|(_, service)| service.living == 0);
        let Some(id) = gone.min_by_key(|(id, service)| (service.left, **id)).map(|(id, _)| *id) else {
            return false;
        };
        if let Some(service) = self.table.remove(&id) {
            self.by_key.remove(&service.key);
        }
        true
    }

    /// It is remembered.
    pub(super) fn contains(&self, id: ServiceId) -> bool {
        self.table.contains_key(&id)
    }

    /// Its name; empty for an id that was never given, or was forgotten.
    pub(super) fn name(&self, id: ServiceId) -> &str {
        self.table.get(&id).map_or("", |service| service.name.as_str())
    }

    /// A process of it listens there, or did.
    pub(super) fn listens(&self, id: ServiceId, netns: u32, port: u16) -> bool {
        self.table.get(&id).is_some_and(|service| service.ports.contains(&(netns, port)))
    }

    /// One more port.
    pub(super) fn add_port(&mut self, id: ServiceId, port: (u32, u16), health: &mut Health) {
        let Some(service) = self.table.get_mut(&id) else { return };
        if service.ports.len() < MAX_PORTS {
            service.ports.insert(port);
        } else if !service.ports.contains(&port) {
            health.ignore("port_table_full");
        }
    }

    /// A process of it runs.
    pub(super) fn joined(&mut self, id: ServiceId) {
        if let Some(service) = self.table.get_mut(&id) {
            service.living += 1;
        }
    }

    /// A process of it does not run any more.
    pub(super) fn left(&mut self, id: ServiceId) {
        let Some(service) = self.table.get_mut(&id) else { return };
        service.living = service.living.saturating_sub(1);
        if service.living == 0 {
            self.ends += 1;
            service.left = self.ends;
        }
    }

    /// A process of it runs, as far as is known.
    pub(super) fn is_living(&self, id: ServiceId) -> bool {
        self.table.get(&id).is_some_and(|service| service.living > 0)
    }
}
