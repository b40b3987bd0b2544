//! Compares the shortcuts of a transfer with the steps that they replace, for tests and fuzzing: header prediction (`predict.rs`), the
//! choice in bulk (`choice.rs`) and the settling of a connection that has nothing to send (`output.rs`). Each is tried on a copy, and has
//! to leave exactly the same state as the steps.

use holdover_base::Instant;
use holdover_wire::Segment;

use super::{Connection, Transmit};
use crate::counters::Disposition;
use crate::ecn::EcnField;

impl Connection {
    /// As [`Self::handle_segment_with_ecn`]. Returns also whether the segment was predicted.
    ///
    /// # Panics
    ///
    /// If a shortcut leaves the connection in another state than the steps.
    pub(crate) fn handle_segment_both_ways(
        &mut self,
        now: Instant,
        segment: &Segment,
        ecn: EcnField,
    ) -> (Disposition, bool) {
        let mut in_steps = self.clone();
        in_steps.note_ecn_field(ecn);
        let is_predicted = in_steps.clone().handle_predicted(now, segment);
        let disposition = self.handle_segment_with_ecn(now, segment, ecn);
        assert_eq!(disposition, in_steps.handle_in_steps(now, segment), "{segment}");
        self.assert_same(&in_steps, "the segment was predicted");
        self.assert_rest(now);
        (disposition, is_predicted)
    }

    /// As [`Self::poll_transmit`].
    ///
    /// # Panics
    ///
    /// As [`Self::handle_segment_both_ways`].
    pub(crate) fn poll_transmit_both_ways(&mut self, now: Instant) -> Option<Transmit> {
        self.assert_rest(now);
        let mut in_steps = self.clone();
        let transmit = self.poll_transmit(now);
        assert_eq!(transmit, in_steps.transmit_in_steps(now));
        self.assert_same(&in_steps, "the segment was chosen in bulk");
        if transmit.is_some() {
            let mut settled = self.clone();
            if settled.settle_in_transfer(now) {
                assert_eq!(in_steps.transmit_in_steps(now), None);
                settled.assert_same(&in_steps, "the connection was settled");
            }
        }
        transmit
    }

    fn transmit_in_steps(&mut self, now: Instant) -> Option<Transmit> {
        let mut segment = Segment::default();
        let (reason, ecn) = self.transmit_chosen(now, &mut segment)?;
        Some(Transmit { segment, reason, ecn })
    }

    /// A connection at rest has nothing to send.
    fn assert_rest(&self, now: Instant) {
        if self.is_at_rest() {
            let [mut rested, mut in_steps] = [self.clone(), self.clone()];
            rested.rest();
            assert_eq!(in_steps.transmit_in_steps(now), None);
            rested.assert_same(&in_steps, "the connection was at rest");
        }
    }

    fn assert_same(&self, in_steps: &Self, what: &str) {
        assert!(self == in_steps, "not as in steps, where {what}:\n{self:#?}\nin steps:\n{in_steps:#?}");
    }
}
