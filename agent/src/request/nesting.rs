//! Exchanges within exchanges: what a proxy asks of the server behind it belongs to the request that it answers.
//!
//! An exchange that a watched process sent may belong to one that this process is answering. Such a process can be
//! answering many, and forwards, changes, repeats or splits what it was asked. So of those in flight the one is
//! chosen that fits best ([`fit`]): what only the same request shares decides; then whether anything belongs to it
//! yet, the thread, what many requests share, and how close the ends of the answers lie; then who came first. The
//! choice is made when the inner request is read, and again when either of the two is over, since by then more is
//! known. It is certain if there was only one to choose, or no other shares as much; else the request is flagged.
//!
//! An inner exchange that is over waits for the outer one, whose record holds what it told; an outer one that is over
//! waits for an inner one ([`patience`] says how long). One that fits nothing, a proxy's own probe among them, stands for
//! itself.

mod choice;
mod fit;
mod merge;
mod patience;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::{
    fit::outlasts,
    merge::{Part, merge},
};
use super::{record::Outcome, requests::Ended};
use crate::{
    health::Health,
    track::{Client, Delivery, Exchange, ExchangeId, ServiceId, Sight},
};

/// Exchanges that are kept, in flight or over.
const KEPT: usize = 65_536;

/// Where an exchange was accepted; `None` when that is not known.
type Listener = Option<(ServiceId, u16)>;

/// The outer exchange of an inner one.
#[derive(Clone, Copy, Debug)]
struct Link {
    outer: ExchangeId,
    /// Nothing else could be it.
    certain: bool,
    /// They have an identifier in common.
    is_identity: bool,
    /// How many there were to choose from, at first.
    choices: usize,
}

/// Servers in a chain that are looked along.
const CHAIN: usize = 8;

/// The beginning of an exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    /// Process that answers it.
    pub pid: u32,
    /// Where it was accepted.
    pub listener: Listener,
    /// When.
    pub time_ns: u64,
}

/// How far an exchange is.
#[derive(Debug)]
enum Stage {
    /// In flight.
    Open,
    /// Over, since then; something that belongs to it is not.
    Waiting(Box<Ended>, u64),
    /// Over, since then, with all that belongs to it; the one that it belongs to is not.
    Whole(Box<Ended>, u64),
}

/// One exchange.
#[derive(Debug)]
struct Entry {
    pid: u32,
    listener: Listener,
    begun_ns: u64,
    sight: Sight,
    client: Option<Client>,
    stage: Stage,
    link: Option<Link>,
    inner: Vec<ExchangeId>,
    /// It was answered to its end.
    is_answered: bool,
    /// The one that it belonged to is reported: it is not to be reported by itself.
    is_late: bool,
}

/// Exchanges in flight, and those that wait for others.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    all: BTreeMap<ExchangeId, Entry>,
    /// Those that a process is answering, by where they were accepted.
    answering: BTreeMap<u32, BTreeMap<Listener, BTreeSet<ExchangeId>>>,
    /// Those that a watched process asked for.
    asking: BTreeMap<u32, BTreeSet<ExchangeId>>,
    /// Those of them of which it is a guess what they belong to.
    guesses: BTreeMap<u32, BTreeSet<ExchangeId>>,
    waiting: BTreeSet<(u64, ExchangeId)>,
    /// Those that are over with all that belongs to them.
    whole: BTreeSet<(u64, ExchangeId)>,
    /// Content events of those that are over.
    events: usize,
}

impl Nesting {
    /// A request begins to be read by process `pid`. The oldest exchange makes room for it if it must, to `out` if it
    /// is over.
    pub(super) fn begun(
        &mut self,
        id: ExchangeId,
        begun: Begun,
        health: &mut Health,
        out: &mut VecDeque<Box<Ended>>,
    ) {
        if self.all.len() >= KEPT
            && let Some(oldest) = self.all.keys().next().copied()
        {
            health.limit("nested_exchanges");
            self.forget(oldest, health, out);
        }
        let Begun { pid, listener, time_ns: begun_ns } = begun;
        let entry = Entry {
            pid,
            listener,
            begun_ns,
            sight: Sight { listener, ..Sight::default() },
            client: None,
            stage: Stage::Open,
            link: None,
            inner: Vec::new(),
            is_answered: false,
            is_late: false,
        };
        self.all.insert(id, entry);
        self.answering.entry(pid).or_default().entry(listener).or_default().insert(id);
    }

    /// It was none, or is not known any more. What is over of it and of what belonged to it goes to `out`.
    pub(super) fn forget(&mut self, id: ExchangeId, health: &mut Health, out: &mut VecDeque<Box<Ended>>) {
        let Some(entry) = self.remove(id) else { return };
        for inner in entry.inner {
            let Some(part) = self.all.get(&inner) else { continue };
            let is_whole = matches!(part.stage, Stage::Whole(..));
            self.unlink(inner);
            if is_whole {
                self.release(inner, health, out);
            }
        }
        if let (Stage::Waiting(ended, _) | Stage::Whole(ended, _), false) = (entry.stage, entry.is_late) {
            out.push_back(ended);
        }
    }

    fn remove(&mut self, id: ExchangeId) -> Option<Entry> {
        let entry = self.all.remove(&id)?;
        self.answers_no_more(&entry, id);
        if let Some(client) = entry.client {
            take(&mut self.asking, client.pid, id);
            take(&mut self.guesses, client.pid, id);
        }
        if let Stage::Waiting(_, since) = entry.stage {
            self.waiting.remove(&(since, id));
        }
        if let Stage::Waiting(ended, since) | Stage::Whole(ended, since) = &entry.stage {
            self.events -= ended.exchange.content.len();
            self.whole.remove(&(*since, id));
        }
        if let Some(outer) = entry.link.and_then(|link| self.all.get_mut(&link.outer)) {
            outer.inner.retain(|inner| *inner != id);
        }
        Some(entry)
    }

    /// A request was read: the one in flight that it seems to belong to.
    pub(super) fn read(
        &mut self,
        id: ExchangeId,
        client: Option<Client>,
        sight: Sight,
    ) -> Option<ExchangeId> {
        self.see(id, client, sight);
        self.choose(id);
        Some(self.all.get(&id)?.link?.outer)
    }

    /// Whether an exchange seems to belong to another one, or did.
    pub(super) fn is_inner(&self, id: ExchangeId) -> bool {
        self.all.get(&id).is_some_and(|entry| entry.link.is_some() || entry.is_late)
    }

    /// The exchange that this one seems to belong to, of a chain the first.
    pub(super) fn outermost(&self, id: ExchangeId) -> Option<ExchangeId> {
        let outer = |id: &ExchangeId| Some(self.all.get(id)?.link?.outer);
        std::iter::successors(outer(&id), outer).take(CHAIN).last()
    }

    /// An exchange was answered, or never will be. Whether others belong to it. What is whole without it goes to
    /// `out`.
    pub(super) fn answered(
        &mut self,
        ended: &Exchange,
        health: &mut Health,
        out: &mut VecDeque<Box<Ended>>,
    ) -> bool {
        let Some((id, entry)) = ended.id.and_then(|id| Some((id, self.all.get(&id)?))) else { return false };
        let is_alone = entry.client.or(ended.client).is_none() && !self.asking.contains_key(&entry.pid);
        if is_alone {
            return false;
        }
        self.see(id, ended.client, ended.sight());
        let Some(entry) = self.all.get_mut(&id) else { return false };
        entry.is_answered = is_answered(ended.outcome);
        let former = entry.link.map(|link| link.outer);
        self.choose(id);
        let robbed = self.swap(id);
        for outer in former.into_iter().chain(robbed) {
            self.settle(outer, health, out);
        }
        self.all.get(&id).is_some_and(|entry| !entry.inner.is_empty())
    }

    fn answers_no_more(&mut self, entry: &Entry, id: ExchangeId) {
        let Some(of_process) = self.answering.get_mut(&entry.pid) else { return };
        take(of_process, entry.listener, id);
        if of_process.is_empty() {
            self.answering.remove(&entry.pid);
        }
    }

    fn see(&mut self, id: ExchangeId, client: Option<Client>, sight: Sight) {
        let Some(entry) = self.all.get_mut(&id) else { return };
        entry.sight = sight;
        if let Some(client) = client {
            if let Some(before) = entry.client.replace(client).filter(|before| before.pid != client.pid) {
                take(&mut self.asking, before.pid, id);
                if take(&mut self.guesses, before.pid, id) {
                    self.guesses.entry(client.pid).or_default().insert(id);
                }
            }
            self.asking.entry(client.pid).or_default().insert(id);
        }
    }

    /// Takes an exchange that is over, at `now`. What is complete by it goes to `out`.
    pub(super) fn over(
        &mut self,
        ended: Box<Ended>,
        now: u64,
        health: &mut Health,
        out: &mut VecDeque<Box<Ended>>,
    ) {
        let id = ended.exchange.id;
        let Some((id, entry)) = id.and_then(|id| self.all.get_mut(&id).map(|entry| (id, entry))) else {
            return out.push_back(ended);
        };
        self.events += ended.exchange.content.len();
        entry.stage = Stage::Waiting(ended, now);
        self.waiting.insert((now, id));
        self.settle(id, health, out);
        self.make_room(health, out);
    }

    /// The answer of an exchange that waits is with the client. False if it does not wait here.
    pub(super) fn delivered(&mut self, id: ExchangeId, delivery: Option<Delivery>) -> bool {
        let Some(entry) = self.all.get_mut(&id) else { return false };
        let (Stage::Waiting(ended, _) | Stage::Whole(ended, _)) = &mut entry.stage else { return false };
        ended.exchange.delivery = delivery;
        ended.exchange.awaits_delivery = false;
        true
    }

    /// Nothing more comes: everything that is over, with what is over of it.
    pub(super) fn end(&mut self, health: &mut Health, out: &mut VecDeque<Box<Ended>>) {
        self.tire(u64::MAX, health, out);
        let left: Vec<ExchangeId> = self.all.keys().copied().collect();
        for id in left {
            self.forget(id, health, out);
        }
    }

    /// An exchange that is over goes where it belongs, if nothing is missing of it.
    fn settle(&mut self, id: ExchangeId, health: &mut Health, out: &mut VecDeque<Box<Ended>>) {
        let mut id = id;
        while self.complete(id, health, out) {
            let link = self.all.get(&id).and_then(|entry| entry.link);
            let Some(outer) = link.map(|link| link.outer).filter(|outer| self.all.contains_key(outer)) else {
                return self.release(id, health, out);
            };
            id = outer;
        }
    }

    /// An exchange that is over with all that belongs to it, and belongs to none.
    fn release(&mut self, id: ExchangeId, health: &mut Health, out: &mut VecDeque<Box<Ended>>) {
        let Some(entry) = self.all.get(&id) else { return };
        if entry.is_late {
            health.ignore("nested_after_outer");
        } else if entry.client.is_some() && !entry.sight.probe {
            health.count("without_outer");
        }
        self.forget(id, health, out);
    }

    /// Joins an exchange that waits with what belongs to it, if all of that is over too. Whether it is whole by that.
    fn complete(&mut self, id: ExchangeId, health: &mut Health, out: &mut VecDeque<Box<Ended>>) -> bool {
        let is_whole = |id| self.all.get(id).is_none_or(|inner| matches!(inner.stage, Stage::Whole(..)));
        let ready = self.all.get(&id).filter(|entry| entry.inner.iter().all(is_whole));
        let Some(entry) = ready.filter(|entry| matches!(entry.stage, Stage::Waiting(..))) else {
            return false;
        };
        let is_self_made = self.is_self_made(entry);
        let (beyond, inner): (Vec<_>, Vec<_>) =
            entry.inner.iter().copied().partition(|inner| is_self_made || self.is_beyond(entry, *inner));
        for other in beyond {
            self.release(other, health, out);
        }
        let parts: Vec<Part> = inner.into_iter().filter_map(|inner| self.part(inner)).collect();
        for _ in &parts {
            health.count("nested");
        }
        let Some(entry) = self.all.get_mut(&id) else { return false };
        if let Stage::Waiting(ended, since) = std::mem::replace(&mut entry.stage, Stage::Open) {
            entry.stage = Stage::Whole(merge(ended, parts), since);
            self.waiting.remove(&(since, id));
            self.whole.insert((since, id));
        }
        true
    }

    /// Whether the answer of an outer exchange had begun before anything was asked for it: then what was asked later only
    /// interrupts it, as what watches over an engine's answers does, or a tool that the engine uses.
    fn is_self_made(&self, outer: &Entry) -> bool {
        let Stage::Waiting(ended, _) = &outer.stage else { return false };
        let begun = outer.inner.iter().filter_map(|inner| Some(self.all.get(inner)?.begun_ns)).min();
        ended.exchange.first_token_ns.zip(begun).is_some_and(|(first, begun)| first < begun)
    }

    /// Whether an exchange was answered at length when the one that it seemed to belong to had given its whole answer:
    /// then that needed nothing of it.
    fn is_beyond(&self, outer: &Entry, inner: ExchangeId) -> bool {
        let inner = self.all.get(&inner).filter(|inner| inner.is_answered && outer.is_answered);
        inner.is_some_and(|inner| outlasts(&outer.sight, &inner.sight))
    }

    fn part(&mut self, id: ExchangeId) -> Option<Part> {
        let entry = self.remove(id)?;
        let Stage::Whole(ended, _) = entry.stage else { return None };
        Some(Part { ended, certain: entry.link.is_some_and(|link| link.certain) })
    }
}

/// Takes an exchange from those under a key. Whether it was there.
fn take<K: Ord + Copy>(index: &mut BTreeMap<K, BTreeSet<ExchangeId>>, key: K, id: ExchangeId) -> bool {
    let Some(ids) = index.get_mut(&key) else { return false };
    let was_there = ids.remove(&id);
    if ids.is_empty() {
        index.remove(&key);
    }
    was_there
}

/// The answer came to its own end.
fn is_answered(outcome: Option<Outcome>) -> bool {
    !matches!(
        outcome,
        None | Some(Outcome::ClientDisconnect | Outcome::Truncated | Outcome::Timeout | Outcome::Unknown)
    )
}

#[cfg(test)]
mod tests;
