//! A request that is over: its steps, and what it means for the others'.

use super::{
    super::{
        assign::{Assignment, Question, assign},
        batch,
        live::Live,
        record::Confidence,
        service::Choice,
    },
    Requests,
};
use crate::track::Exchange;

impl Requests {
    /// Processes of the request's own service had steps while it was in flight.
    pub(super) fn may_work(&self, exchange: &Exchange, live: &Live) -> bool {
        let service = self.services.get(live.service);
        let times = live.read_ns.or(exchange.read_done_ns).zip(exchange.last_byte_out_ns);
        service
            .zip(times)
            .is_some_and(|(service, (read, end))| service.engine(exchange.pid, read, end) != Choice::Idle)
    }

    /// Assigns steps to a request that is over.
    pub(super) fn settle(&mut self, exchange: &Exchange, live: &Live) -> Assignment {
        let Self { live: all, services, scratch, nesting, .. } = self;
        let Some(service) = services.get_mut(live.service) else { return Assignment::default() };
        let (Some(_), Some(read), Some(end)) =
            (exchange.first_byte_in_ns, live.read_ns.or(exchange.read_done_ns), exchange.last_byte_out_ns)
        else {
            return Assignment::default();
        };
        let streams = exchange.first_token_ns.is_some() || exchange.streaming == Some(true);
        let mut times: Vec<u64> =
            exchange.content.iter().filter(|_| streams).map(|e| e.time_ns.min(end)).collect();
        times.sort_unstable();
        let found = assign(Question { exchange, live, read, end, times: &times }, service, scratch);
        let mut assignment = found.assignment;
        // The time that it waits for the engine begins where its client's request was read, as its stages do. Where it is
        // not known yet which that is: when it came from there.
        let outermost = exchange.id.and_then(|id| nesting.outermost(id));
        let before = |t: &u64| *t < read;
        let front = outermost.and_then(|outer| all.get(&outer)?.read_ns).filter(before);
        let came = exchange.client.and(exchange.first_byte_in_ns).filter(before);
        if let Some((from, process)) = front.or(came).zip(service.processes.get(&found.pid)) {
            assignment.queue_from(from, &process.log);
            assignment.queue_from_proxy = front.is_none();
        }
        let hazy = service.blurred(read);
        let others = || service.live.iter().filter_map(|(_, id)| all.get(id));
        if let Some(process) = service.processes.get_mut(&found.pid).filter(|_| !found.own.is_empty()) {
            let likely = assignment.confidence == Some(Confidence::Bounded);
            process.log.join(&found.own, found.first_event, likely);
            let started = others().filter_map(|l| l.first.map(|f| f.time_ns));
            let silent = hazy && others().any(|l| l.first.is_none());
            let known = assignment.steps.is_some() && !live.blurred && !silent;
            assignment.batch_mean = known.then(|| batch::mean(&process.log, &found.own, started)).flatten();
        }
        if let (Some(first), Some(confidence)) = (found.first_launch, assignment.confidence) {
            let written = times.first().copied().unwrap_or(end);
            service.flow.over(end, written.saturating_sub(first), confidence);
        }
        if assignment.confidence == Some(Confidence::Bounded) {
            service.haze(end);
        }
        if found.own.is_empty() {
            // The others' steps may have held it.
            service.blur(end);
        }
        if found.own.is_empty() && assignment.steps != Some(0) {
            service.processes.values_mut().for_each(|process| process.log.doubt(read, end));
        }
        assignment
    }
}
