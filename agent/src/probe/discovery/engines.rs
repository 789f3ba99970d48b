//! Which inference server each service is: asked of its processes once, and again while there is no answer.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{super::status::ServiceStatus, scan::Scanner};
use crate::source::procfs::Engine;

/// Looks at a process that tells nothing: a server may change its name and load its libraries late.
const LOOKS: u32 = 4;
/// Time between them; each reads a memory map.
const EVERY: Duration = Duration::from_secs(10);

/// What processes told, by pid and start time.
#[derive(Debug, Default)]
pub(super) struct Engines {
    told: BTreeMap<(u32, u64), Told>,
}

#[derive(Debug)]
struct Told {
    engine: Option<Engine>,
    looks: u32,
    looked: Instant,
}

impl Told {
    fn is_final(&self) -> bool {
        self.looks >= LOOKS || self.engine.as_ref().is_some_and(|engine| engine.version.is_some())
    }
}

impl Engines {
    /// Looks at the processes of services that may tell more.
    pub(super) fn look(&mut self, scanner: &Scanner, services: &[ServiceStatus], now: Instant) {
        let stats: BTreeMap<u32, _> = scanner.stats().map(|stat| (stat.pid, stat)).collect();
        self.told.retain(|(pid, start), _| stats.get(pid).is_some_and(|stat| stat.start_ticks == *start));
        for stat in services.iter().flat_map(|service| &service.pids).filter_map(|pid| stats.get(pid)) {
            let key = (stat.pid, stat.start_ticks);
            let before = self.told.get(&key);
            if before.is_some_and(|told| told.is_final() || now < told.looked + EVERY) {
                continue;
            }
            let looks = before.map_or(0, |told| told.looks) + 1;
            let engine = scanner.procfs().engine(scanner.view(stat.pid), &stat.comm);
            self.told.insert(key, Told { engine, looks, looked: now });
        }
    }

    /// Writes what is known into the services: what the first process says that knows the version, else the first.
    pub(super) fn name(&self, services: &mut [ServiceStatus]) {
        for service in services {
            let of = |pid: &u32| self.told.range((*pid, 0)..=(*pid, u64::MAX)).next_back()?.1.engine.as_ref();
            let engines = || service.pids.iter().filter_map(of);
            let engine = engines().find(|engine| engine.version.is_some()).or_else(|| engines().next());
            service.engine = engine.map(|engine| engine.kind.to_owned());
            service.engine_version = engine.and_then(|engine| engine.version.clone());
        }
    }
}
