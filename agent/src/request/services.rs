//! The books of all services. One whose processes are all gone keeps its own until there is no room for another one:
//! what it has learned of its clients and its engine holds for the next process of it.

use std::collections::{BTreeMap, BTreeSet};

use super::{service::Service, told::Told};
use crate::{health::Health, track::ServiceId};

/// Services that are remembered.
pub(super) const SERVICES_KEPT: usize = 1024;

/// Services by their number.
#[derive(Debug, Default)]
pub(super) struct Services {
    table: BTreeMap<ServiceId, Service>,
    /// Those of which no process is left.
    gone: BTreeSet<ServiceId>,
}

impl Services {
    /// A service that something new is known of; `None`, counted, when there are too many that run.
    pub(super) fn open(&mut self, id: ServiceId, health: &mut Health) -> Option<&mut Service> {
        self.gone.remove(&id);
        if !self.table.contains_key(&id) && self.table.len() >= SERVICES_KEPT && !self.make_room() {
            health.limit("services");
            return None;
        }
        Some(self.table.entry(id).or_default())
    }

    /// Forgets the oldest one that is gone and has nothing in flight; false when there is none.
    fn make_room(&mut self) -> bool {
        let table = &self.table;
        let is_over = |id: &&ServiceId| table.get(id).is_none_or(|service| service.live.is_empty());
        let Some(id) = self.gone.iter().find(is_over).copied() else { return false };
        self.gone.remove(&id);
        self.table.remove(&id);
        true
    }

    /// No process of it is left.
    pub(super) fn left(&mut self, id: ServiceId) {
        if self.table.contains_key(&id) {
            self.gone.insert(id);
        }
    }

    /// A service that is remembered.
    pub(super) fn get(&self, id: ServiceId) -> Option<&Service> {
        self.table.get(&id)
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, id: ServiceId) -> Option<&mut Service> {
        self.table.get_mut(&id)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ServiceId, &Service)> {
        self.table.iter().map(|(id, service)| (*id, service))
    }

    /// Forgets what nobody can need any more; `now` is the time of the latest event.
    pub(super) fn prune(&mut self, now: u64) {
        self.table.values_mut().for_each(|service| service.prune(now));
    }

    /// Nothing comes any more.
    pub(super) fn end(&mut self) {
        self.table.values_mut().for_each(Service::end);
    }

    /// Takes the steps that no request can claim any more; those of ranks once.
    pub(super) fn over(&mut self) -> impl Iterator<Item = (ServiceId, Told)> {
        self.table.iter_mut().flat_map(|(id, service)| service.take_over().map(|told| (*id, told)))
    }
}
