//! Failures of which it may yet be told how much was free.

use super::{
    Place,
    failure::Failure,
    sight::{Moment, Sight},
};

/// The driver gives device memory in pieces of this, bytes.
const GRANULE: u64 = 2 << 20;

/// A failure that is not decided.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) failure: Failure,
    pub(super) place: Place,
    moment: Moment,
    /// It may be a limit that it met, and not the device's.
    is_limited: bool,
    /// What was free by the last look before, and by the first one after.
    before: Option<u64>,
    after: Option<u64>,
}

impl Pending {
    pub(super) fn new(failure: Failure, place: Place, moment: Moment, is_limited: bool) -> Self {
        Self { failure, place, moment, is_limited, before: None, after: None }
    }

    /// It turns out to have been elsewhere.
    pub(super) fn moves(&mut self, place: Place, device: Option<String>, moment: Moment) {
        if matches!(self.place, Place::Device(_)) {
            // That was of another device.
            (self.before, self.after) = (None, None);
            (self.failure.free_bytes, self.failure.total_bytes) = (None, None);
            (self.failure.free_source, self.failure.free_age_s) = (None, None);
        }
        self.place = place;
        self.failure.device = device;
        self.moment = moment.when(self.moment.at_ns);
    }

    /// Takes what is known of the device, as the number to show if it is from closer to the failure than the one before.
    pub(super) fn look(&mut self, sight: &Sight) {
        let Some(estimate) = sight.at(self.moment) else { return };
        let failure = &mut self.failure;
        if estimate.is_most && estimate.free >= failure.requested_bytes {
            // Less may have been free.
            return;
        }
        if estimate.looked_ns >= failure.t_ns {
            self.after.get_or_insert(estimate.free);
        } else {
            self.before = Some(estimate.free);
        }
        let age_s = estimate.age_ns as f64 / 1e9;
        if failure.free_age_s.is_some_and(|known| known <= age_s) {
            return;
        }
        failure.free_bytes = Some(estimate.free);
        failure.total_bytes = Some(estimate.total);
        failure.free_source = Some(estimate.source);
        failure.free_age_s = Some(age_s);
    }

    /// Somebody has looked since: there is nothing to wait for.
    pub(super) fn is_settled(&self) -> bool {
        self.after.is_some()
    }

    /// Enough was free before and after. What one look shows beyond the other, somebody who is not watched has moved:
    /// in between it may have been as much again.
    pub(super) fn is_fragmented(&self) -> bool {
        let (Some(before), Some(after)) = (self.before, self.after) else { return false };
        let sure = before.min(after).saturating_sub(before.abs_diff(after));
        let needed = self.failure.requested_bytes.checked_next_multiple_of(GRANULE);
        !self.is_limited && needed.is_some_and(|needed| needed <= sure)
    }
}
