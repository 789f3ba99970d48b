//! Failures of which it may yet be told how much was free.

use super::{
    Place,
    failure::Failure,
    sight::{Moment, Sight},
};

/// A failure that is not decided.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) failure: Failure,
    pub(super) place: Place,
    moment: Moment,
}

impl Pending {
    pub(super) fn new(failure: Failure, place: Place, moment: Moment) -> Self {
        Self { failure, place, moment }
    }

    /// It turns out to have been elsewhere.
    pub(super) fn moves(&mut self, place: Place, moment: Moment) {
        self.place = place;
        self.moment = moment.when(self.moment.at_ns);
    }

    /// Takes what is known of the device, if that is from closer to the failure than what was known before.
    pub(super) fn look(&mut self, sight: &Sight) {
        let Some(estimate) = sight.at(self.moment) else { return };
        let age_s = estimate.age_ns as f64 / 1e9;
        let failure = &mut self.failure;
        if failure.free_age_s.is_some_and(|known| known <= age_s) {
            return;
        }
        failure.free_bytes = Some(estimate.free);
        failure.total_bytes = Some(estimate.total);
        failure.free_source = Some(estimate.source);
        failure.free_age_s = Some(age_s);
    }
}
