//! What a scenario is made of.

use system::rig::{Load, ServerOptions, Shape};
use system::trouble::Wrong;

/// Lengths of usual prompts and answers, tokens.
pub(crate) const USUAL: [&str; 2] = ["48-80", "12-20"];

/// What clients ask for.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    clients: u32,
    options: Vec<(&'static str, String)>,
}

impl Demand {
    /// So many clients, each with one request at a time, of these lengths.
    pub(crate) fn new(clients: u32, [input, output]: [&str; 2]) -> Self {
        let options = vec![("input-tokens", input.to_owned()), ("output-tokens", output.to_owned())];
        Self { clients, options }
    }

    /// With one more option of the load generator.
    pub(crate) fn with(mut self, name: &'static str, value: impl std::fmt::Display) -> Self {
        self.options.push((name, value.to_string()));
        self
    }

    /// As load for so long.
    pub(crate) fn load(&self, seconds: f64) -> Load {
        let load = Load::for_seconds(self.clients, seconds);
        self.options.iter().fold(load, |load, (name, value)| load.with(name, value))
    }
}

/// What else there is on the server's GPU while the incident goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    /// A job that launches as a training does.
    Training,
    /// Another server with load.
    Server,
    /// A job that holds memory in pieces with small holes between them, and does nothing.
    Fragments,
    /// A job that holds all memory.
    Hog,
    /// A process that has memory and does nothing, from the beginning to the end.
    Idle,
}

/// What NVML says of the GPU while the incident goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clocks {
    Usual,
    /// Held back by temperature.
    Hot,
    /// Held back by the power cap.
    Capped,
}

/// When the server starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// At the beginning.
    First,
    /// With the incident, which it is.
    Late,
    /// At the beginning, and again with the incident.
    Again,
}

/// A server, its load, and what goes wrong for a while.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// The rule that must come first; `None` where nothing is wrong.
    pub rule: Option<&'static str>,
    pub(crate) server: ServerOptions,
    pub(crate) gpus: u32,
    /// GPUs are of two models.
    pub(crate) mixed: bool,
    pub(crate) calm: Demand,
    /// The load of the incident, in the place of the calm one; of the second, if any, besides.
    pub(crate) during: Vec<Demand>,
    pub(crate) wrong: Vec<(Wrong, u64)>,
    pub(crate) beside: Beside,
    pub(crate) clocks: Clocks,
    pub(crate) start: Start,
    /// CPU time that the server gets in each tenth of a second during the incident, microseconds.
    pub(crate) quota_us: Option<u32>,
}

impl Scenario {
    /// One in which nothing happens yet.
    pub(crate) fn new(name: &'static str, rule: Option<&'static str>, shape: Shape) -> Self {
        let calm = Demand::new(2, USUAL);
        Self {
            name,
            rule,
            // Allocations are a part of some incidents only.
            server: ServerOptions::new(shape).with("alloc-every", 0),
            gpus: 1,
            mixed: false,
            during: vec![calm.clone()],
            calm,
            wrong: Vec::new(),
            beside: Beside::Nothing,
            clocks: Clocks::Usual,
            start: Start::First,
            quota_us: None,
        }
    }

    /// With one more option of the server.
    pub(crate) fn server(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.server = self.server.with(name, value);
        self
    }

    /// With what the simulated driver's calls take, as in `FAKECUDA_DELAY_US`.
    pub(crate) fn delays(mut self, script: &str) -> Self {
        self.server.environment.push(("FAKECUDA_DELAY_US", script.to_owned()));
        self
    }

    /// With so many GPUs.
    pub(crate) fn on(mut self, gpus: u32) -> Self {
        self.gpus = gpus;
        self
    }

    /// With this load all the time.
    pub(crate) fn always(mut self, demand: Demand) -> Self {
        self.during = vec![demand.clone()];
        self.calm = demand;
        self
    }

    /// With this load during the incident.
    pub(crate) fn asked(mut self, demand: Demand) -> Self {
        self.during = vec![demand];
        self
    }

    /// With this load besides.
    pub(crate) fn besides(mut self, demand: Demand) -> Self {
        self.during.push(demand);
        self
    }

    /// With this trouble in the server.
    pub(crate) fn wrong(mut self, what: Wrong, value: u64) -> Self {
        self.wrong.push((what, value));
        self
    }

    /// With this beside it.
    pub(crate) fn beside(mut self, beside: Beside) -> Self {
        self.beside = beside;
        self
    }

    /// With clocks that NVML says are held back.
    pub(crate) fn clocks(mut self, clocks: Clocks) -> Self {
        self.clocks = clocks;
        self
    }

    /// Whose server starts then.
    pub(crate) fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// GPUs that it needs.
    pub(crate) fn gpus(&self) -> u32 {
        self.gpus
    }
}
