//! Which processes belong together: facts in, services out. Pure.
//!
//! A service is what a request travels through: the process that accepts it, the one that drives the GPU, and what
//! they start. In a container it is the container. Elsewhere it is a process tree within one session: from a process
//! that uses the GPU up to its topmost ancestor that listens or uses the GPU itself, and everything below that; and
//! siblings of that root with the same executable in the same job (launchers that start front and engine side by
//! side). A shell's other jobs, and programs that merely live on the same host, stay out.
//!
//! A live connection between processes is stronger than that: an engine without a port of its own belongs to the
//! listener that it is linked to over a unix socket, wherever that was started, and to no other one beside it.
//!
//! A process keeps the service it once had until it ends: an engine may be restarted, a front may close its port.

use std::collections::{BTreeMap, BTreeSet};

use crate::decode::ListenPort;

/// Programs that start services but are not part of them, although some of them listen.
const SUPERVISORS: [&str; 10] = [
    "systemd",
    "sshd",
    "supervisord",
    "s6-svscan",
    "runsvdir",
    "tini",
    "dumb-init",
    "containerd-shim",
    "jupyter-lab",
    "jupyter-noteboo",
];

/// What is known of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks.
    pub start_ticks: u64,
    /// Name.
    pub comm: String,
    /// Parent.
    pub ppid: u32,
    /// Process group.
    pub pgrp: u32,
    /// Session.
    pub session: u32,
    /// Executable.
    pub exe: String,
    /// Container, unless it is the agent's own (which says nothing about belonging together).
    pub container: Option<String>,
    /// Maps a CUDA driver.
    pub gpu: bool,
    /// Listening TCP ports.
    pub ports: Vec<ListenPort>,
    /// Of an engine without a port: processes at the other ends of its unix sockets.
    pub linked: BTreeSet<u32>,
}

/// What the operator asked for; empty means every GPU service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Services of these processes.
    pub pids: BTreeSet<u32>,
    /// Services that listen on these ports.
    pub ports: BTreeSet<u16>,
    /// The agent: never part of anything.
    pub own: u32,
}

/// Service of a process, by pid and start time.
pub type Assigned = BTreeMap<(u32, u64), String>;

/// A service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Unique on the node, the same for all its processes.
    pub key: String,
    /// For people: name of the front, or of the GPU process, and its lowest port.
    pub name: String,
    /// Its processes, ascending.
    pub pids: Vec<u32>,
}

/// What belongs to one service before it has a name.
#[derive(Debug, Default)]
struct Group {
    /// Root of the tree, or first process of the container.
    root: u32,
    members: BTreeSet<u32>,
}

/// All processes of the node at one moment.
struct World<'a> {
    facts: BTreeMap<u32, &'a Facts>,
    children: BTreeMap<u32, Vec<u32>>,
    wanted: &'a Wanted,
}

/// Groups the processes into services.
pub fn services(facts: &[Facts], wanted: &Wanted, previous: &Assigned) -> Vec<Service> {
    let world = World::new(facts, wanted);
    let mut groups = world.groups();
    groups.retain(|group| world.is_wanted(group));
    let mut taken = BTreeSet::new();
    let mut services: Vec<Service> =
        groups.iter().map(|group| world.service(group, previous, &mut taken)).collect();
    world.keep_previous(&mut services, previous);
    services.sort_by(|a, b| a.key.cmp(&b.key));
    services
}

impl<'a> World<'a> {
    fn new(facts: &'a [Facts], wanted: &'a Wanted) -> Self {
        let facts: BTreeMap<u32, &Facts> =
            facts.iter().filter(|facts| facts.pid != wanted.own).map(|facts| (facts.pid, facts)).collect();
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for one in facts.values() {
            children.entry(one.ppid).or_default().push(one.pid);
        }
        Self { facts, children, wanted }
    }

    /// Processes from which services grow.
    fn seeds(&self) -> impl Iterator<Item = &'a Facts> {
        self.facts.values().copied().filter(|one| one.gpu || self.is_asked_for(one))
    }

    fn is_asked_for(&self, one: &Facts) -> bool {
        self.wanted.pids.contains(&one.pid)
            || one.ports.iter().any(|port| self.wanted.ports.contains(&port.port))
    }

    fn is_wanted(&self, group: &Group) -> bool {
        let everything = self.wanted.pids.is_empty() && self.wanted.ports.is_empty();
        everything || self.members(group).any(|one| self.is_asked_for(one))
    }

    fn members(&self, group: &Group) -> impl Iterator<Item = &'a Facts> {
        group.members.iter().filter_map(|pid| self.facts.get(pid).copied())
    }

    fn groups(&self) -> Vec<Group> {
        let containers: BTreeSet<&str> = self.seeds().filter_map(|seed| seed.container.as_deref()).collect();
        let in_containers = containers.into_iter().map(|id| self.container(id));
        in_containers.chain(self.trees()).collect()
    }

    fn container(&self, id: &str) -> Group {
        let members: BTreeSet<u32> = self
            .facts
            .values()
            .filter(|one| one.container.as_deref() == Some(id))
            .map(|one| one.pid)
            .collect();
        Group { root: members.first().copied().unwrap_or(0), members }
    }

    /// Trees outside containers, siblings that belong together joined.
    fn trees(&self) -> Vec<Group> {
        let seeds = self.seeds().filter(|seed| seed.container.is_none());
        let roots: BTreeSet<u32> = seeds.map(|seed| self.root(seed).pid).collect();
        let mut fronts: BTreeSet<u32> = roots.iter().flat_map(|root| self.sibling_fronts(*root)).collect();
        let is_without_port = |tree: &BTreeSet<u32>| tree.iter().all(|pid| self.facts[pid].ports.is_empty());
        let engines = roots.iter().map(|root| self.subtree(*root)).filter(is_without_port);
        fronts.extend(engines.flat_map(|tree| self.linked_fronts(&tree)));
        let mut groups: Vec<Group> = Vec::new();
        for root in roots.union(&fronts).copied() {
            let tree = Group { root, members: self.subtree(root) };
            match groups.iter_mut().find(|group| self.one_service(group, &tree)) {
                Some(group) => group.members.extend(tree.members),
                None => groups.push(tree),
            }
        }
        groups
    }

    /// Topmost ancestor in the same session and container that listens or uses the GPU; else the process itself.
    fn root(&self, seed: &'a Facts) -> &'a Facts {
        let mut root = seed;
        let mut at = seed;
        // A parent is older than its child, so this ends; the bound is for a `/proc` read while pids were reused.
        for _ in 0..64 {
            let Some(parent) = self.facts.get(&at.ppid).copied().filter(|parent| same_place(parent, seed))
            else {
                break;
            };
            if SUPERVISORS.contains(&parent.comm.as_str()) {
                break;
            }
            if parent.gpu || !parent.ports.is_empty() {
                root = parent;
            }
            at = parent;
        }
        root
    }

    /// The process and everything below it in the same session and container.
    fn subtree(&self, root: u32) -> BTreeSet<u32> {
        let mut members = BTreeSet::new();
        let mut open = vec![root];
        while let Some(pid) = open.pop() {
            if !members.insert(pid) {
                continue;
            }
            let below = self.children.get(&pid).into_iter().flatten().copied();
            open.extend(below.filter(|child| same_place(self.facts[child], self.facts[&root])));
        }
        members
    }

    /// Roots of the listeners that engines among these processes are linked to. Who uses a GPU as well is a server of
    /// its own.
    fn linked_fronts(&self, members: &BTreeSet<u32>) -> BTreeSet<u32> {
        let linked = members.iter().flat_map(|pid| &self.facts[pid].linked);
        let fronts = linked.filter_map(|pid| self.facts.get(pid).copied());
        let alike = fronts.filter(|one| one.container.is_none() && !SUPERVISORS.contains(&one.comm.as_str()));
        let roots = alike.map(|one| self.root(one));
        roots.filter(|root| !root.ports.is_empty() && !root.gpu).map(|root| root.pid).collect()
    }

    /// Listening siblings of a root that do not use the GPU themselves: fronts started beside their engine.
    fn sibling_fronts(&self, root: u32) -> impl Iterator<Item = u32> {
        let root = self.facts[&root];
        let siblings = self.children.get(&root.ppid).into_iter().flatten().map(|pid| self.facts[pid]);
        siblings
            .filter(move |one| one.pid != root.pid && !one.ports.is_empty() && same_job(one, root))
            .map(|one| one.pid)
    }

    /// Two trees side by side are one service, unless each is complete: a listener and a GPU process of its own.
    fn one_service(&self, group: &Group, tree: &Group) -> bool {
        let complete = |group: &Group| {
            self.members(group).any(|one| one.gpu) && self.members(group).any(|one| !one.ports.is_empty())
        };
        let (a, b) = (self.facts[&group.root], self.facts[&tree.root]);
        let [mine, theirs] = [group, tree].map(|group| self.linked_fronts(&group.members));
        if mine.contains(&b.pid) || theirs.contains(&a.pid) || mine.intersection(&theirs).next().is_some() {
            return true;
        }
        // Who is linked to a front has no other one beside it.
        let beside = a.ppid == b.ppid && same_job(a, b) && !(complete(group) && complete(tree));
        beside && mine.is_empty() && theirs.is_empty()
    }

    fn service(&self, group: &Group, previous: &Assigned, taken: &mut BTreeSet<String>) -> Service {
        let root = self.facts[&group.root];
        let mut before = self.members(group).filter_map(|one| previous.get(&(one.pid, one.start_ticks)));
        let fresh = match &root.container {
            Some(id) => format!("container:{id}"),
            None => format!("pid:{}:{}", root.pid, root.start_ticks),
        };
        let key = before.find(|key| !taken.contains(*key)).cloned().unwrap_or(fresh);
        taken.insert(key.clone());
        Service { key, name: self.name(group), pids: group.members.iter().copied().collect() }
    }

    /// The front that people talk to: the root if it listens, else a listener that leaves the GPU to others.
    fn name(&self, group: &Group) -> String {
        let rank = |one: &Facts| (one.ports.is_empty(), one.pid != group.root, one.gpu, one.pid);
        let gpu_first = |one: &Facts| (!one.gpu, one.pid);
        let front = self.members(group).filter(|one| !one.ports.is_empty()).min_by_key(|one| rank(one));
        let named = front.or_else(|| self.members(group).min_by_key(|one| gpu_first(one)));
        let port = front.and_then(|front| front.ports.iter().map(|port| port.port).min());
        match (named, port) {
            (Some(named), Some(port)) => format!("{}:{port}", named.comm),
            (Some(named), None) => named.comm.clone(),
            (None, _) => String::new(),
        }
    }

    /// Puts living processes that had a service and now belong to none back into it.
    fn keep_previous(&self, services: &mut Vec<Service>, previous: &Assigned) {
        let placed: BTreeSet<u32> =
            services.iter().flat_map(|service| service.pids.iter().copied()).collect();
        let mut left: BTreeMap<&String, BTreeSet<u32>> = BTreeMap::new();
        for ((pid, start), key) in previous {
            let alive = self.facts.get(pid).is_some_and(|one| one.start_ticks == *start);
            if alive && !placed.contains(pid) {
                left.entry(key).or_default().insert(*pid);
            }
        }
        for (key, members) in left {
            if let Some(service) = services.iter_mut().find(|service| service.key == *key) {
                service.pids.extend(members);
                service.pids.sort_unstable();
            } else {
                let group = Group { root: members.first().copied().unwrap_or(0), members };
                let pids = group.members.iter().copied().collect();
                services.push(Service { key: key.clone(), name: self.name(&group), pids });
            }
        }
    }
}

/// Same session, and both outside containers or in the same one.
fn same_place(a: &Facts, b: &Facts) -> bool {
    a.session == b.session && a.container == b.container
}

/// Same job of the same launcher, same program.
fn same_job(a: &Facts, b: &Facts) -> bool {
    same_place(a, b) && a.pgrp == b.pgrp && a.exe == b.exe && !a.exe.is_empty()
}

#[cfg(test)]
#[path = "group/tests.rs"]
mod tests;
