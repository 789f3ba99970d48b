//! Quiet controls: something changes, or is unusual from the beginning, and nothing is wrong.

use system::rig::Shape;

use crate::scenario::{Beside, Demand, Scenario, Start, USUAL};

/// All of them.
pub(crate) fn all() -> Vec<Scenario> {
    let quiet = |name, shape| Scenario::new(name, None, shape);
    vec![
        quiet("nothing", Shape::Split),
        // Within what it has room for.
        quiet("bursts", Shape::Split).always(Demand::new(8, USUAL).with("open-loop", 6)),
        quiet("long_prompts_only", Shape::Split).always(Demand::new(2, ["2000-2400", USUAL[1]])),
        quiet("little_traffic", Shape::Split).always(Demand::new(1, USUAL).with("open-loop", 0.5)),
        quiet("streams_and_whole_answers", Shape::Chain)
            .always(Demand::new(2, USUAL).with("stream-ratio", 0.5)),
        quiet("deploy", Shape::Split).start(Start::Again),
        quiet("idle_neighbour", Shape::Single).beside(Beside::Idle),
        quiet("health_probes", Shape::Proxied)
            .always(Demand::new(2, USUAL).with("probe", "/health").with("probe-every-ms", 50)),
    ]
}
