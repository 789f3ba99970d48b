//! Looking at `/proc`, again and again, for little: one `stat` per process and pass; the rest only when the size of
//! its address space or its name has changed, or when someone points at it.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use super::{
    super::targets::{FileId, Kind, Mapped, Mapping, mapped},
    group::{Facts, Wanted},
};
use crate::{
    decode::ListenPort,
    source::procfs::{Listener, ProcError, ProcFs, Stat},
};

/// Passes after which a process is looked at again although nothing seems to have changed.
const STALE_AFTER: u32 = 32;
/// The same for a process that drives a GPU: its address space changes all the time, its libraries do not.
const GPU_STALE_AFTER: u32 = 8;
/// Passes after which the sockets of a process are looked at again (one may be handed to it by another).
const PORTS_STALE_AFTER: u32 = 8;

/// What was seen of one process.
#[derive(Debug)]
struct Known {
    stat: Stat,
    /// The thread by whose number it is looked at: the first one, or another where that has ended.
    view: u32,
    exe: String,
    container: Option<String>,
    netns: u32,
    mapped: Mapped,
    ports: Vec<ListenPort>,
    /// Listening sockets of the namespace when `ports` was found.
    listeners: u64,
    /// Passes since the last full look.
    age: u32,
    /// Passes since the last look at its sockets.
    ports_age: u32,
}

/// All processes, as last seen.
#[derive(Debug)]
pub(super) struct Scanner {
    procfs: ProcFs,
    known: BTreeMap<u32, Known>,
    own_container: Option<String>,
    /// Processes that matter although they neither use a GPU nor were asked for.
    attended: BTreeSet<u32>,
}

impl Scanner {
    /// Nothing seen yet. The agent's own container is not told from the host: all that is in it shares its id.
    pub(super) fn new(procfs: ProcFs) -> Self {
        let own_container = procfs.container(std::process::id()).ok().flatten();
        Self { procfs, known: BTreeMap::new(), own_container, attended: BTreeSet::new() }
    }

    /// The ports of these processes, and of those in their sessions, are to be known as well.
    pub(super) fn attend(&mut self, pids: BTreeSet<u32>) {
        self.attended = pids;
    }

    /// Where it looks.
    pub(super) fn procfs(&self) -> &ProcFs {
        &self.procfs
    }

    /// Processes known.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Every process, as last seen.
    pub(super) fn stats(&self) -> impl Iterator<Item = &Stat> {
        self.known.values().map(|known| &known.stat)
    }

    /// A process with this pid is running.
    pub(super) fn is_alive(&self, pid: u32) -> bool {
        self.known.contains_key(&pid)
    }

    /// Looks at every process.
    pub(super) fn full(&mut self, wanted: &Wanted) -> Result<(), ProcError> {
        let pids = self.procfs.pids()?;
        let alive: BTreeSet<u32> = pids.iter().copied().collect();
        self.known.retain(|pid, _| alive.contains(pid));
        for pid in pids {
            self.look(pid, false);
        }
        self.find_ports(wanted, None);
        Ok(())
    }

    /// Looks at some processes closely, because something was heard of them.
    pub(super) fn some(&mut self, pids: &BTreeSet<u32>, wanted: &Wanted) {
        for &pid in pids {
            self.look(pid, true);
        }
        self.find_ports(wanted, Some(pids));
    }

    fn look(&mut self, pid: u32, closely: bool) {
        let Some((stat, view)) = self.see(pid) else {
            self.known.remove(&pid);
            return;
        };
        if let Some(known) = self.known.get_mut(&pid) {
            known.age += 1;
            known.ports_age += 1;
            if !closely && !known.needs_a_look(&stat) {
                (known.stat, known.view) = (stat, view);
                return;
            }
        }
        match self.read(stat, view) {
            Ok(known) => self.known.insert(pid, known),
            Err(_ended_meanwhile) => self.known.remove(&pid),
        };
    }

    /// A process, and the thread by whose number more is to be seen of it. Kernel threads and zombies have no address
    /// space and are nothing to us; but one whose first thread alone has ended looks like a zombie too.
    fn see(&self, pid: u32) -> Option<(Stat, u32)> {
        let stat = self.procfs.stat(pid).ok()?;
        if stat.vsize > 0 {
            return Some((stat, pid));
        }
        if stat.threads < 2 {
            return None;
        }
        let vsize_of = |thread| Some((thread, self.procfs.stat(thread).ok()?.vsize));
        let mut threads = self.procfs.threads(pid).ok()?.filter_map(vsize_of);
        let (view, vsize) = threads.find(|(_, vsize)| *vsize > 0)?;
        Some((Stat { vsize, ..stat }, view))
    }

    fn read(&self, stat: Stat, view: u32) -> Result<Known, ProcError> {
        let before = self.known.get(&stat.pid).filter(|known| known.stat.start_ticks == stat.start_ticks);
        let exe = self.procfs.exe(view)?;
        Ok(Known {
            mapped: mapped(&self.procfs, view, &exe)?,
            exe: exe.to_string_lossy().into_owned(),
            container: self.procfs.container(view)?,
            netns: self.procfs.netns(view)?,
            ports: before.map(|known| known.ports.clone()).unwrap_or_default(),
            listeners: before.map_or(0, |known| known.listeners),
            age: 0,
            ports_age: before.map_or(PORTS_STALE_AFTER, |known| known.ports_age),
            stat,
            view,
        })
    }

    /// Finds the listening ports of the processes for which they can matter. When only some are looked at, because
    /// something was heard of them, the others wait for the next full look, unless theirs is due anyway.
    fn find_ports(&mut self, wanted: &Wanted, closely: Option<&BTreeSet<u32>>) {
        let is_due = |pid: &u32| self.known.get(pid).is_some_and(|k| k.ports_age >= PORTS_STALE_AFTER);
        let is_meant = |pid: &u32| closely.is_none_or(|pids| pids.contains(pid) || is_due(pid));
        let candidates: Vec<u32> = self.candidates(wanted).into_iter().filter(is_meant).collect();
        let mut namespaces: BTreeMap<u32, (Vec<Listener>, u64)> = BTreeMap::new();
        for pid in candidates {
            let Some(known) = self.known.get_mut(&pid) else { continue };
            let found = match namespaces.entry(known.netns) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(vacant) => match namespace(&self.procfs, known.view) {
                    Ok(found) => vacant.insert(found),
                    // It has ended since; the next one of the namespace tells as well.
                    Err(_) => continue,
                },
            };
            let (listeners, hash) = &*found;
            let looked_at = closely.is_some_and(|pids| pids.contains(&pid));
            if !looked_at && known.listeners == *hash && known.ports_age < PORTS_STALE_AFTER {
                continue;
            }
            known.listeners = *hash;
            known.ports_age = 0;
            // What cannot be looked at now keeps what was seen last.
            if let Ok(ports) = owned_ports(&self.procfs, known.view, known.netns, listeners) {
                known.ports = ports;
            }
        }
    }

    /// Processes in the session or container of one that matters; all of them when ports were asked for.
    fn candidates(&self, wanted: &Wanted) -> Vec<u32> {
        let matters = |known: &&Known| {
            let pid = known.stat.pid;
            known.mapped.may_use_gpu() || wanted.pids.contains(&pid) || self.attended.contains(&pid)
        };
        let sessions: BTreeSet<u32> =
            self.known.values().filter(matters).map(|known| known.stat.session).collect();
        let containers: BTreeSet<&String> =
            self.known.values().filter(matters).filter_map(|known| known.container.as_ref()).collect();
        let by_port = !wanted.ports.is_empty();
        let is_candidate = |known: &&Known| {
            let contained = known.container.as_ref().is_some_and(|id| containers.contains(id));
            by_port || contained || sessions.contains(&known.stat.session)
        };
        self.known.values().filter(is_candidate).map(|known| known.stat.pid).collect()
    }

    /// The thread by whose number a process is looked at.
    pub(super) fn view(&self, pid: u32) -> u32 {
        self.known.get(&pid).map_or(pid, |known| known.view)
    }

    /// Mapped files with the name of a library of this kind, and by whom.
    pub(super) fn files(&self, kind: Kind) -> BTreeMap<FileId, Vec<(u32, &Mapping)>> {
        let mut files: BTreeMap<FileId, Vec<(u32, &Mapping)>> = BTreeMap::new();
        for (&pid, known) in &self.known {
            let mapped = &known.mapped;
            let (mappings, maybe): (_, &[Mapping]) = match kind {
                Kind::Cuda => (&mapped.cuda, &mapped.maybe_cuda),
                Kind::Runtime => (&mapped.runtime, &[]),
                Kind::Tls => (&mapped.tls, &[]),
            };
            for mapping in mappings.iter().chain(maybe) {
                files.entry(mapping.file).or_default().push((pid, mapping));
            }
        }
        files
    }

    /// What every process maps.
    pub(super) fn mapped(&self) -> impl Iterator<Item = (u32, &Mapped)> {
        self.known.iter().map(|(&pid, known)| (pid, &known.mapped))
    }

    /// What grouping needs. `uses_gpu` tells whether a process does, by what it maps.
    pub(super) fn facts(&self, uses_gpu: impl Fn(u32, &Mapped) -> bool) -> Vec<Facts> {
        let facts = |known: &Known| Facts {
            pid: known.stat.pid,
            start_ticks: known.stat.start_ticks,
            comm: known.stat.comm.clone(),
            ppid: known.stat.ppid,
            pgrp: known.stat.pgrp,
            session: known.stat.session,
            exe: known.exe.clone(),
            container: known.container.clone().filter(|id| self.own_container.as_ref() != Some(id)),
            gpu: uses_gpu(known.stat.pid, &known.mapped),
            ports: known.ports.clone(),
            linked: BTreeSet::new(),
        };
        self.known.values().map(facts).collect()
    }

    /// Container of a process, the agent's own included.
    pub(super) fn container(&self, pid: u32) -> Option<&str> {
        self.known.get(&pid)?.container.as_deref()
    }
}

impl Known {
    fn needs_a_look(&self, now: &Stat) -> bool {
        if self.stat.start_ticks != now.start_ticks || self.stat.comm != now.comm {
            return true;
        }
        if self.mapped.cuda.is_empty() {
            self.stat.vsize != now.vsize || self.age >= STALE_AFTER
        } else {
            self.age >= GPU_STALE_AFTER
        }
    }
}

/// Listening sockets of a process's network namespace, and a number that changes when they do.
fn namespace(procfs: &ProcFs, pid: u32) -> Result<(Vec<Listener>, u64), ProcError> {
    let mut listeners = procfs.listeners(pid)?;
    listeners.sort_unstable();
    let mut hasher = DefaultHasher::new();
    for listener in &listeners {
        (listener.inode, listener.port).hash(&mut hasher);
    }
    Ok((listeners, hasher.finish()))
}

fn owned_ports(
    procfs: &ProcFs,
    pid: u32,
    netns: u32,
    listeners: &[Listener],
) -> Result<Vec<ListenPort>, ProcError> {
    if listeners.is_empty() {
        return Ok(Vec::new());
    }
    let open: BTreeSet<u64> = procfs.socket_inodes(pid)?.into_iter().collect();
    let mut ports: Vec<ListenPort> = listeners
        .iter()
        .filter(|listener| open.contains(&listener.inode))
        .map(|listener| ListenPort { netns, port: listener.port })
        .collect();
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

#[cfg(test)]
#[path = "scan/tests.rs"]
mod tests;
