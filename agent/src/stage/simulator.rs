//! A small inference server that exists only as numbers: it gives the tracker's values and the truth behind them.

mod values;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

use crate::track::{ContentEvent, ExchangeId, ServiceId, Tracked};

pub(super) use values::{exchange, marker, truth};

pub(super) const US: u64 = 1_000;
pub(super) const FRONT: u32 = 1;
const ENGINE: u32 = 10;

/// How results get from the engine to the sockets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Front {
    /// One loop that takes message after message: a latency per message, a cost per token, now and then a pause.
    Loop { message_us: [u64; 2], token_us: u64, pause_us: u64 },
    /// Each token by itself, early ones being the likelier.
    Spread { lag_us: [u64; 2] },
}

/// What is simulated: a closed loop of clients on an engine with continuous batching.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) clients: usize,
    pub(super) requests: usize,
    /// Steps in flight.
    pub(super) depth: usize,
    pub(super) max_batch: usize,
    pub(super) step_us: [u64; 2],
    pub(super) prefill_us: [u64; 2],
    /// Prompts take up to this many steps.
    pub(super) chunks: u64,
    /// Prefills run in steps of their own.
    pub(super) exclusive: bool,
    pub(super) tokens: [u64; 2],
    /// Percent of requests that stream.
    pub(super) streaming: u64,
    pub(super) think_us: u64,
    pub(super) front: Front,
    /// The last token has no text, so no event.
    pub(super) silent_end: bool,
    /// A step gives one event of up to this many tokens.
    pub(super) burst: u64,
    /// Percent of requests whose client leaves early; the engine never learns of it.
    pub(super) abort: u64,
    /// Steps of a thousand before which a running request is preempted: it prefills again.
    pub(super) preempt: u64,
    /// Steps that it is out for.
    pub(super) out_for: [u64; 2],
}

pub(super) const PLAN: Plan = Plan {
    seed: 1,
    clients: 8,
    requests: 400,
    depth: 2,
    max_batch: 64,
    step_us: [2_000, 10_000],
    prefill_us: [1_000, 8_000],
    chunks: 1,
    exclusive: false,
    tokens: [1, 64],
    streaming: 100,
    think_us: 3_000,
    front: Front::Loop { message_us: [100, 600], token_us: 25, pause_us: 4_000 },
    silent_end: false,
    burst: 1,
    abort: 0,
    preempt: 0,
    out_for: [0, 0],
};

/// What really happened to a request, ns.
#[derive(Clone, Debug, Default)]
pub(super) struct Truth {
    pub(super) first_launch: u64,
    pub(super) first_result: u64,
    pub(super) last_result: u64,
    pub(super) queue: u64,
    pub(super) steps: u64,
    pub(super) batch_mean: f64,
    /// From its last step before to its first one after, where it sat out more than eight at a time.
    pub(super) sat_out: u64,
}

/// News in order of time, and the truth.
pub(super) struct Run {
    pub(super) news: Vec<Tracked>,
    pub(super) truth: BTreeMap<ExchangeId, Truth>,
}

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Within `[lo, hi]`.
    pub(super) fn within(&mut self, [lo, hi]: [u64; 2]) -> u64 {
        lo + self.next() % (hi - lo + 1)
    }
}

#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) read: u64,
    /// Steps that give it something.
    pub(super) tokens: u64,
    /// What `usage` says.
    pub(super) counted: u64,
    /// Leaves after this many.
    pub(super) abort_after: u64,
    pub(super) results: u64,
    pub(super) planned: u64,
    pub(super) chunks_left: u64,
    pub(super) streaming: bool,
    pub(super) writes: Vec<u64>,
    pub(super) steps: Vec<usize>,
    pub(super) first_token_step: usize,
}

impl Request {
    /// Plans its part of a step; true when it will get a token.
    pub(super) fn advance(&mut self) -> bool {
        self.chunks_left = self.chunks_left.saturating_sub(1);
        let token = self.chunks_left == 0;
        self.planned += u64::from(token);
        if token && self.planned == 1 {
            self.first_token_step = self.steps.len();
        }
        token
    }
}

#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Request, and whether it gets a token.
    pub(super) members: Vec<(usize, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive,
    Ready(usize),
    Result(usize),
}

struct Server {
    plan: Plan,
    random: Random,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    requests: Vec<Request>,
    steps: Vec<Step>,
    waiting: VecDeque<usize>,
    running: Vec<usize>,
    /// Preempted, and until which step.
    out: Vec<(usize, u64)>,
    in_flight: usize,
    gpu_free: u64,
    front_free: u64,
    news: Vec<(u64, usize, Tracked)>,
}

/// Runs the plan to its end.
pub(super) fn simulate(plan: Plan) -> Run {
    let mut server = Server {
        plan,
        random: Random(plan.seed),
        events: BinaryHeap::new(),
        order: 0,
        requests: Vec::new(),
        steps: Vec::new(),
        waiting: VecDeque::new(),
        running: Vec::new(),
        out: Vec::new(),
        in_flight: 0,
        gpu_free: 0,
        front_free: 0,
        news: Vec::new(),
    };
    for i in 0..plan.clients as u64 {
        server.at(1_000_000_000 + i * 137 * US, Event::Arrive);
    }
    while let Some(Reverse((now, _, event))) = server.events.pop() {
        match event {
            Event::Arrive => server.arrive(now),
            Event::Ready(request) => server.waiting.push_back(request),
            Event::Result(step) => server.result(step),
        }
        server.schedule(now);
    }
    server.run()
}

impl Server {
    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    fn tell(&mut self, time: u64, news: Tracked) {
        self.news.push((time, self.news.len(), news));
    }

    fn arrive(&mut self, now: u64) {
        let id = self.requests.len();
        if id == self.plan.requests {
            return;
        }
        let tokens = self.random.within(self.plan.tokens);
        let aborts = self.random.within([0, 99]) < self.plan.abort;
        let request = Request {
            read: now,
            tokens,
            counted: (0..tokens).map(|_| self.random.within([1, self.plan.burst])).sum(),
            abort_after: if aborts && tokens > 1 { self.random.within([1, tokens - 1]) } else { u64::MAX },
            chunks_left: self.random.within([1, self.plan.chunks]),
            streaming: self.random.within([0, 99]) < self.plan.streaming,
            ..Request::default()
        };
        self.requests.push(request);
        let exchange = ExchangeId(id as u64);
        self.tell(
            now,
            Tracked::RequestRead {
                exchange,
                service: ServiceId(0),
                time_ns: now,
                tid: FRONT,
                client: None,
                sight: Box::default(),
            },
        );
        let preprocess = self.random.within([200, 1_500]) * US;
        self.at(now + preprocess, Event::Ready(id));
    }

    /// Launches steps while there is work and room.
    fn schedule(&mut self, now: u64) {
        while self.in_flight < self.plan.depth {
            let members = self.members();
            if members.is_empty() {
                return;
            }
            // One thread launches one step after the other.
            let now = now.max(self.steps.last().map_or(0, |s| s.begin)) + self.random.within([40, 150]) * US;
            let prefills = members.iter().filter(|(r, _)| self.requests[*r].planned <= 1).count() as u64;
            let extra = (0..prefills).map(|_| self.random.within(self.plan.prefill_us)).sum::<u64>();
            let took = (self.random.within(self.plan.step_us) + extra) * US;
            let end = now.max(self.gpu_free) + took;
            self.gpu_free = end;
            self.in_flight += 1;
            let step = self.steps.len();
            for (request, _) in &members {
                self.requests[*request].steps.push(step);
            }
            self.steps.push(Step { begin: now, end, members });
            self.at(end, Event::Result(step));
        }
    }

    /// Now and then the one that came last has to leave, and who left comes back.
    fn preempt(&mut self) {
        let many = self.plan.preempt > 0 && self.running.len() > 1;
        if many && self.random.within([0, 999]) < self.plan.preempt {
            let until = self.steps.len() as u64 + self.random.within(self.plan.out_for);
            self.out.extend(self.running.pop().map(|request| (request, until)));
        }
        let idle = self.running.is_empty() && self.waiting.is_empty();
        let now = self.steps.len() as u64;
        let back = self.out.extract_if(.., |(_, until)| idle || *until <= now);
        self.waiting.extend(back.map(|(request, _)| request));
    }

    /// The next step's requests.
    fn members(&mut self) -> Vec<(usize, bool)> {
        self.preempt();
        let room = self.plan.max_batch - self.running.len();
        let new: Vec<usize> = self.waiting.drain(..room.min(self.waiting.len())).collect();
        let mut turn = if self.plan.exclusive && !new.is_empty() { Vec::new() } else { self.running.clone() };
        turn.extend(&new);
        self.running.extend(&new);
        let members = turn.iter().map(|r| (*r, self.requests[*r].advance())).collect();
        let requests = &self.requests;
        self.running.retain(|r| requests[*r].planned < requests[*r].tokens);
        members
    }

    fn result(&mut self, step: usize) {
        self.in_flight -= 1;
        let Step { begin, end, members } = std::mem::take(&mut self.steps[step]);
        self.tell(end, Tracked::Step { service: ServiceId(0), step: marker(ENGINE, ENGINE, begin, end) });
        if let Front::Loop { message_us, .. } = self.plan.front {
            self.front_free = self.front_free.max(end + self.random.within(message_us) * US);
        }
        for (request, _) in members.iter().filter(|m| m.1) {
            self.token(*request, end);
        }
        self.steps[step] = Step { begin, end, members };
    }

    /// A token of a request goes out.
    fn token(&mut self, id: usize, result: u64) {
        let time_ns = match self.plan.front {
            Front::Loop { token_us, pause_us, .. } => {
                let pause = if self.random.within([0, 499]) == 0 { pause_us } else { 0 };
                self.front_free += (token_us + pause) * US;
                self.front_free
            }
            Front::Spread { lag_us: [lo, hi] } => {
                let part = self.random.within([0, 1_000]);
                let lag = lo * US + (hi - lo) * part * part / 1_000;
                let last = self.requests[id].writes.last().map_or(0, |t| t + 1);
                last.max(result + lag)
            }
        };
        let request = &mut self.requests[id];
        request.results += 1;
        if request.results > request.abort_after {
            return;
        }
        let over = request.results == request.tokens.min(request.abort_after);
        let silent = self.plan.silent_end && request.results == request.tokens;
        if !silent {
            request.writes.push(time_ns);
        }
        if request.streaming && !silent {
            let event = ContentEvent { time_ns, tid: FRONT };
            self.tell(time_ns, Tracked::Content { exchange: ExchangeId(id as u64), event });
        }
        if over {
            self.finish(id, time_ns + 20 * US);
        }
    }

    fn finish(&mut self, id: usize, end: u64) {
        let exchange = exchange(id, &self.requests[id], end);
        self.tell(end, Tracked::Finished(Box::new(exchange)));
        let think = self.random.within([0, 2 * self.plan.think_us]) * US;
        self.at(end + think, Event::Arrive);
    }

    fn run(mut self) -> Run {
        let last = self.news.iter().map(|n| n.0).max().unwrap_or_default();
        for time_ns in (1_000_000_000..last).step_by(100_000_000) {
            self.tell(time_ns, Tracked::Tick { time_ns });
        }
        self.news.sort_by_key(|n| (n.0, n.1));
        let truth = (0..self.requests.len())
            .map(|id| (ExchangeId(id as u64), truth(&self.requests[id], &self.steps)))
            .collect();
        Run { news: self.news.into_iter().map(|n| n.2).collect(), truth }
    }
}
