//! How much more a model can take: latency and throughput by concurrency, and where the one takes off and the other stops.
//!
//! | module | knows |
//! |---|---|
//! | [`timeline`] | how many requests were in flight when |
//! | [`curve`] | what throughput and latency were at each concurrency |
//! | [`fit`] | the knee of a curve, if it has one |
//! | [`batch`] | what a request in a step costs |
//! | [`scissors`] | when p99 took off while throughput did not |
//!
//! Everything is measured on finished requests. Concurrency is that of the service's own requests in flight, from their
//! first byte to their last; a request counts for a part of its life in each moment of it, so that throughput and
//! concurrency are of the same moment (Little's law holds by construction). Where the traffic does not show a number,
//! a [`Refusal`] says why, and there is none.

mod batch;
mod curve;
mod fit;
mod scissors;
mod timeline;

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

pub use batch::Batching;
pub use curve::Point;
pub use fit::{Knee, Method, Refusal};
pub use scissors::Opening;

use self::{batch::Steps, curve::Curve, scissors::Minutes, timeline::Timeline};
use super::watch::Subject;
use crate::request::{RequestRecord, StepRecord};

/// Models of services that are kept.
const MAX_SUBJECTS: usize = 64;
/// Parts of the time that is kept.
const EPOCHS: usize = 6;
/// Length of one.
pub const EPOCH_NS: u64 = 600_000_000_000;
/// Part of the knee at which an alarm should be.
const ALARM: f64 = 0.8;

/// What is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Question {
    /// Only so far back, ns, rounded up to ten minutes; 0 is all that is kept, an hour.
    pub window_ns: u64,
    /// Time to first token that 99 of 100 requests must keep, seconds.
    pub ttft_slo_s: Option<f64>,
    /// Time between tokens that steps must keep, seconds.
    pub tbt_slo_s: Option<f64>,
}

/// What a model of a service can take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Its service.
    pub service: String,
    /// The model; empty where requests name none.
    pub model: String,
    /// Finished requests behind this.
    pub requests: u64,
    /// Time in which any were in flight, seconds.
    pub busy_s: f64,
    /// By concurrency, the lowest first.
    pub points: Vec<Point>,
    /// Where throughput stops growing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knee: Option<Knee>,
    /// Requests in flight up to which latency is that of work and not of waiting: the knee, or what keeps the asked-for
    /// time to first token if that is less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggested_concurrency: Option<f64>,
    /// Requests in flight at which to raise an alarm: four fifths of the knee.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarm_concurrency: Option<f64>,
    /// The most at which 99 of 100 requests kept the asked-for time to first token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slo_concurrency: Option<f64>,
    /// Why there is no knee, in a word and a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// What a request in a step costs; of the whole service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Batching>,
    /// When p99 took off while throughput did not, oldest first.
    pub scissors: Vec<Opening>,
    /// Requests that were longer than times are kept: concurrency before them is too low by as much.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub too_long: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What is kept of one model of a service.
#[derive(Clone, Debug, Default)]
struct Kept {
    timeline: Timeline,
    /// Newest last, with the number of the epoch.
    epochs: VecDeque<(u64, Curve)>,
    minutes: Minutes,
    last_ns: u64,
}

/// What is kept of all models.
#[derive(Clone, Debug, Default)]
pub struct Capacity {
    kept: BTreeMap<Subject, Kept>,
    /// By service.
    steps: BTreeMap<String, Steps>,
    limits: Limits,
}

/// What was not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Requests of models beyond those that are kept.
    pub models: u64,
    /// Requests of which a part came too late, or that there was no room for.
    pub requests: u64,
}

impl Capacity {
    /// Takes a request that is over.
    pub fn request(&mut self, record: &RequestRecord) {
        let (Some(begin), Some(end)) = (record.t_first_byte_in_ns, record.t_last_byte_out_ns) else { return };
        let model = record.model.clone().unwrap_or_default();
        let subject = Subject { service: record.service.clone(), model: Some(model) };
        if !self.make_room(&subject, end) {
            self.limits.models += 1;
            return;
        }
        let kept = self.kept.entry(subject).or_default();
        kept.last_ns = kept.last_ns.max(end);
        let request = timeline::Request::of(record, [begin, end]);
        kept.minutes.request(end, request.e2e_s);
        if !kept.timeline.request(&request) {
            self.limits.requests += 1;
        }
    }

    /// Takes a step that is over in every sense.
    pub fn step(&mut self, step: &StepRecord) {
        if self.steps.len() < MAX_SUBJECTS || self.steps.contains_key(&step.service) {
            self.steps.entry(step.service.clone()).or_default().add(step);
        }
    }

    /// Room is made by forgetting what has been without requests for longest, if that is an hour.
    fn make_room(&mut self, subject: &Subject, now_ns: u64) -> bool {
        if self.kept.len() < MAX_SUBJECTS || self.kept.contains_key(subject) {
            return true;
        }
        let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.last_ns);
        let Some((oldest, _)) = oldest.filter(|(_, kept)| is_over(kept.last_ns, now_ns)) else {
            return false;
        };
        let oldest = oldest.clone();
        self.kept.remove(&oldest);
        true
    }

    /// What was not kept.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Lets time go on.
    pub fn pass(&mut self, now_ns: u64) {
        for kept in self.kept.values_mut() {
            kept.pass(now_ns);
        }
        let services: Vec<&str> = self.kept.keys().map(|subject| subject.service.as_str()).collect();
        self.steps.retain(|service, _| services.contains(&service.as_str()));
    }

    /// What is known of each model that has requests, by service and model.
    pub fn told(&self, question: Question, now_ns: u64, wall: impl Fn(u64) -> Option<u64>) -> Vec<Told> {
        self.kept.iter().map(|(subject, kept)| self.of(subject, kept, question, now_ns, &wall)).collect()
    }

    fn of(
        &self,
        subject: &Subject,
        kept: &Kept,
        question: Question,
        now_ns: u64,
        wall: &impl Fn(u64) -> Option<u64>,
    ) -> Told {
        let window = if question.window_ns == 0 { u64::MAX } else { question.window_ns };
        let first = now_ns.saturating_sub(window) / EPOCH_NS;
        let mut curve = Curve::default();
        kept.epochs.iter().filter(|(number, _)| *number >= first).for_each(|(_, part)| curve.merge(part));
        let mut told = judge(&curve, question.ttft_slo_s);
        let steps = self.steps.get(&subject.service);
        told.batch = steps.and_then(|steps| steps.cost(question.tbt_slo_s));
        told.scissors = kept.minutes.openings(wall);
        told.too_long = kept.timeline.too_long;
        Told { service: subject.service.clone(), model: subject.model.clone().unwrap_or_default(), ..told }
    }
}

fn is_over(last_ns: u64, now_ns: u64) -> bool {
    now_ns > last_ns.saturating_add(EPOCH_NS * EPOCHS as u64)
}

impl Kept {
    fn pass(&mut self, now_ns: u64) {
        let epochs = &mut self.epochs;
        self.timeline.pass(now_ns, |at_ns, settled| {
            let number = at_ns / EPOCH_NS;
            if epochs.back().is_none_or(|(newest, _)| *newest < number) {
                epochs.push_back((number, Curve::default()));
            }
            if let Some((_, curve)) = epochs.back_mut() {
                curve.add(settled);
            }
        });
        self.minutes.pass(now_ns);
        let oldest = (now_ns / EPOCH_NS).saturating_sub(EPOCHS as u64 - 1);
        while self.epochs.front().is_some_and(|(number, _)| *number < oldest) {
            self.epochs.pop_front();
        }
    }
}

/// What a curve says.
fn judge(curve: &Curve, ttft_slo_s: Option<f64>) -> Told {
    let points = curve.points();
    let found = fit::knee(&points, curve.requests());
    let slo = ttft_slo_s.and_then(|slo| within(&points, slo));
    let knee = found.as_ref().ok().cloned();
    let at = knee.as_ref().map(|knee| knee.concurrency);
    Told {
        requests: curve.requests(),
        busy_s: curve.seconds(),
        // A limit that nothing is known to keep leaves nothing to suggest.
        suggested_concurrency: at
            .and_then(|at| if ttft_slo_s.is_some() { slo.map(|slo| slo.min(at)) } else { Some(at) }),
        alarm_concurrency: at.map(|at| at * ALARM),
        slo_concurrency: slo,
        refusal: found.err(),
        knee,
        points,
        ..Told::default()
    }
}

/// The highest concurrency up to which the time to first token was within the limit, in every point with enough of it.
fn within(points: &[Point], slo_s: f64) -> Option<f64> {
    const ENOUGH: u64 = 20;
    let known = points.iter().filter_map(|point| Some((point.concurrency, point.ttft_s?)));
    let kept = known.filter(|(_, ttft)| ttft.count >= ENOUGH).take_while(|(_, ttft)| ttft.p99 <= slo_s);
    kept.last().map(|(concurrency, _)| concurrency)
}

#[cfg(test)]
mod tests;
