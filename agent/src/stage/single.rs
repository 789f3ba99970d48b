//! A simulated server of one thread: it reads, launches, waits and writes, one thing after the other.

use std::collections::VecDeque;

use super::simulator::{FRONT, Random, Request, Run, Step, US, exchange, marker, truth};
use crate::track::{ContentEvent, ExchangeId, ServiceId, Tracked};

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single {
    pub(super) seed: u64,
    pub(super) clients: usize,
    pub(super) requests: usize,
    /// Requests that run at a time.
    pub(super) batch: usize,
    /// The next step is launched before the last one's result is waited for.
    pub(super) ahead: bool,
    /// Prompts take up to this many steps.
    pub(super) chunks: u64,
    /// Percent of requests that stream.
    pub(super) streaming: u64,
    /// The last token has no text.
    pub(super) silent_end: bool,
}

pub(super) const SINGLE: Single = Single {
    seed: 3,
    clients: 8,
    requests: 400,
    batch: 1,
    ahead: false,
    chunks: 1,
    streaming: 100,
    silent_end: false,
};

struct Loop {
    plan: Single,
    random: Random,
    now: u64,
    /// When clients send their next request.
    clients: Vec<u64>,
    requests: Vec<Request>,
    waiting: VecDeque<usize>,
    running: Vec<usize>,
    steps: Vec<Step>,
    /// Launched and not waited for.
    pending: VecDeque<usize>,
    news: Vec<Tracked>,
}

/// Runs the plan to its end.
pub(super) fn simulate(plan: Single) -> Run {
    let mut server = Loop {
        plan,
        random: Random(plan.seed),
        now: 1_000_000_000,
        clients: (0..plan.clients as u64).map(|i| 1_000_000_000 + i * 300 * US).collect(),
        requests: Vec::new(),
        waiting: VecDeque::new(),
        running: Vec::new(),
        steps: Vec::new(),
        pending: VecDeque::new(),
        news: Vec::new(),
    };
    while server.turn() {}
    let requests = server.requests.iter().enumerate();
    let truth = requests.map(|(id, r)| (ExchangeId(id as u64), truth(r, &server.steps))).collect();
    Run { news: server.news, truth }
}

impl Loop {
    /// One turn of the loop; false when all is done.
    fn turn(&mut self) -> bool {
        self.poll();
        self.launch();
        if let Some(step) = self.pending.front().copied() {
            if self.plan.ahead && self.pending.len() == 1 && !self.running.is_empty() {
                self.launch();
            }
            self.pending.pop_front();
            self.wait(step);
            return true;
        }
        let next = self.clients.iter().min().copied();
        self.now = self.now.max(next.unwrap_or_default());
        next.is_some()
    }

    /// Reads what has come.
    fn poll(&mut self) {
        self.clients.sort_unstable();
        while self.clients.first().is_some_and(|t| *t <= self.now) {
            self.clients.remove(0);
            if self.requests.len() == self.plan.requests {
                continue;
            }
            self.now += 20 * US;
            let tokens = self.random.within([1, 24]);
            let request = Request {
                read: self.now,
                tokens,
                counted: tokens,
                abort_after: u64::MAX,
                chunks_left: self.random.within([1, self.plan.chunks]),
                streaming: self.random.within([0, 99]) < self.plan.streaming,
                ..Request::default()
            };
            let id = self.requests.len();
            self.requests.push(request);
            self.waiting.push_back(id);
            let exchange = ExchangeId(id as u64);
            self.news.push(Tracked::RequestRead {
                exchange,
                service: ServiceId(0),
                time_ns: self.now,
                tid: FRONT,
                client: None,
                sight: Box::default(),
            });
        }
    }

    fn launch(&mut self) {
        while self.running.len() < self.plan.batch
            && let Some(request) = self.waiting.pop_front()
        {
            self.running.push(request);
        }
        if self.running.is_empty() {
            return;
        }
        self.now += self.random.within([30, 100]) * US;
        let step = self.steps.len();
        let members = self.running.iter().map(|r| (*r, self.requests[*r].advance())).collect();
        self.running.iter().for_each(|r| self.requests[*r].steps.push(step));
        let requests = &self.requests;
        self.running.retain(|r| requests[*r].planned < requests[*r].tokens);
        self.steps.push(Step { begin: self.now, end: 0, members });
        self.pending.push_back(step);
    }

    fn wait(&mut self, step: usize) {
        let took = self.random.within([1_000, 6_000]) * US;
        let Step { begin, members, .. } = std::mem::take(&mut self.steps[step]);
        self.now += took;
        self.news.push(Tracked::Step { service: ServiceId(0), step: marker(FRONT, FRONT, begin, self.now) });
        self.steps[step] = Step { begin, end: self.now, members: members.clone() };
        for (request, _) in members.iter().filter(|m| m.1) {
            self.token(*request);
        }
    }

    fn token(&mut self, id: usize) {
        self.now += self.random.within([10, 40]) * US;
        let time_ns = self.now;
        let request = &mut self.requests[id];
        request.results += 1;
        let over = request.results == request.tokens;
        if !(over && self.plan.silent_end) {
            request.writes.push(time_ns);
            if request.streaming {
                let event = ContentEvent { time_ns, tid: FRONT };
                self.news.push(Tracked::Content { exchange: ExchangeId(id as u64), event });
            }
        }
        if over {
            self.now += 15 * US;
            let exchange = exchange(id, &self.requests[id], self.now);
            self.news.push(Tracked::Finished(Box::new(exchange)));
            let think = self.random.within([0, 2_000]) * US;
            self.clients.push(self.now + think);
        }
    }
}
