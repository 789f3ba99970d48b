//! Failures from the call to the decision.

use std::collections::BTreeMap;

use wire::{cookie::Class, memory::Call};

use super::{
    Failure, FailureClass, Holder, Incident, Kind, Ledgers, MAX_PENDING, Place, Sources, book::total,
    failure::OUT_OF_MEMORY, pending::Pending, sight::Seen,
};
use crate::health::Health;

impl Ledgers {
    /// Notes a failure with what is known now; how much was free may be told better in a moment.
    pub(super) fn failed(
        &mut self,
        call: &Call,
        kind: Kind,
        place: Place,
        from: Sources<'_>,
        health: &mut Health,
    ) {
        let moment = self.sights.entry(place).or_default().now(call.header.time_ns);
        // A pool may have a limit of its own, and managed memory may be refused for want of the host's.
        let is_limited = call.class == Class::AllocPool as u8 || kind == Kind::Managed;
        let mut pending = Pending::new(self.describe(call, kind, place), place, moment, is_limited);
        self.holders(&mut pending.failure, place, from);
        if let Some(sight) = self.sights.get(&place) {
            pending.look(sight);
        }
        let is_clear = call.result != OUT_OF_MEMORY || kind == Kind::Host;
        if is_clear || self.pending.len() >= MAX_PENDING {
            if !is_clear {
                health.limit("memory_failures_pending");
            }
            return self.decide(pending);
        }
        self.pending.push(pending);
    }

    fn describe(&self, call: &Call, kind: Kind, place: Place) -> Failure {
        let process = self.processes.get(&call.header.tgid);
        let (largest, smallest) = process.map(|p| p.lately(call.header.time_ns)).unwrap_or_default();
        Failure {
            t_ns: call.header.time_ns,
            pid: call.header.tgid,
            function: self.rows.get(usize::from(call.row)).cloned().unwrap_or_default(),
            kind,
            class: FailureClass::Unknown,
            result: call.result,
            requested_bytes: call.bytes,
            device: self.uuid(place),
            free_bytes: None,
            total_bytes: None,
            free_source: None,
            free_age_s: None,
            own_bytes: process.map_or(0, |process| process.held(place)),
            others_bytes: 0,
            holders: Vec::new(),
            largest_success_bytes: largest,
            smallest_failure_bytes: smallest.unwrap_or(call.bytes),
            partial: process.is_none_or(|p| p.is_partial || p.is_capped),
        }
    }

    /// Who else held memory there, by NVML and by the ledgers: what each says may be too little.
    fn holders(&self, failure: &mut Failure, place: Place, from: Sources<'_>) {
        const SHOWN: usize = 8;
        let mut held: BTreeMap<u32, u64> = BTreeMap::new();
        let usage = from.devices.iter().find(|device| Some(&device.seen().uuid) == failure.device.as_ref());
        let listed =
            usage.and_then(|device| device.usage(failure.t_ns)).and_then(|usage| usage.processes.as_ref());
        for process in listed.into_iter().flatten() {
            let bytes = held.entry(process.pid).or_default();
            *bytes = (*bytes).max(process.used_memory.unwrap_or_default());
        }
        for (&pid, process) in &self.processes {
            let bytes = process.held_since(place, held.get(&pid).copied().unwrap_or_default());
            if bytes > 0 {
                held.insert(pid, bytes);
            } else {
                held.remove(&pid);
            }
        }
        let own = held.remove(&failure.pid).unwrap_or_default();
        failure.own_bytes = failure.own_bytes.max(own);
        failure.others_bytes = total(held.values().copied());
        let comm =
            |pid: u32| self.processes.get(&pid).map(|p| p.comm.clone()).filter(|comm| !comm.is_empty());
        let mut holders: Vec<Holder> = held
            .into_iter()
            .filter(|(_, b)| *b > 0)
            .map(|(pid, bytes)| Holder { pid, bytes, comm: comm(pid) })
            .collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        holders.truncate(SHOWN);
        failure.holders = holders;
    }

    /// Somebody told how much of a device is free: failures that waited for it are decided.
    pub(super) fn told(&mut self, place: Place, seen: Seen, from: Sources<'_>) {
        let sight = self.sights.entry(place).or_default();
        if !sight.seen(seen) {
            return;
        }
        let sight = sight.clone();
        let is_settled = |pending: &mut Pending| {
            if pending.place == place {
                pending.look(&sight);
            }
            pending.place == place && pending.is_settled()
        };
        for pending in self.pending.extract_if(.., is_settled).collect::<Vec<_>>() {
            self.complete(pending, from);
        }
    }

    /// NVML's list of processes may have come only after the failure.
    pub(super) fn complete(&mut self, mut pending: Pending, from: Sources<'_>) {
        if pending.failure.others_bytes == 0 {
            let own = pending.failure.own_bytes;
            self.holders(&mut pending.failure, pending.place, from);
            // What the process held then, not what it holds now.
            pending.failure.own_bytes = own;
        }
        self.decide(pending);
    }

    fn decide(&mut self, pending: Pending) {
        let is_fragmented = pending.is_fragmented();
        let mut failure = pending.failure;
        failure.classify(is_fragmented);
        if let Some(process) = self.processes.get_mut(&failure.pid) {
            process.failed(pending.place, &failure);
        }
        self.incidents.push(Incident::Failure(failure));
    }
}
