//! How a finding lives: it opens once its fingerprint has held for a while, stays while less of it is there, and closes
//! after a while without. One that comes back soon is the same one.

use std::collections::{BTreeMap, VecDeque};

use super::{
    baseline::Basis,
    case::{Effect, Sign},
    changes::{Change, Changes},
    finding::{Finding, Kind, Likelihood, SlowRequest, State},
    rules::Rule,
};
use crate::health::Health;

/// A fingerprint that holds for so long opens a finding.
const OPENS_NS: u64 = 8_000_000_000;
/// One that has not held for so long closes it.
const CLOSES_NS: u64 = 20_000_000_000;
/// One that comes back within this of its close is open again.
const REOPENS_NS: u64 = 120_000_000_000;
/// Findings that are kept, and those that go on at once.
const KEPT: usize = 256;
/// Changes within this before a finding are told with it: what takes longer to tell is in the time line.
const CHANGES_NS: u64 = 900_000_000_000;
/// Requests told with a finding.
const REQUESTS: usize = 3;

/// Whose a finding is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    pub(super) service: String,
    /// Of one model; `None` for the whole service.
    pub(super) model: Option<String>,
}

/// Both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) mono_ns: u64,
    /// 0 where it is not known.
    pub(super) wall_ns: u64,
}

/// What goes with a look at one subject.
#[derive(Debug)]
pub(super) struct Look<'a> {
    pub(super) subject: &'a Subject,
    pub(super) now: Now,
    pub(super) basis: Option<Basis>,
    /// What there is to explain, seconds on average.
    pub(super) added_s: f64,
    pub(super) incomplete: &'a [String],
    /// Slow requests, the slowest first.
    pub(super) slow: &'a [SlowRequest],
    pub(super) changes: &'a Changes,
}

#[derive(Clone, Debug)]
struct Held {
    finding: Option<Finding>,
    since: Now,
    last_ns: u64,
    closed_ns: Option<u64>,
}

/// All findings.
#[derive(Debug, Default)]
pub(super) struct Findings {
    held: BTreeMap<(&'static str, Subject), Held>,
    /// Closed ones, oldest first.
    closed: VecDeque<Finding>,
    last_id: u64,
}

impl Findings {
    /// Whether this rule's finding on the subject goes on.
    pub(super) fn is_open(&self, rule: &Rule, subject: &Subject) -> bool {
        let held = self.held.get(&(rule.name, subject.clone()));
        held.is_some_and(|held| held.finding.is_some() && held.closed_ns.is_none())
    }

    /// Whether any does, since when at most (`CLOCK_MONOTONIC`), whatever the rule.
    pub(super) fn oldest(&self, subject: &Subject) -> Option<u64> {
        let of = self.held.iter().filter(|((_, whose), held)| {
            whose.service == subject.service
                && held.closed_ns.is_none()
                && held.finding.as_ref().is_none_or(|finding| finding.kind != Kind::Blindness)
        });
        of.map(|(_, held)| held.since.mono_ns).min()
    }

    /// Takes what a rule says of a subject now.
    pub(super) fn look(
        &mut self,
        rule: &'static Rule,
        sign: Option<Sign>,
        look: &Look<'_>,
        health: &mut Health,
    ) {
        let key = (rule.name, look.subject.clone());
        let now_ns = look.now.mono_ns;
        match sign {
            Some(sign) => {
                if self.held.len() >= KEPT && !self.held.contains_key(&key) {
                    return health.limit("findings");
                }
                let fresh = Held { finding: None, since: look.now, last_ns: now_ns, closed_ns: None };
                let held = self.held.entry(key).or_insert(fresh);
                (held.last_ns, held.closed_ns) = (now_ns, None);
                let holds = now_ns.saturating_sub(held.since.mono_ns) >= OPENS_NS || rule.immediate;
                if held.finding.is_none() && !holds {
                    return;
                }
                if held.finding.is_none() {
                    self.last_id += 1;
                }
                let before = held.finding.take();
                held.finding = Some(tell(rule, sign, look, held.since, before.as_ref(), self.last_id));
            }
            None => self.absent(&key, look.now),
        }
    }

    fn absent(&mut self, key: &(&'static str, Subject), now: Now) {
        let Some(held) = self.held.get_mut(key) else { return };
        let silent_ns = now.mono_ns.saturating_sub(held.last_ns);
        match (&mut held.finding, held.closed_ns) {
            // It never opened: what comes next begins anew.
            (None, _) => {
                self.held.remove(key);
            }
            (Some(finding), None) if silent_ns >= CLOSES_NS => {
                held.closed_ns = Some(now.mono_ns);
                finding.state = State::Closed;
                finding.closed_ns = Some(now.wall_ns);
            }
            (Some(_), Some(closed)) if now.mono_ns.saturating_sub(closed) >= REOPENS_NS => {
                let over = self.held.remove(key).and_then(|held| held.finding);
                self.keep(over);
            }
            _ => {}
        }
    }

    fn keep(&mut self, over: Option<Finding>) {
        if self.closed.len() == KEPT {
            self.closed.pop_front();
        }
        self.closed.extend(over);
    }

    /// There is nothing to look at now: what is open goes out.
    pub(super) fn quiet(&mut self, subject: &Subject, now: Now) {
        let of: Vec<_> = self.held.keys().filter(|(_, whose)| whose == subject).cloned().collect();
        for key in &of {
            self.absent(key, now);
        }
    }

    /// Nothing more will be looked at of this service: its findings are over.
    pub(super) fn forget(&mut self, service: &str, now: Now) {
        let gone: Vec<_> = self.held.keys().filter(|(_, of)| of.service == service).cloned().collect();
        for key in gone {
            let over = self.held.remove(&key).and_then(|held| held.finding).map(|mut finding| {
                finding.state = State::Closed;
                finding.closed_ns.get_or_insert(now.wall_ns);
                finding
            });
            self.keep(over);
        }
    }

    /// All that are known: those that go on first, what explains most before the rest; then the others, newest first.
    pub(super) fn list(&self) -> Vec<Finding> {
        let told = self.held.values().filter_map(|held| held.finding.as_ref());
        let mut all: Vec<Finding> = told.chain(&self.closed).cloned().collect();
        all.sort_by(|a, b| {
            let closed = |finding: &Finding| finding.state == State::Closed;
            let newest = if closed(a) { b.opened_ns.cmp(&a.opened_ns) } else { b.score.total_cmp(&a.score) };
            closed(a).cmp(&closed(b)).then(newest).then(a.id.cmp(&b.id))
        });
        all
    }
}

fn tell(rule: &Rule, sign: Sign, look: &Look<'_>, since: Now, before: Option<&Finding>, id: u64) -> Finding {
    let (explains_s, explains_ratio) = match sign.effect {
        Effect::Seconds(s) => (Some(s), (look.added_s > 0.0).then(|| (s / look.added_s).clamp(0.0, 1.0))),
        Effect::Share(_) => (None, None),
    };
    let from_ns = since.wall_ns.saturating_sub(CHANGES_NS);
    let changes: Vec<Change> = match before {
        Some(before) => before.changes.clone(),
        None => look.changes.before(&look.subject.service, from_ns, look.now.wall_ns),
    };
    Finding {
        id: before.map_or(id, |before| before.id),
        rule: rule.name.to_owned(),
        kind: rule.kind,
        service: Some(look.subject.service.clone()),
        model_name: look.subject.model.clone(),
        state: State::Active,
        score: score(rule, &sign, explains_ratio),
        summary: sign.summary,
        evidence: sign.evidence,
        confidence: sign.confidence,
        incomplete: look.incomplete.to_vec(),
        explains_s,
        explains_ratio,
        basis: look.basis,
        next: rule.next.to_owned(),
        changes,
        requests: look.slow.iter().take(REQUESTS).cloned().collect(),
        opened_ns: since.wall_ns,
        last_ns: look.now.wall_ns,
        closed_ns: None,
    }
}

/// Causes come before what follows from them, and what is sure before what is likely.
fn score(rule: &Rule, sign: &Sign, explains: Option<f64>) -> f64 {
    let part = match sign.effect {
        // Where requests are no slower, a cause that was seen still counts for something.
        Effect::Seconds(_) => explains.unwrap_or(0.0).max(0.05),
        Effect::Share(share) => share.clamp(0.05, 1.0),
    };
    let sure = match sign.confidence {
        Likelihood::High => 1.0,
        Likelihood::Medium => 0.85,
        Likelihood::Low => 0.5,
    };
    let kind = match rule.kind {
        Kind::Cause => 1.0,
        Kind::Symptom => 0.5,
        Kind::Blindness => 0.2,
    };
    part * sure * kind
}
