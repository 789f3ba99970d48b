//! Scenarios side by side under one agent: calm, incident, calm.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use system::agent::Agent;

use crate::actor::Actor;
use crate::node::Node;
use crate::scenario::Scenario;
use crate::verdict::Verdict;

/// Load before, which tells what is usual.
const CALM_S: f64 = 50.0;
/// How long incidents go on; the right finding must be there by then.
const INCIDENT: Duration = Duration::from_mins(1);
/// And closed so long after the end.
const CLOSED: Duration = Duration::from_mins(2);
/// Load after it: as long as that may take.
const AFTER_S: f64 = 125.0;
/// Between two looks at the findings.
const LOOK: Duration = Duration::from_millis(500);
/// All incidents have gone on for a while then.
const MIDDLE: Duration = Duration::from_secs(45);

/// Acts them, with files in `dir`.
pub(crate) fn act(
    scenarios: Vec<Scenario>,
    dir: &Path,
    during: &impl Fn(&Agent) -> Result<()>,
) -> Result<Vec<Verdict>> {
    let models = scenarios.iter().flat_map(models).collect();
    let mut node = Node::new(models, dir)?;
    let mut actors = start(scenarios, &node, dir)?;
    node.tell()?;
    let mut agent = Agent::start(dir, &["--config", node.config.to_str().context("UTF-8")?])?;
    actors.iter().try_for_each(|actor| actor.wait_attached(&mut agent))?;
    let mut verdicts: Vec<Verdict> = actors.iter().map(verdict).collect();
    actors.iter_mut().try_for_each(|actor| actor.calm(CALM_S))?;
    actors.iter_mut().try_for_each(Actor::rest)?;
    before(&mut verdicts, &actors, &findings(&agent)?);

    actors.iter_mut().try_for_each(|actor| actor.begin(INCIDENT.as_secs_f64(), &mut node))?;
    incident(&mut verdicts, &actors, &agent, during)?;
    std::fs::write(dir.join("findings.json"), agent.get("/api/v1/findings")?)?;
    actors.iter_mut().try_for_each(|actor| actor.end(&mut node))?;
    actors.iter_mut().try_for_each(Actor::rest)?;

    actors.iter_mut().try_for_each(|actor| actor.calm(AFTER_S))?;
    closed(&mut verdicts, &actors, &agent)?;
    std::fs::write(dir.join("after.json"), agent.get("/api/v1/findings")?)?;
    quiet(&mut verdicts, &actors, &findings(&agent)?);
    drop(actors);
    agent.stop()?;
    Ok(verdicts)
}

fn models(scenario: &Scenario) -> Vec<&'static str> {
    let of = |gpu| if scenario.mixed && gpu == 1 { "Fake GPU of another kind" } else { "Fake GPU" };
    (0..scenario.gpus()).map(of).collect()
}

fn start(scenarios: Vec<Scenario>, node: &Node, dir: &Path) -> Result<Vec<Actor>> {
    let mut gpu = 0;
    let mut next = |scenario: Scenario| {
        let first = gpu;
        gpu += scenario.gpus();
        Actor::start(scenario, first, node, dir)
    };
    scenarios.into_iter().map(&mut next).collect()
}

fn verdict(actor: &Actor) -> Verdict {
    Verdict { name: actor.scenario.name, rule: actor.scenario.rule, ..Verdict::default() }
}

fn findings(agent: &Agent) -> Result<Vec<Value>> {
    let told: Value = serde_json::from_str(&agent.get("/api/v1/findings")?)?;
    told["findings"].as_array().cloned().context("a list")
}

/// Rules of an actor's findings, those that go on or all, the first one first.
fn rules(actor: &Actor, findings: &[Value], all: bool) -> Vec<String> {
    let Some(service) = actor.service() else { return Vec::new() };
    let own = findings.iter().filter(|it| it["service"] == service.as_str());
    let wanted = own.filter(|it| all || it["state"] == "active");
    wanted.map(|it| it["rule"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Nothing is wrong yet.
fn before(verdicts: &mut [Verdict], actors: &[Actor], findings: &[Value]) {
    for (verdict, actor) in verdicts.iter_mut().zip(actors).filter(|(verdict, _)| verdict.rule.is_some()) {
        verdict.wrongly.extend(rules(actor, findings, true));
    }
}

/// Looks until the incidents are over.
fn incident(
    verdicts: &mut [Verdict],
    actors: &[Actor],
    agent: &Agent,
    during: &impl Fn(&Agent) -> Result<()>,
) -> Result<()> {
    let begun = Instant::now();
    let mut during = Some(during);
    while begun.elapsed() < INCIDENT {
        let findings = findings(agent)?;
        for (verdict, actor) in verdicts.iter_mut().zip(actors) {
            verdict.last = rules(actor, &findings, false).into_iter().next();
            if verdict.last.is_some() && verdict.last.as_deref() == verdict.rule {
                verdict.found_s.get_or_insert(begun.elapsed().as_secs_f64());
            }
        }
        if begun.elapsed() > MIDDLE
            && let Some(look) = during.take()
        {
            look(agent)?;
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Looks until nothing is told of any of them, or the time for that is over.
fn closed(verdicts: &mut [Verdict], actors: &[Actor], agent: &Agent) -> Result<()> {
    let ended = Instant::now();
    while ended.elapsed() < CLOSED && verdicts.iter().any(|verdict| verdict.closed_s.is_none()) {
        let findings = findings(agent)?;
        for (verdict, actor) in verdicts.iter_mut().zip(actors) {
            if verdict.closed_s.is_none() && rules(actor, &findings, false).is_empty() {
                verdict.closed_s = Some(ended.elapsed().as_secs_f64());
            }
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Of quiet controls nothing was ever told.
fn quiet(verdicts: &mut [Verdict], actors: &[Actor], findings: &[Value]) {
    for (verdict, actor) in verdicts.iter_mut().zip(actors).filter(|(verdict, _)| verdict.rule.is_none()) {
        verdict.wrongly.extend(rules(actor, findings, true));
    }
}
