//! Continuous batching: which requests are in the next step.
//!
//! First come, first served, up to a number of requests and a number of tokens a step. Steps are planned ahead of
//! the results of those in flight (a request's next token is scheduled before its last one is known), so a plan
//! depends on counts only.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::step::Job;

/// One request's share of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// The request.
    pub(crate) id: u64,
    /// Prompt tokens computed in this step; 0 when it decodes.
    pub(crate) prefill: u32,
    /// Index of the token that it gets; none before the end of its prompt.
    pub(crate) token: Option<u32>,
    /// Whether this is its first step.
    pub(crate) first: bool,
    /// Whether this is its last step.
    pub(crate) last: bool,
}

/// A step to launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The requests in it; never empty.
    pub(crate) members: Vec<Member>,
}

impl Plan {
    /// Prompt tokens in the step.
    pub(crate) fn prefill_tokens(&self) -> u32 {
        self.members.iter().map(|member| member.prefill).sum()
    }

    /// How many requests decode in it.
    pub(crate) fn decoding(&self) -> usize {
        self.members.iter().filter(|member| member.prefill == 0).count()
    }
}

/// A request that waits or runs.
#[derive(Debug)]
struct Request {
    job: Job,
    /// Tokens to compute before it gets its next one: the prompt, and once preempted what it has had besides.
    prompt: u32,
    prefilled: u32,
    tokens: u32,
    preempted: bool,
}

impl Request {
    fn new(job: Job) -> Self {
        let prompt = job.input_tokens;
        Self { job, prompt, prefilled: 0, tokens: 0, preempted: false }
    }

    /// All its tokens are planned: it waits for results only.
    fn done(&self) -> bool {
        self.tokens == self.job.output_tokens
    }

    /// Tokens whose keys and values it holds after its next step.
    fn room(&self) -> u32 {
        self.job.input_tokens.saturating_add(self.tokens).saturating_add(1)
    }

    /// Gives up what was computed, to compute it again later.
    fn preempt(self) -> Self {
        Self { prompt: self.job.input_tokens + self.tokens, prefilled: 0, preempted: true, ..self }
    }

    /// Takes at most `budget` tokens of work.
    fn advance(&mut self, budget: u32) -> Option<Member> {
        let left = self.prompt - self.prefilled;
        let prefill = left.min(budget);
        let complete = prefill == left;
        if budget == 0 || self.done() {
            return None;
        }
        let first = self.prefilled == 0 && !self.preempted;
        self.prefilled += prefill;
        let token = complete.then_some(self.tokens);
        self.tokens += u32::from(complete);
        let last = self.tokens == self.job.output_tokens;
        Some(Member { id: self.job.id, prefill, token, first, last })
    }
}

/// The queue and the running requests.
#[derive(Debug)]
pub(crate) struct Scheduler {
    waiting: VecDeque<Request>,
    running: Vec<Request>,
    max_batch: usize,
    step_tokens: u32,
    room: u32,
}

impl Scheduler {
    /// At most `max_batch` requests run; a step computes at most `step_tokens` tokens.
    pub(crate) fn new(max_batch: usize, step_tokens: u32) -> Self {
        Self { waiting: VecDeque::new(), running: Vec::new(), max_batch, step_tokens, room: u32::MAX }
    }

    /// From now on running requests hold at most `room` tokens together; 0 sets no limit. Where they come to need more,
    /// the one that came last is preempted: it goes back to the head of the queue and prefills again.
    pub(crate) fn hold_at_most(&mut self, room: u32) {
        self.room = if room == 0 { u32::MAX } else { room };
    }

    /// Queues a request (with 1 or more tokens each way).
    pub(crate) fn submit(&mut self, job: Job) {
        self.waiting.push_back(Request::new(job));
    }

    /// The request with this number.
    pub(crate) fn job(&self, id: u64) -> Option<&Job> {
        self.running.iter().chain(&self.waiting).map(|request| &request.job).find(|job| job.id == id)
    }

    /// Whether no request is queued or running.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Forgets a request: cancelled, or its last result arrived.
    pub(crate) fn remove(&mut self, id: u64) {
        self.waiting.retain(|waiting| waiting.job.id != id);
        self.running.retain(|running| running.job.id != id);
    }

    /// The next step: one token for each running request, then prompts in order of arrival as far as the budget goes.
    pub(crate) fn plan(&mut self) -> Option<Plan> {
        self.make_room();
        let mut budget = self.step_tokens;
        let mut members = Vec::new();
        // Whoever decodes goes first: a long prompt must not stop the others' tokens.
        for decoding in [true, false] {
            for running in &mut self.running {
                if decoding == (running.prefilled == running.prompt) {
                    take(running, &mut budget, &mut members);
                }
            }
        }
        while budget > 0 && self.running.len() < self.max_batch {
            let free = self.free();
            let Some(mut running) = self.waiting.pop_front_if(|next| next.room() <= free) else { break };
            take(&mut running, &mut budget, &mut members);
            self.running.push(running);
        }
        (!members.is_empty()).then_some(Plan { members })
    }

    fn held(&self) -> u32 {
        self.running.iter().map(Request::room).fold(0, u32::saturating_add)
    }

    /// Tokens that there is room for; a single request always runs.
    fn free(&self) -> u32 {
        if self.running.is_empty() { u32::MAX } else { self.room.saturating_sub(self.held()) }
    }

    /// Preempts those that came last, as long as the others' next tokens have no room.
    fn make_room(&mut self) {
        while self.running.len() > 1 && self.held() > self.room {
            let Some(last) = self.running.iter().rposition(|running| !running.done()) else { return };
            let preempted = self.running.remove(last).preempt();
            self.waiting.push_front(preempted);
        }
    }
}

fn take(running: &mut Request, budget: &mut u32, members: &mut Vec<Member>) {
    if let Some(member) = running.advance(*budget) {
        *budget -= member.prefill.max(1);
        members.push(member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64, input_tokens: u32, output_tokens: u32) -> Job {
        Job { id, model: String::new(), input_tokens, output_tokens, seed: 0, read_ns: 0 }
    }

    /// Each step as `id:prefill:token` words, until there is none; last results free their place at once.
    fn steps(scheduler: &mut Scheduler) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(plan) = scheduler.plan() {
            all.push(show(&plan));
            plan.members.iter().filter(|member| member.last).for_each(|member| scheduler.remove(member.id));
        }
        all
    }

    fn show(plan: &Plan) -> String {
        let word = |member: &Member| {
            let token = member.token.map_or("-".into(), |token| token.to_string());
            let (first, last) = (if member.first { "^" } else { "" }, if member.last { "$" } else { "" });
            format!("{first}{}:{}:{token}{last}", member.id, member.prefill)
        };
        plan.members.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn requests_go_through_steps_in_order() {
        // (max batch, step tokens, jobs as (input, output), steps)
        type Case = (usize, u32, &'static [(u32, u32)], &'static [&'static str]);
        let cases: &[Case] = &[
            (4, 100, &[], &[]),
            (4, 100, &[(5, 1)], &["^1:5:0$"]),
            (4, 100, &[(5, 3)], &["^1:5:0", "1:0:1", "1:0:2$"]),
            (4, 100, &[(5, 2), (7, 2)], &["^1:5:0 ^2:7:0", "1:0:1$ 2:0:1$"]),
            (1, 100, &[(5, 2), (7, 1)], &["^1:5:0", "1:0:1$", "^2:7:0$"]),
            (4, 10, &[(25, 2)], &["^1:10:-", "1:10:-", "1:5:0", "1:0:1$"]),
            (4, 10, &[(8, 2), (8, 1)], &["^1:8:0 ^2:2:-", "1:0:1$ 2:6:0$"]),
            (4, 10, &[(10, 2), (15, 1)], &["^1:10:0", "1:0:1$ ^2:9:-", "2:6:0$"]),
        ];
        for &(max_batch, step_tokens, jobs, expected) in cases {
            let mut scheduler = Scheduler::new(max_batch, step_tokens);
            for (id, &(input, output)) in (1..).zip(jobs) {
                scheduler.submit(job(id, input, output));
            }
            assert_eq!(steps(&mut scheduler), expected, "{jobs:?}");
        }
    }

    #[test]
    fn a_place_is_free_only_when_the_last_result_is_there() {
        let mut scheduler = Scheduler::new(1, 100);
        scheduler.submit(job(1, 4, 1));
        scheduler.submit(job(2, 4, 1));
        assert_eq!(scheduler.plan().map(|plan| show(&plan)).as_deref(), Some("^1:4:0$"));
        assert_eq!(scheduler.plan(), None);
        scheduler.remove(1);
        assert_eq!(scheduler.plan().map(|plan| show(&plan)).as_deref(), Some("^2:4:0$"));
    }

    #[test]
    fn who_came_last_is_preempted_and_prefills_again() {
        let mut scheduler = Scheduler::new(4, 100);
        scheduler.hold_at_most(14);
        (1..=2).for_each(|id| scheduler.submit(job(id, 4, 4)));
        let expected = ["^1:4:0 ^2:4:0", "1:0:1 2:0:1", "1:0:2 2:0:2", "1:0:3$", "2:7:3$"];
        assert_eq!(steps(&mut scheduler), expected);
        (3..=4).for_each(|id| scheduler.submit(job(id, 20, 2)));
        assert_eq!(
            steps(&mut scheduler),
            ["^3:20:0", "3:0:1$", "^4:20:0", "4:0:1$"],
            "one at a time always runs"
        );
    }

    #[test]
    fn cancelled_requests_leave_queue_and_batch() {
        let mut scheduler = Scheduler::new(2, 100);
        (1..=4).for_each(|id| scheduler.submit(job(id, 4, 9)));
        scheduler.plan();
        scheduler.remove(1);
        scheduler.remove(3);
        assert_eq!(scheduler.plan().map(|plan| show(&plan)).as_deref(), Some("2:0:1 ^4:4:0"));
        assert!(scheduler.job(1).is_none() && scheduler.job(4).is_some());
    }

    #[test]
    fn a_step_is_prefill_decode_or_both() {
        let mut scheduler = Scheduler::new(4, 100);
        scheduler.submit(job(1, 4, 9));
        let plan = scheduler.plan().unwrap();
        assert_eq!((plan.prefill_tokens(), plan.decoding()), (4, 0));
        scheduler.submit(job(2, 6, 9));
        let plan = scheduler.plan().unwrap();
        assert_eq!((plan.prefill_tokens(), plan.decoding()), (6, 1));
        let plan = scheduler.plan().unwrap();
        assert_eq!((plan.prefill_tokens(), plan.decoding()), (0, 2));
    }
}
