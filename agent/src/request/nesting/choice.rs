//! Which outer exchange an inner one belongs to.

use std::cmp::Reverse;

use super::{Entry, Link, Nesting, Stage, fit::Fit, take};
use crate::track::{Client, ExchangeId};

/// Exchanges that are looked at for one, newest first, of each listener of a process.
const CANDIDATES: usize = 256;

impl Nesting {
    /// Chooses what an exchange belongs to, as far as that is not certain yet.
    pub(super) fn choose(&mut self, id: ExchangeId) {
        let Some((entry, client)) = self.all.get(&id).and_then(|e| e.client.map(|client| (e, client))) else {
            return;
        };
        let before = entry.link;
        if before.is_some_and(|link| link.certain) || entry.is_late {
            return;
        }
        let mut fits: Vec<(Fit, Reverse<ExchangeId>)> =
            self.candidates(id, entry, client).map(|(outer, fit)| (fit, Reverse(outer))).collect();
        fits.sort_unstable();
        let link = fits.last().map(|(best, outer)| {
            let choices = before.map_or(fits.len(), |link| link.choices.max(fits.len()));
            let rival = fits.iter().rev().nth(1);
            let is_clear = rival.is_none_or(|(rival, _)| rival.strong < best.strong);
            // One that is gone could have been it.
            let is_complete = choices == fits.len() || best.is_identity();
            let certain = is_clear && is_complete && best.is_likely();
            Link { outer: outer.0, certain, is_identity: best.is_identity(), choices }
        });
        self.link(id, link);
    }

    fn link(&mut self, id: ExchangeId, link: Option<Link>) {
        let Some(entry) = self.all.get_mut(&id) else { return };
        let before = std::mem::replace(&mut entry.link, link);
        if let Some(outer) = before.and_then(|link| self.all.get_mut(&link.outer)) {
            outer.inner.retain(|inner| *inner != id);
        }
        if let Some(outer) = link.and_then(|link| self.all.get_mut(&link.outer)) {
            outer.inner.push(id);
        }
        self.note_guess(id, link);
    }

    /// What it belonged to is no more, or is said to be none of it.
    pub(super) fn unlink(&mut self, id: ExchangeId) {
        if let Some(entry) = self.all.get_mut(&id) {
            entry.link = None;
        }
        self.note_guess(id, None);
    }

    fn note_guess(&mut self, id: ExchangeId, link: Option<Link>) {
        let Some(client) = self.all.get(&id).and_then(|entry| entry.client) else { return };
        if link.is_some_and(|link| !link.certain) {
            self.guesses.entry(client.pid).or_default().insert(id);
        } else {
            take(&mut self.guesses, client.pid, id);
        }
    }

    /// What an exchange could belong to, and how well it fits.
    fn candidates<'a>(
        &'a self,
        id: ExchangeId,
        inner: &'a Entry,
        client: Client,
    ) -> impl Iterator<Item = (ExchangeId, Fit)> + 'a {
        // Of each listener but the one where it was accepted itself, see `may_belong`: a server with thousands of requests of
        // its own to itself would be looked through for each of them.
        let others = self.answering.get(&client.pid).into_iter().flatten();
        let others = others.filter(move |(listener, _)| listener.is_none() || **listener != inner.listener);
        let outer = others.flat_map(move |(_, ids)| ids.range(..id).rev().take(CANDIDATES));
        let outer = outer.filter_map(|id| self.all.get(id).map(|entry| (*id, entry)));
        let possible = outer
            .filter(move |(_, outer)| !matches!(outer.stage, Stage::Whole(..)) && may_belong(inner, outer));
        possible.map(move |(outer, entry)| {
            let is_free = entry.inner.iter().all(|other| *other == id);
            (outer, Fit::of(&entry.sight, &inner.sight, client, is_free, entry.is_answered))
        })
    }

    /// An answer is over: what belongs to another one in flight may fit it better than what belongs to it. That other
    /// one, if so.
    pub(super) fn swap(&mut self, id: ExchangeId) -> Option<ExchangeId> {
        let outer = self.all.get(&id)?;
        let own = outer.inner.iter().find(|inner| self.is_guess(**inner)).copied();
        if own.is_none() && !outer.inner.is_empty() {
            return None;
        }
        let fit = |inner: ExchangeId, outer: &Entry| {
            let entry = self.all.get(&inner).filter(|inner| may_belong(inner, outer))?;
            Some(Fit::of(&outer.sight, &entry.sight, entry.client?, true, outer.is_answered))
        };
        let guesses = self.guesses.get(&outer.pid).into_iter().flat_map(|ids| ids.range(id..).rev());
        let guesses = guesses.take(CANDIDATES);
        let whole = guesses.filter(|inner| matches!(self.all[*inner].stage, Stage::Whole(..)));
        let best = whole.filter_map(|inner| Some((fit(*inner, outer)?, *inner))).max();
        let ((best, inner), now) = (best?, own.and_then(|own| fit(own, outer)));
        let link = self.all[&inner].link.filter(|link| link.outer != id)?;
        let there = self.all.get(&link.outer).and_then(|other| fit(inner, other));
        if now.is_some_and(|now| now >= best) || there.is_some_and(|there| there >= best) {
            return None;
        }
        self.link(inner, Some(Link { outer: id, is_identity: best.is_identity(), ..link }));
        if let Some(own) = own {
            self.give(own, link.outer);
        }
        Some(link.outer)
    }

    /// Gives a guess to an outer exchange that has lost its own, if it can be of that one.
    fn give(&mut self, id: ExchangeId, outer: ExchangeId) {
        let (Some(entry), Some(other)) = (self.all.get(&id), self.all.get(&outer)) else { return };
        if outer < id && may_belong(entry, other) {
            let before = entry.link;
            self.link(id, before.map(|before| Link { outer, ..before }));
        } else {
            self.choose(id);
        }
    }

    fn is_guess(&self, inner: ExchangeId) -> bool {
        self.all.get(&inner).and_then(|entry| entry.link).is_some_and(|link| !link.certain)
    }
}

/// Whether the one began within the other. A proxy's own probe is no part of what it is asked, nor is a request of a
/// probe. Nothing hands requests on to where it has them from: a server that asks itself is a client like others.
fn may_belong(inner: &Entry, outer: &Entry) -> bool {
    let is_itself = inner.sight.listener.is_some() && inner.sight.listener == outer.sight.listener;
    outer.begun_ns <= inner.begun_ns && inner.sight.probe == outer.sight.probe && !is_itself
}
